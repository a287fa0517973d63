"""Ship our packages to the workers of a cluster, and check that they can work, before the first cut needs them."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

from pyspark.sql import SparkSession, is_remote

from silverfold.conf.errors import ApplyError, SparkUnavailable
from silverfold.connectors.registry import CONNECTORS, find_connector
from silverfold.pipelines.logs import get_logger
from silverfold.transforms.spark_errors import named_errors

if TYPE_CHECKING:
    import pyarrow as pa

_HOME: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("conf", "transforms", "connectors", "pipelines")
"""Our packages that decoders import."""

WITHIN: Final = 600.0
"""Seconds for a first task. A cluster may have to start machines for it."""

_LOG_INTERVAL: Final = 30.0
"""Seconds between log messages while waiting."""


def ship_packages(session: SparkSession) -> None:
    """Send our own packages, as they are here, to remote workers; further packages must be installed there.

    They take precedence over installed ones, so driver and workers never run different versions.

    Raises:
        SparkUnavailable: Spark does not take them.
    """
    if is_local(session):
        return
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.write(_HOME / "__init__.py", f"{_HOME.name}/__init__.py")
        for package in _PACKAGES:
            for file in sorted((_HOME / package).rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    archive.write(file, file.relative_to(_HOME.parent))
    folder = Path(tempfile.mkdtemp(prefix="silverfold-"))  # Spark serves the file for as long as it runs
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # a server takes one file of a name, for all its sessions
    file = folder / f"silverfold-{sha256(packed.getvalue()).hexdigest()[:16]}.zip"
    file.write_bytes(packed.getvalue())
    try:
        with named_errors("our packages"):
            if is_remote():
                session.addArtifacts(str(file), pyfile=True)
            else:
                session.sparkContext.addPyFile(str(file))
    except ApplyError as error:
        raise SparkUnavailable(str(error)) from error


def is_local(session: SparkSession) -> bool:
    """Return whether tasks run in this process's own JVM."""
    return not is_remote() and re.match(r"local(\[|$)", str(session.sparkContext.master)) is not None


def await_workers(session: SparkSession, *, within: float = WITHIN) -> None:
    """Run a task that imports what decoders do, and the extras that are here, if tasks run on other machines.

    A job whose executors never come would wait for ever, without a message.

    Raises:
        SparkUnavailable: No executor came in time, or it lacks Python or a package. The message says which.
    """
    if is_local(session):
        return
    packages = [each for name in CONNECTORS for each in find_connector(name).packages if find_spec(each)]

    def import_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in CONNECTORS:
            find_connector(name)
        for package in packages:
            import_module(package)
        yield from batches

    rows = session.range(1).mapInArrow(import_all, "id bigint")
    with ThreadPoolExecutor(1) as beside:
        task = beside.submit(rows.collect)
        try:
            _await_task(task, within)
        except TimeoutError:
            asked = "are there any, and can they reach this machine?"
            raise SparkUnavailable(f"no executor has come to work in {within:g} seconds: {asked}") from None
        finally:
            if not task.done():
                _cancel(session)


def _await_task(task: Future[Any], within: float) -> None:
    for waited in range(int(within // _LOG_INTERVAL)):
        try:
            return _check_result(task, _LOG_INTERVAL)
        except TimeoutError:
            get_logger("spark").warning("no executor has come yet", seconds=(waited + 1) * _LOG_INTERVAL)
    return _check_result(task, within % _LOG_INTERVAL)


def _check_result(task: Future[Any], seconds: float) -> None:
    try:
        with named_errors("a first task"):
            task.result(seconds)
    except ApplyError as error:
        raise SparkUnavailable(f"{error} (conf/README.md says how workers get what they need)") from error


def _cancel(session: SparkSession) -> None:
    if is_remote():
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()
