"""The build command as a process: killed at named steps, started again, and what its exit code says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from pyspark.sql import SparkSession

from jobs import cli
from pipelines.cuts import read_cuts
from pipelines.places import Places
from pipelines.store import open_table
from tests.support.landed_history import LandedHistory

PATIENCE = 240.0
"""Seconds for a start of Spark on a busy machine."""

SETTINGS = """
[build.cut]
max_frames = 4  # an update each

[spark]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""

FEED = """
connector = "deephaven"
address = "unused:1"
[tables.quotes]
source = "Quotes"
"""

KILLED = """
import os, signal, sys
import {module}
from jobs.cli import main_of

step = {module}.{name}

def dying(*args, **kwargs):
    if {after}:
        step(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

{module}.{name} = dying
main_of("build")
"""
"""When it reaches the step, or has done it, the process is gone."""

STEPS = [
    ("pipelines.silver", "SilverTable.apply", False),
    ("pipelines.silver", "merge", False),
    ("pipelines.build", "record", False),
    ("pipelines.build", "record", True),
]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(SETTINGS)
    (tmp_path / "feeds/market.toml").write_text(FEED)
    return tmp_path


def ended(conf: Path, *program: str) -> tuple[int, str]:
    """Run a build to its end; return its exit code and what it said."""
    command = [sys.executable, *program, "--conf", str(conf), "market", "--once"]
    environ = os.environ | {"SILVERFOLD__WAREHOUSE": str(conf / "lake")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout + done.stderr


def silver(places: Places) -> dict[int, tuple[int, int]] | None:
    """Quantity and position by row key; None when there is no table."""
    opened = open_table(places.silver("market", "quotes"))
    if opened is None:
        return None
    found = pa.table(QueryBuilder().register("quotes", opened).execute("SELECT * FROM quotes").read_all())
    return {row["_row_key"]: (row["Qty"], row["_position"]) for row in found.to_pylist()}


@pytest.mark.spark
def test_a_build_killed_at_step_after_step_goes_on_where_it_was(conf: Path):
    places = Places(str(conf / "lake"))
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()  # positions 0 to 2
    history.snapshot("quotes", {1: {"Qty": 0}, 2: {"Qty": 0}})  # 3 to 5
    for number in range(1, 4):  # 6 to 8, 9 to 11, 12 to 14
        history.update("quotes", modified={1: {"Qty": number}})
    history.land(places.bronze("market"), "market")
    shown = []
    for module, name, after in STEPS:
        program = conf / "killed.py"
        program.write_text(KILLED.format(module=module, name=name, after=after))
        assert ended(conf, str(program))[0] == -signal.SIGKILL
        shown.append(silver(places))

    code, said = ended(conf, "-m", "jobs.build")

    assert (code, said) == (0, said)
    assert shown == [None, {1: (0, 4), 2: (0, 4)}, {1: (1, 7), 2: (0, 4)}, {1: (2, 10), 2: (0, 4)}]
    assert silver(places) == {1: (3, 13), 2: (0, 4)}
    assert [cut.last_position for cut in read_cuts(places, "market")] == [5, 8, 11, 14]


def test_a_table_that_holds_is_told_by_the_exit_code(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    places = Places(str(conf / "lake"))
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    history = LandedHistory({"quotes": {"_position": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"_position": 0}})
    history.land(places.bronze("market"), "market")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    said = "silverfold: quotes holds: quotes: the source has a column _position, which is a name of ours\n"
    assert (ended.value.code, capsys.readouterr().out) == (1, said)
