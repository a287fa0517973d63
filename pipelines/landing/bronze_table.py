"""The bronze table of a feed: every frame as it was received, in landing order.

One append-only Delta table per feed, written by `pipelines.landing.writer`. Its log records the position reached in the
same commit as the rows: ``Transaction("receive/<feed>", last frame_seq)``. `pipelines.landing.bronze` reads it.
Retention (`pipelines.upkeep.retention`) drops the oldest frames, and records in the same commit the position from which
all are retained: ``Transaction("retain/<feed>", first frame_seq retained)``.
"""

from __future__ import annotations

import json
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from silverfold.conf.errors import ConfigError
from silverfold.pipelines.landing.ranges import merge_adjacent
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import create_table, naming_the_store, open_own, open_table

SCHEMA = pa.schema(
    [
        pa.field("frame_seq", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("stream", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("boundary", pa.string(), nullable=False),
        pa.field("source_position", pa.string()),
        pa.field("body", pa.binary(), nullable=False),
    ]
)

_CONFIGURATION = {
    "delta.appendOnly": "true",
    # Every commit lists the log. Five commits a second for the default of 30 days would be 13 million files. Nothing
    # here uses time travel by version: positions are the history.
    "delta.logRetentionDuration": "interval 30 minutes",
}


_LOST = "silverfold.lost"
"""Table property: ranges of positions that bronze lost, in JSON (`pipelines.landing.writer`)."""


def app_id(feed: str) -> str:
    """Return the application id under which the table's log records the feed's position."""
    return f"receive/{feed}"


def retention_id(feed: str) -> str:
    """Return the application id under which the log records the position from which frames are retained."""
    return f"retain/{feed}"


def each_lost(place: Place) -> list[tuple[int, int]]:
    """Return first and last position of each loss, earliest first; positions lost twice are listed once.

    Raises StoreUnavailable.
    """
    with naming_the_store(place, of_its_log=True):
        table = open_bronze(place)
        known = [] if table is None else _lost_in(table)
    apart, end = list[tuple[int, int]](), -1
    for first, last in sorted(known, key=itemgetter(1)):
        if last > end:
            apart.append((max(first, end + 1), last))
            end = last
    return apart


def lost_from(place: Place) -> list[tuple[int, int]]:
    """Return the positions permanently lost from bronze, as first and last of each range, ascending.

    Ranges do not touch. Raises StoreUnavailable.
    """
    return merge_adjacent(each_lost(place))


def note_lost(table: DeltaTable, first: int, last: int) -> None:
    """Record in the table's properties that positions are lost, both inclusive. Safe to repeat."""
    known = {*_lost_in(table), (first, last)}
    table.alter.set_table_properties({_LOST: json.dumps(sorted(known))}, raise_if_not_exists=False)


def _lost_in(table: DeltaTable) -> list[tuple[int, int]]:
    return [(first, last) for first, last in json.loads(table.metadata().configuration.get(_LOST, "[]"))]


def retained_from(place: Place, feed: str) -> int:
    """Return the position from which every frame is retained; below it only some control frames are. 0 if all are.

    Raises:
        StoreUnavailable: The table's log cannot be read now.
    """
    with naming_the_store(place, of_its_log=True):
        table = open_bronze(place)
        found = None if table is None else table.transaction_version(retention_id(feed))
    return 0 if found is None else found


def last_landed(table: DeltaTable, feed: str) -> int:
    """Return the position of the last frame that landed; -1 if none has.

    This is the recorded position, except for a table restored to an older version. There Delta retains the later
    record, so the last frame present counts, or the last one dropped or recorded as lost.
    """
    recorded = table.transaction_version(app_id(feed))
    if recorded is None:
        return -1
    ends = actions(table)["max.frame_seq"]
    if ends.null_count:  # a file lacks statistics
        return int(recorded)
    dropped = table.transaction_version(retention_id(feed)) or 0
    known = [*(last for _, last in _lost_in(table)), dropped - 1]
    there = [pc.max(ends).as_py()] if len(ends) else []
    return int(min(recorded, max(known + there)))


def open_bronze(place: Place) -> DeltaTable | None:
    """Return the bronze table; None if it does not exist. Raises StoreUnavailable."""
    return open_own(place, SCHEMA, "a bronze table")


def create(place: Place) -> DeltaTable:
    """Open the feed's bronze table, creating it if needed.

    Raises:
        ConfigError: Another table exists at the place.
        StoreUnavailable: The store does not answer.
    """
    table = open_table(place) or create_table(place, SCHEMA, _CONFIGURATION)
    columns = pa.schema(table.schema()).names
    if columns != SCHEMA.names:
        raise ConfigError(
            file=place.url, key="columns", found=columns, allowed=f"a bronze table: {', '.join(SCHEMA.names)}"
        )
    return table


def actions(table: DeltaTable) -> pa.Table:
    """Return one row for each of the table's files: ``path``, and statistics such as ``max.frame_seq``."""
    # not pa.table(): it loads pandas, which takes longer than all other imports of a receiver
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def last_epoch(table: DeltaTable) -> int:
    """Return the last landed epoch, from the statistics in the table's log; 0 if nothing has landed."""
    last = pc.max(actions(table)["max.epoch"]).as_py()
    return 0 if last is None else int(last)
