"""A cluster on this machine whose workers lack something, or never come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from textwrap import dedent

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

START = dedent("""
    import json, sys
    import silverfold.pipelines.spark.workers
    from silverfold.conf.errors import SilverfoldError
    from silverfold.conf.load import load_settings
    from silverfold.jobs.common.logs import start_logs
    from silverfold.pipelines.spark.session import start_spark
    from silverfold.pipelines.spark.workers import await_workers

    start_logs("warning")
    silverfold.pipelines.spark.workers._LOG_INTERVAL = 2.0
    options = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "1g"} | json.loads(sys.argv[1])
    silverfold.pipelines.spark.session.await_workers = lambda session: await_workers(session, within=float(sys.argv[2]))
    try:
        start_spark(load_settings(None, "local", {"SILVERFOLD__SPARK": json.dumps(options).replace(":", "=")}), app="x")
    except SilverfoldError as error:
        print(error)
""")


def started(options: str, within: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START, options, str(within)]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=True)


def test_workers_that_have_everything_are_not_spoken_of():
    assert started("{}", 120).stdout == ""


def test_workers_get_our_packages_from_here(tmp_path):
    python = tmp_path / "python"  # that has what is installed, without what is found by way of another folder: us
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert started(json.dumps({"spark.pyspark.python": str(python)}), 120).stdout == ""


def test_what_workers_lack_is_named_before_any_cut(tmp_path):
    output = started(json.dumps({"spark.pyspark.python": str(tmp_path / "none")}), 120).stdout
    assert output.startswith('a first task: Spark: its workers lack what a job needs: Cannot run program "')
    assert output.endswith("(conf/README.md says how workers get what they need)\n")


def test_executors_that_do_not_come_are_told_of_and_given_up():
    done = started('{"spark.executor.cores": "2"}', 5)
    assert done.stdout.startswith("no executor has come to work in 5 seconds: are there any")
    assert done.stderr.count("no executor has come yet") == 2
