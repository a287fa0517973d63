"""Puts the rows of one Delta table in another one's stead, in one commit that fails if that table has moved meanwhile.

A table moves by the commits of builds. Before the swap's commit begins, a task of the commit itself looks whether the
table is where it was; from then on, Delta fails whichever of two commits comes second, since both record a position. A
cut that was begun before the swap and comes to its commit after it is dropped by Delta: its rows were made from those
that are gone, and the swap records what no such cut can exceed (`pipelines.cuts.to_record`).

What is beside the table (`pipelines.beside`) is written before; the table's commit says which versions count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from conf.errors import ApplyError, Overtaken
from pipelines.beside import was_written_on
from pipelines.commit_note import CommitNote
from pipelines.cuts import from_commit, from_record, recorded_in, to_record
from pipelines.places import Place
from pipelines.store import naming_the_store, open_table
from transforms.merge import allow_columns, overwrite, plainly_typed, table_properties
from transforms.spark_errors import named_errors

_RECENT_COMMITS = 20
"""How far back to look for our own commit of just now: only those of maintenance and of other builders are newer."""

_MOVED = "SILVERFOLD_TABLE_MOVED"
"""In the error of a query: the table is not where it was."""


class TableMoved(Exception):
    """Another process has written the table meanwhile. Nothing is swapped, or more is to be done."""


class Live(NamedTuple):
    """A table that is to be written, where it is, and whose position its log records."""

    place: Place
    app: str
    recorded: int
    """What its log records (`pipelines.cuts.to_record`), which must still be so; -1 when it is nothing, or is gone."""


def swap_in(rows: DataFrame, note: CommitNote, live: Live) -> int:
    """Put the rows in the old table's stead, in one commit; return its version. Runs Spark jobs.

    Raises:
        TableMoved: Nothing was committed, or what was is followed by more to do.
        ApplyError: Spark or Delta refused. The old table stays.
    """
    before = version_of(live.place)
    with _naming_moves(note.table):
        _overwrite(rows, note, live)
    return _found(note, live, before)


def replace_beside(rows: DataFrame, place: Place, metadata: str, *, table: str) -> int:
    """Make one of the tables beside a table hold just these rows, in one commit; return its version. Runs Spark jobs.

    None of them counts before the table's own commit names that version (`pipelines.beside`).

    Args:
        metadata: Text for the commit's ``userMetadata``, unlike any other one's that is written meanwhile.

    Raises:
        Overtaken: Another process wrote it at the same moment.
        ApplyError: Spark or Delta refused. Nothing was committed.
    """
    before = version_of(place)
    with named_errors(table):
        overwrite(rows, place.url, metadata=metadata)
    if before >= 0 and version_of(place) == before:  # no rows have replaced no rows: Delta had nothing to commit
        return before
    _, version = _committed(place, metadata, table=table)
    return version


def merged(place: Place, metadata: str, *, before: DeltaTable | None, table: str) -> int:
    """Return the version that our commit made of one of the tables beside a table, by changing the rows it had.

    Args:
        before: It as it was read, and what was to be changed was found by; None where there was none.

    Raises:
        Overtaken: Another process wrote other rows meanwhile, maybe to take back what it believed a dead one left.
    """
    newest, version = _committed(place, metadata, table=table)
    if not was_written_on(place, newest, version, before):
        raise Overtaken(f"another process wrote {place} meanwhile", table=table)
    return version


def _committed(place: Place, metadata: str, *, table: str) -> tuple[DeltaTable, int]:
    """Return the table as it is, and the version that our commit with some ``userMetadata`` made, the newest one.

    Raises:
        Overtaken: It is not among the recent ones, or the table is gone: another process was there.
    """
    newest = open_table(place)
    if newest is None:
        raise Overtaken(f"another process removed {place} meanwhile", table=table)
    with naming_the_store(place):
        commits = newest.history(_RECENT_COMMITS)
    found = next((int(each["version"]) for each in commits if each.get("userMetadata") == metadata), None)
    if found is None:
        raise Overtaken(f"another process wrote {place} meanwhile", table=table)
    return newest, found


def version_of(place: Place) -> int:
    """Return a table's newest version; -1 when there is none. Raises StoreUnavailable."""
    opened = open_table(place)
    return -1 if opened is None else opened.version()


@dataclass(frozen=True)
class _Unmoved:
    """A part of a query that yields no row, and fails if a table has moved."""

    live: Live

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = recorded_in(open_table(self.live.place), self.live.app)
            if found != self.live.recorded:
                raise RuntimeError(f"{_MOVED}: {found}")
        return iter(())


def unless_moved(rows: DataFrame, live: Live) -> DataFrame:
    """Return rows that fail to be written if their table moves before it: a look at it is part of the query. Lazy.

    Delta itself fails the later of two commits that record a position, from the moment on when it has begun to write.
    """
    return rows.unionByName(rows.sparkSession.range(1).mapInArrow(_Unmoved(live), rows.schema))


def is_of_a_move(error: ApplyError) -> bool:
    """Tell whether rows could not be written because their table has moved (`unless_moved`)."""
    return _MOVED in str(error.__cause__)


def _overwrite(rows: DataFrame, note: CommitNote, live: Live) -> None:
    _, generation = from_record(live.recorded)
    number = to_record(note.last_position, generation + 1)
    options = {"userMetadata": note.to_json(), "txnAppId": live.app, "txnVersion": str(number)}
    options |= {"overwriteSchema": "true", **table_properties(rows.sparkSession, rows.schema)}
    allow_columns(rows.sparkSession, live.place.url, rows.schema)
    rows = plainly_typed(unless_moved(rows, live))
    rows.write.format("delta").mode("overwrite").options(**options).save(live.place.url)


@contextmanager
def _naming_moves(table: str) -> Iterator[None]:
    try:
        with named_errors(table):
            yield
    except Overtaken as error:
        raise TableMoved from error
    except ApplyError as error:
        if is_of_a_move(error):
            raise TableMoved from error
        raise


def _found(note: CommitNote, live: Live, before: int) -> int:
    """Return the version our commit made. Raises TableMoved where it is not there, or cuts of others came between."""
    opened = open_table(live.place)
    if opened is None or opened.version() <= before:
        raise TableMoved
    with naming_the_store(live.place):
        newest_first = opened.history(opened.version() - before)
    ours = next((c["version"] for c in newest_first if c.get("userMetadata") == note.to_json()), None)
    between = [from_commit(commit) for commit in newest_first if ours is not None and before < commit["version"] < ours]
    if ours is None or any(cut is not None for cut in between):
        raise TableMoved
    return int(ours)
