"""Starts what a deployment has beside silverfold, as processes on loopback: Spark's daemons, and an S3 store.

Spark's are those of the installed pyspark. Their environment has no package of ours, and the Python that their tasks
run has only what is named: what else tasks need comes from the driver.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.support.polling import wait_until
from tests.support.sqlitecloud.webhooks import free_port

HOST: Final = "127.0.0.1"
SPARK_HOME: Final = Path(pyspark.__file__).parent
STARTED_WITHIN: Final = 180.0
"""Seconds for a JVM on a busy machine, which may have to fetch JARs."""

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of JVMs that work for minutes, as in conf/local.toml: half the processor time."""

BUCKET: Final = "lake"
SECRET: Final = "sesame"


def python_without(folder: Path, *lacking: str) -> Path:
    """Return a Python that has what is installed here, but for some packages and for this one.

    Args:
        folder: A new folder to make it in.
        lacking: Names, as they are imported.
    """
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for installed in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in installed.iterdir():
            name = entry.name.partition(".")[0]
            is_left_out = name in {"silverfold", "__pycache__", *lacking} or entry.suffix == ".pth"
            if not is_left_out and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Run a standalone master and its workers, of one core and 1 GB each; yield the master's URL.

    Args:
        folder: For their logs, and for the work of executors.
    """
    port = free_port()
    master, common = f"spark://{HOST}:{port}", ("--host", HOST, "--webui-port", "0")
    with ExitStack() as stack:
        first = ("org.apache.spark.deploy.master.Master", *common, "--port", str(port))
        stack.enter_context(_running(folder / "master", ["spark-class", *first], port))
        for number in range(workers):
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            worker = ("org.apache.spark.deploy.worker.Worker", *common, *sizes, master)
            stack.enter_context(_running(folder / f"worker-{number}", ["spark-class", *worker]))
        yield master


@contextmanager
def connect_server(folder: Path, options: Mapping[str, str], python: Path) -> Iterator[str]:
    """Run a Spark Connect server; yield its URL.

    Args:
        folder: For its log.
        options: Spark's, by name.
        python: What its tasks run.
    """
    port = free_port()
    own = {"spark.connect.grpc.binding.address": HOST, "spark.connect.grpc.binding.port": str(port)}
    flags = [word for name, value in {**options, **own}.items() for word in ("--conf", f"{name}={value}")]
    command = ["spark-submit", *flags, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    # of both settings of its heap, the daemons' is the one that counts
    with _running(folder / "connect", command, port, PYSPARK_PYTHON=str(python), SPARK_DAEMON_MEMORY="1g"):
        yield f"sc://{HOST}:{port}"


@contextmanager
def object_store() -> Iterator[str]:
    """Run an S3 store that has one bucket, `BUCKET`; yield its URL."""
    url = f"http://{HOST}:{(port := free_port())}"
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(lambda: _is_made(f"{url}/{BUCKET}"), "the store", pause=0.1)
            yield url
        finally:
            running.kill()


def store_options(store: str) -> dict[str, str]:
    """Return how delta-rs reaches an `object_store`."""
    return {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": store,
        "AWS_ALLOW_HTTP": "true",
    }


def _is_made(bucket: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(bucket, method="PUT"), timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def _running(log: Path, command: Sequence[str], port: int | None = None, **environ: str) -> Iterator[None]:
    """Run a program of Spark's beside the block, which begins once something listens on the port."""
    program, *arguments = command
    passed = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environ = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        **passed,
        **environ,
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.with_suffix(".log").open("w") as output,
        subprocess.Popen(
            [SPARK_HOME / "bin" / program, *arguments], cwd=log.parent, env=environ, stdout=output, stderr=output
        ) as running,
    ):
        try:
            if port is not None:
                wait_until(lambda: running.poll() is not None or _listens(port), program, seconds=STARTED_WITHIN)
            assert running.poll() is None, log.with_suffix(".log").read_text()
            yield
        finally:
            running.terminate()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
