"""Replace the rows of one Delta table with those of another, in a commit that fails if the first has changed.

A table changes by the commits of builds. Before the swap's commit begins, a task of the commit itself checks the
table's position. From then on Delta fails the second of two commits, since both record a position. A cut begun before
the swap that commits after it is dropped by Delta, because the swap records a value no such cut can exceed
(`pipelines.storage.cuts.to_record`). The rows of such a cut were made from rows that are gone.

Companion tables (`pipelines.storage.companions`) are written first; the silver commit records which versions count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from silverfold.conf.errors import ApplyError, Overtaken
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.companions import was_written_on
from silverfold.pipelines.storage.cuts import from_commit, from_record, recorded_in, to_record
from silverfold.pipelines.store import newest_commits, open_table, own_commit
from silverfold.transforms.merge import allow_columns, commented, overwrite, plainly_typed, table_properties
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import quoted

_RECENT_COMMITS = 20
"""Number of commits to search for our own: only maintenance and other builders can have committed since."""

_MOVED = "SILVERFOLD_TABLE_MOVED"
"""Marker in a query error: the table has changed."""


class TableMoved(Exception):
    """Another process has changed the table meanwhile. Nothing was swapped, or later cuts need another attempt."""


class Live(NamedTuple):
    """A table about to be written, and the position value its log records."""

    place: Place
    app: str
    recorded: int
    """Value in its log (`cuts.to_record`), which must not have changed; -1 for none, or without a table."""


def swap_in(rows: DataFrame, note: CommitNote, live: Live) -> int:
    """Replace the old table's rows in one commit; return its version. Runs Spark jobs.

    Raises:
        TableMoved: Nothing was committed, or other cuts came between and need another attempt.
        ApplyError: Spark or Delta refused. The old table remains.
    """
    before = version_of(live.place)
    with _naming_moves(note.table):
        _overwrite(rows, note, live)
    return _swapped_version(note, live, before)


def replace_companion(rows: DataFrame, place: Place, metadata: str, *, table: str) -> int:
    """Replace the rows of a companion table in one commit; return its version. Runs Spark jobs.

    None of them count until the silver table's commit names that version (`pipelines.storage.companions`).

    Args:
        metadata: Text for the commit's ``userMetadata``, unique among concurrent commits.

    Raises:
        Overtaken: Another process wrote it at the same moment.
        ApplyError: Spark or Delta refused. Nothing was committed.
    """
    old = open_table(place)
    before = -1 if old is None else old.version()
    with named_errors(table):
        overwrite(_with_comments(rows, old), place.url, metadata=metadata)
    if before >= 0 and version_of(place) == before:  # no rows replaced no rows: Delta had nothing to commit
        return before
    _, version = _find_commit(place, metadata, table=table)
    return version


def merged_version(place: Place, metadata: str, *, before: DeltaTable | None, table: str) -> int:
    """Return the version that our commit made of a companion table by changing its rows.

    Args:
        before: The table as it was read to find the rows to change; None if it did not exist.

    Raises:
        Overtaken: Another process wrote other rows meanwhile, maybe to undo what it took for the writes of a dead one.
    """
    newest, version = _find_commit(place, metadata, table=table)
    if not was_written_on(place, newest, version, before):
        raise Overtaken(f"another process wrote {place} meanwhile", table=table)
    return version


def _find_commit(place: Place, metadata: str, *, table: str) -> tuple[DeltaTable, int]:
    """Return the table at its newest version, and the version of our newest commit with the given ``userMetadata``.

    Raises:
        Overtaken: It is not among the recent commits, or the table is gone: another process intervened.
    """
    newest = open_table(place)
    if newest is None:
        raise Overtaken(f"another process removed {place} meanwhile", table=table)
    found = own_commit(newest_commits(place, newest, _RECENT_COMMITS), userMetadata=metadata)
    if found is None:
        raise Overtaken(f"another process wrote {place} meanwhile", table=table)
    return newest, int(found["version"])


def version_of(place: Place) -> int:
    """Return a table's newest version; -1 if there is none. Raises StoreUnavailable."""
    opened = open_table(place)
    return -1 if opened is None else opened.version()


@dataclass(frozen=True)
class _Unmoved:
    """Part of a query that yields no row, and fails if a table has changed."""

    live: Live

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = recorded_in(open_table(self.live.place), self.live.app)
            if found != self.live.recorded:
                raise RuntimeError(f"{_MOVED}: {found}")
        return iter(())


def unless_moved(rows: DataFrame, live: Live) -> DataFrame:
    """Return rows whose write fails if their table changes first: a check is part of the query. Lazy.

    Once the write has begun, Delta itself fails the later of two commits that record a position.
    """
    return rows.unionByName(rows.sparkSession.range(1).mapInArrow(_Unmoved(live), rows.schema))


def failed_by_move(error: ApplyError) -> bool:
    """Return whether a write failed because its table has changed (`unless_moved`)."""
    return _MOVED in str(error.__cause__)


def _overwrite(rows: DataFrame, note: CommitNote, live: Live) -> None:
    _, generation = from_record(live.recorded)
    number = to_record(note.last_position, generation + 1)
    options = {"userMetadata": note.to_json(), "txnAppId": live.app, "txnVersion": str(number)}
    options |= {"overwriteSchema": "true", **table_properties(rows.sparkSession, rows.schema)}
    allow_columns(rows.sparkSession, live.place.url, rows.schema)
    rows = plainly_typed(_with_comments(unless_moved(rows, live), open_table(live.place)))
    rows.write.format("delta").mode("overwrite").options(**options).save(live.place.url)


def _with_comments(rows: DataFrame, old: DeltaTable | None) -> DataFrame:
    """Return rows with the comments that a table's columns have, which an overwrite would drop. Lazy."""
    fields = [] if old is None else old.schema().fields
    comments = {field.name: field.metadata["comment"] for field in fields if field.metadata.get("comment")}
    if not comments:
        return rows
    return rows.select(*(commented(F.col(quoted(name)), name, comments.get(name, "")) for name in rows.columns))


@contextmanager
def _naming_moves(table: str) -> Iterator[None]:
    try:
        with named_errors(table):
            yield
    except Overtaken as error:
        raise TableMoved from error
    except ApplyError as error:
        if failed_by_move(error):
            raise TableMoved from error
        raise


def _swapped_version(note: CommitNote, live: Live, before: int) -> int:
    """Return the version our commit made. Raises TableMoved if it is missing, or cuts of others came between."""
    opened = open_table(live.place)
    if opened is None or opened.version() <= before:
        raise TableMoved
    newest_first = newest_commits(live.place, opened, opened.version() - before)
    ours = own_commit(newest_first, userMetadata=note.to_json())
    if ours is None:
        raise TableMoved
    between = [from_commit(commit) for commit in newest_first if before < commit["version"] < ours["version"]]
    if any(cut is not None for cut in between):
        raise TableMoved
    return int(ours["version"])
