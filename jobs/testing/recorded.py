"""Recorded feeds: the frames that a feed has landed, in a folder small enough to commit, and silver built from them.

A record is a bronze table of its own: ``_delta_log`` and one Parquet file, with every frame from the oldest that bronze
has up to a position. Frames are unaltered, at their positions, with marks and control frames; so is what bronze says of
frames that it dropped or lost. It has nothing of silver, and no settings: a record is built with those of the project,
as they are when the test runs. What the source sent is in it, personal data too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake
from pydantic import ValidationError

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.registry import open_feed
from silverfold.jobs.testing.silver import SilverFeed
from silverfold.pipelines.landing.batch import FRAME_BYTES
from silverfold.pipelines.landing.bronze import last_position, read_whole_frames
from silverfold.pipelines.landing.bronze_table import (
    SCHEMA,
    app_id,
    create,
    each_lost,
    note_lost,
    retained_from,
    retention_id,
)
from silverfold.pipelines.landing.dropped import dropped_of
from silverfold.pipelines.places import Place, places_of
from silverfold.pipelines.project import Project, open_project
from silverfold.pipelines.storage.compaction import NO_HOOKS
from silverfold.pipelines.store import naming_the_store, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_BYTES: Final = 1 << 20
"""Default size of a record in memory: its messages, and `FRAME_BYTES` for each frame. The file is smaller."""

_RECORD = WriterProperties(compression="ZSTD", compression_level=9)


def record(
    conf: str | Path, feed: str, folder: str | Path, *, last: int | None = None, max_bytes: int = MAX_BYTES
) -> int:
    """Copy the frames that a feed has landed into a new folder; return the position of the last one.

    Safe beside the feed's receiver and builds. Loads no Spark.

    Args:
        conf: Folder of the project's settings, as for `silverfold.open_project`; its warehouse has the frames.
        folder: Where the record is made (this module's docstring says what it holds). It must not exist yet.
        last: Position of the last frame to copy; by default the newest. An update that is torn there is never built.
        max_bytes: Maximum size of all frames in memory, where each counts 200 bytes beside its message.

    Raises:
        ConfigError: A setting or an argument is wrong: nothing has landed, or more than ``max_bytes``; then the message
            has the position up to which all fits.
        StoreUnavailable: The store does not answer.
    """
    settings = open_project(conf).settings
    _, opened = open_feed(feed, settings)
    source, target = places_of(settings).bronze(feed), _folder(folder, key="folder")
    newest = last_position(source, feed)
    if newest < 0:
        raise ConfigError(file="arguments", key="feed", found=feed, allowed=f"one of which {source} has frames")
    oldest = retained_from(source, feed)
    if last is not None and not _is_position(last, oldest, newest):
        raise ConfigError(file="arguments", key="last", found=last, allowed=f"a position from {oldest} to {newest}")
    if target.local is not None and target.local.exists():
        raise ConfigError(file="arguments", key="folder", found=str(folder), allowed="one that is not there yet")
    end = newest if last is None else last
    frames = pa.Table.from_batches(_at_most(max_bytes, read_whole_frames(source, last=end)), SCHEMA)
    _append(frames, source, target, opened, last=end)
    return end


def build_recorded(
    spark: SparkSession,
    conf: str | Path,
    feed: str,
    folder: str | Path,
    warehouse: str | Path,
    *,
    stops: Sequence[int] = (),
    may_hold: bool = False,
) -> SilverFeed:
    """Build the silver tables of a feed from a record of its frames. Runs Spark jobs.

    Args:
        spark: Session to use, which stays as it is.
        conf: Folder of the project's settings. The warehouse, ``storage_options``, ``spark`` and ``catalog``
            do not apply.
        folder: The record, as `record` made it; or any bronze folder of the feed, which is only read.
        warehouse: Folder for the tables, which has none of this feed yet.
        stops: Positions after which a build runs as if nothing more had landed, so that tables can be read as of then.
        may_hold: Whether tables may hold: `SilverFeed.faults` says why they do.

    Raises:
        AssertionError: A table holds.
        ConfigError: A setting or an argument is wrong.
    """
    project = Project(in_warehouse(open_project(conf).settings, warehouse), spark)
    _, opened = open_feed(feed, project.settings)
    source, target = _folder(folder, key="folder"), places_of(project.settings).bronze(feed)
    newest = last_position(source, feed)
    if newest < 0:
        raise ConfigError(file="arguments", key="folder", found=str(folder), allowed=f"a record of the feed {feed}")
    if open_table(target) is not None:
        found, allowed = str(warehouse), f"a folder without tables of the feed {feed}"
        raise ConfigError(file="arguments", key="warehouse", found=found, allowed=allowed)
    for stop in stops:
        if not _is_position(stop, 0, newest):
            raise ConfigError(file="arguments", key="stops", found=stop, allowed=f"positions from 0 to {newest}")
    first = 0
    for stop in sorted({*stops, newest}):
        frames = pa.Table.from_batches(read_whole_frames(source, first=first, last=stop), SCHEMA)
        _append(frames, source, target, opened, last=stop)
        built, first = project.build(feed), stop + 1
    faults = {table.table: table.fault for table in built.feeds[0].tables if table.fault is not None}
    for table, fault in faults.items() if not may_hold else ():
        raise AssertionError(f"table {table}, built from {folder}, holds: {fault.error_class}: {fault.reason}")
    return SilverFeed(project, feed, faults)


def _is_position(value: object, first: int, last: int) -> bool:
    return type(value) is int and first <= value <= last


def in_warehouse(settings: Settings, warehouse: str | Path) -> Settings:
    """Return a project's settings for tables in a local folder, in no catalog, and for the session that a test has.

    Raises:
        ConfigError: Tables cannot be in a folder of this name.
    """
    feeds = {name: feed.model_copy(update={"catalog": ""}) for name, feed in settings.feeds.items()}
    here = {"warehouse": _folder(warehouse, key="warehouse").url, "storage_options": {}, "spark": {}, "feeds": feeds}
    return settings.model_copy(update=here)


def _folder(folder: str | Path, *, key: str) -> Place:
    """Return the place of a folder. Raises ConfigError for one that no warehouse can be, and for a URL."""
    allowed = "a folder on this machine"
    if "://" not in str(folder):
        try:
            Settings(warehouse=str(folder))
        except ValidationError as error:
            allowed = error.errors()[0]["msg"].removeprefix("Value error, ")
        else:
            return Place(str(Path(folder).absolute()))
    raise ConfigError(file="arguments", key=key, found=str(folder), allowed=allowed)


def _at_most(max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of frames. Raises ConfigError when they become too large."""
    size = 0
    for batch in batches:
        sizes = size + np.cumsum(pc.binary_length(batch["body"]).to_numpy() + FRAME_BYTES)
        fitting = int(np.searchsorted(sizes, max_bytes, side="right"))
        if fitting < batch.num_rows:
            position = batch["frame_seq"][fitting].as_py() - 1
            allowed = f"more, or last={position}: the frames after that position do not fit"
            if fitting == 0 and size == 0:
                allowed = f"at least {sizes[0]}, which the first frame takes"
            raise ConfigError(file="arguments", key="max_bytes", found=max_bytes, allowed=allowed)
        size = int(sizes[-1])
        yield batch


def _append(frames: pa.Table, source: Place, target: Place, feed: Feed, *, last: int) -> None:
    """Append frames to a copy of bronze, in one commit with its position, and what bronze dropped and lost."""
    table = create(target)
    for first, end in each_lost(source):
        if first <= last:
            note_lost(table, first, min(end, last))
    transactions = [Transaction(app_id(feed.name), last)]
    if floor := retained_from(source, feed.name):
        transactions.append(Transaction(retention_id(feed.name), floor))
    for name in feed.tables:
        dropped = dropped_of(source, feed.name, name)
        if dropped.complete is not None:
            transactions += dropped.transactions(feed.name, name)
    with naming_the_store(target):
        write_deltalake(
            table,
            frames,
            mode="append",
            writer_properties=_RECORD,
            commit_properties=CommitProperties(app_transactions=transactions),
            post_commithook_properties=NO_HOOKS,
        )
