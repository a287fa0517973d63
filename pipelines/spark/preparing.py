"""Prepare a machine for jobs that start Spark: fetch Delta's JARs, and archive Spark's classes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.spark.class_archive import archive_path, making_archive, using_archive
from silverfold.pipelines.spark.jars import CLASS_PATH, jar_options
from silverfold.pipelines.spark.java import check_java
from silverfold.pipelines.spark.session import own_session, public_options, start_spark, stop_spark
from silverfold.transforms.changes import from_arrow
from silverfold.transforms.merge import AT_HAND, OP, POSITION, Recorded, append, merge
from silverfold.transforms.sql import path_table

if TYPE_CHECKING:
    from silverfold.conf.model import Settings

_NEW: Final = "new-"
"""Beginning of the names of folders in which archives are made."""

_ABANDONED: Final = 3600.0
"""Seconds after which such a folder is another call's that was killed."""


@dataclass(frozen=True)
class Prepared:
    """The result of preparing.

    Args:
        archive: Path of the archive.
        size: Size of the archive, in bytes.
        seconds: Time of a Spark start with it.
    """

    archive: Path
    size: int
    seconds: float


def prepare(settings: Settings) -> Prepared:
    """Fetch what is missing, and make the archive anew. Starts Spark two or three times. Safe to repeat.

    The archive is installed once a Spark has started with it. Jobs that run meanwhile keep the one they have.

    Raises:
        SparkUnavailable: Spark does not start, without the archive or with it.
        StoreUnavailable: The archive cannot be written.
    """
    options = public_options(settings)
    if CLASS_PATH not in jar_options(options):
        _time_start(settings, {})
    options |= jar_options(options)
    archive = archive_path(options, check_java(os.environ), os.environ)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(archive.parent)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_NEW) as folder:
            made = Path(folder, archive.name)
            _time_start(settings, making_archive(settings.spark_options, made))
            seconds = _time_start(settings, using_archive(settings.spark_options, made))
            size = made.stat().st_size
            made.replace(archive)
    except OSError as error:
        raise StoreUnavailable(f"{archive.parent}: {error}") from error
    return Prepared(archive, size, seconds)


def _remove_abandoned(folder: Path) -> None:
    """Remove what earlier calls left that were killed: nothing takes an hour here."""
    for left in folder.glob(f"{_NEW}*"):
        with suppress(OSError):  # another process removes it
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


def _time_start(settings: Settings, options: dict[str, str]) -> float:
    """Start Spark with more options, apply a few rows, and stop it; return the seconds of the start."""
    began = monotonic()
    session = start_spark(
        settings.model_copy(update={"spark": {**settings.spark, **options}}), app="silverfold prepare"
    )
    seconds = monotonic() - began
    try:
        with tempfile.TemporaryDirectory() as folder:
            _apply_a_few_rows(own_session(session), f"{folder}/t")
    finally:
        stop_spark(session)
    return seconds


def _apply_a_few_rows(session: SparkSession, path: str) -> None:
    """Do the work of a small cut, to load the classes that are to be archived."""
    rows = pa.table({OP: ["insert"], POSITION: [1], "k": [1], "v": ["a"]})
    kind = from_arrow_schema(rows.schema)
    append(from_arrow(session, rows, kind).drop(OP), path, recorded=Recorded("prepare", 1))
    for position in (2, 3):
        newer = rows.set_column(1, POSITION, pa.array([position]))
        recorded = Recorded("prepare", position)
        merge(from_arrow(session, newer, kind), path_table(path), keys=["k"], recorded=recorded, options=AT_HAND)
    session.read.format("delta").load(path).collect()
