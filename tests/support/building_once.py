"""Builds a feed of any connector once, as a new process would, and reads silver back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Connector, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_once(
    spark: SparkSession, warehouse: Path, connector: Connector, feed: Feed, *, max_frames: int = 200_000
) -> dict[str, SilverfoldError]:
    """Apply everything that has landed; return the error of each held table."""
    from silverfold.pipelines.applying.build import FeedBuild  # noqa: PLC0415 - tests without Spark use the rest
    from tests.support.running import run_once  # noqa: PLC0415 - as above

    settings = load_settings(None, "local", {})
    build = settings.build.model_copy(update={"cut": CutLimits(max_frames=max_frames)})
    settings = settings.model_copy(update={"warehouse": str(warehouse), "build": build})
    return run_once(FeedBuild.open(lambda: spark, settings, connector, feed))


def all_rows(opened: DeltaTable | None) -> list[dict[str, Any]]:
    """Return a table's rows, read by delta-rs."""
    assert opened is not None
    found = pa.table(QueryBuilder().register("silver", opened).execute("SELECT * FROM silver").read_all())
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
