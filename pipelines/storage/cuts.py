"""The feed's list of applied cuts: one row for each, in the table ``_silverfold/<feed>/cuts``.

It maps the Delta versions of a silver table to source positions, and records what each cut did. It is derived data:
everything in it is in the logs of the silver tables (`CommitNote`). Losing it, or a crash between a silver commit and
its row, loses nothing: `restore` adds what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from silverfold.conf.errors import StoreUnavailable
from silverfold.connectors.base import Connector, Feed, TableKind
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.row_settings import describe_difference, differing, row_settings
from silverfold.pipelines.store import emptied_commits, is_damaged, naming_the_store, newest_commits, open_table

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("delta_version", pa.int64()),
        ("epoch", pa.int32()),
        ("first_position", pa.int64()),
        ("last_position", pa.int64()),
        ("replaced", pa.bool_()),
        ("updates", pa.int64()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("ignored", pa.int64()),
        ("landed_at", pa.timestamp("us", "UTC")),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("seconds", pa.float64()),
        ("notes", pa.string()),
    ]
)

FAILED_RULE: Final = "failed."
"""Beginning of the names of notes that count the rows that fail a rule; the rule's name follows."""

_GENERATION = 1 << 48
"""More than any position."""

_TICK = timedelta(microseconds=1)

_OVERLAP = 100
"""Number of commits before the newest known cut to read again."""


@dataclass(frozen=True, kw_only=True)
class CutRow:
    """One applied cut.

    Args:
        delta_version: Version of the silver table that the cut made.
        first_position: Position of the first frame of its first update.
        last_position: Position the table has reached.
        committed_at: Time of the commit, from the silver table's log; always later than that of the previous cut,
            whatever the clock.
        seconds: Time the cut took, planning and committing included; for a restored row, the merge alone.
    """

    table: str
    delta_version: int
    epoch: int
    first_position: int
    last_position: int
    replaced: bool
    updates: int
    inserted: int
    updated: int
    deleted: int
    ignored: int
    landed_at: datetime | None
    committed_at: datetime
    seconds: float | None
    notes: Mapping[str, int]


_SHARED = {field.name for field in fields(CommitNote)} & {field.name for field in fields(CutRow)} - {"notes", "ignored"}


def app_id(feed: str, table: str) -> str:
    """Return the ``txnAppId`` under which a silver table's log records the position reached."""
    return f"apply/{feed}/{table}"


def history_id(feed: str, table: str) -> str:
    """Return the same for the table's history."""
    return f"history/{feed}/{table}"


def tombstones_id(feed: str, table: str) -> str:
    """Return the same for the table's tombstones."""
    return f"tombstones/{feed}/{table}"


def position_reached(places: Places, feed: str, table: str) -> int:
    """Return the position a silver table has reached, from its own log; -1 for none. Raises StoreUnavailable."""
    return position_in(open_table(places.silver(feed, table)), app_id(feed, table))


def position_in(opened: DeltaTable | None, app: str) -> int:
    """Return the same for an open table; -1 if there is none. Raises StoreUnavailable."""
    return from_record(recorded_in(opened, app))[0]


def recorded_in(opened: DeltaTable | None, app: str) -> int:
    """Return the value in a table's log under a ``txnAppId`` (`to_record`); -1 if none. Raises StoreUnavailable."""
    if opened is None:
        return -1
    with naming_the_store(opened.table_uri):
        found = opened.transaction_version(app)
    return -1 if found is None else found


def from_record(recorded: int) -> tuple[int, int]:
    """Return position and generation of a recorded value (`to_record`); -1 and 0 if there is none."""
    return (recorded % _GENERATION, recorded // _GENERATION) if recorded >= 0 else (-1, 0)


def to_record(position: int, generation: int) -> int:
    """Return the ``txnVersion`` that records a position in a table rebuilt ``generation`` times.

    It exceeds that of any cut begun before. Delta drops such a cut, whose rows were made from rows that are gone.
    """
    return generation * _GENERATION + position


def newest_note(opened: DeltaTable | None, *, until: int | None = None) -> CommitNote | None:
    """Return the note of the newest cut in a table's log; None without one. Raises StoreUnavailable.

    Args:
        opened: The table at its newest version: for others, delta-rs reports wrong version numbers in the history.
        until: The version that counts as the newest.
    """
    return next(newest_notes(opened, until=until), None)


def newest_notes(opened: DeltaTable | None, *, until: int | None = None) -> Iterator[CommitNote]:
    """Yield the notes of the cuts in a table's log, newest first, as `newest_note` does."""
    if opened is None:
        return
    known = (commit for commit in _commits(opened) if until is None or commit["version"] <= until)
    found = (CommitNote.from_json(commit.get("userMetadata")) for commit in known)
    yield from (note for note in found if note is not None)


def _commits(opened: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Yield the commits in a table's log, newest first, and read more only as they are asked for."""
    seen = 0
    for limit in (1, _OVERLAP, None):  # commits of maintenance may be newer than the newest cut
        commits = newest_commits(opened.table_uri, opened, limit)
        yield from commits[seen:]
        seen = len(commits)


def built_otherwise(places: Places, connector: Connector, feed: Feed, table: str, keys: Sequence[str]) -> str | None:
    """Return a message on a setting whose value gives other rows than the table was built with; None if all match.

    Args:
        keys: Today's keys, the source's own where none are set; empty if unknown.

    Raises:
        StoreUnavailable: The table's log cannot be read now.
    """
    note = newest_note(open_table(places.silver(feed.name, table)))
    if (other_table := built_as_another(note, feed.name, table)) is not None:
        return other_table
    if note is None or note.settings is None:
        return None
    now = row_settings(
        connector, feed, table, keys if connector.table_kind(feed.tables[table]) is TableKind.STATE else ()
    )
    other = differing(note.settings, now)
    return describe_difference(other[0], note.settings, now, what="the table") if other else None


def built_as_another(note: CommitNote | None, feed: str, table: str) -> str | None:
    """Return a message that a note is of another table, whose folder was moved here; None if it is not."""
    if note is None or (note.feed, note.table) == (feed, table):
        return None
    return f"it was built as table {note.table} of feed {note.feed}"


def restored_since(opened: DeltaTable) -> str | None:
    """Return a message that somebody took a table back to an older version since its newest cut; None if nobody did.

    Its recorded position stays that of the newest cut. Raises StoreUnavailable.

    Args:
        opened: The table at its newest version.
    """
    for commit in _commits(opened):
        if CommitNote.from_json(commit.get("userMetadata")) is not None:
            return None
        if commit.get("operation") == "RESTORE":
            return f"version {commit['version']} restored older rows, and later cuts are not applied again"
    return None


def emptied_since_whole(places: Places, feed: str, table: str) -> int | None:
    """Return the newest version whose commit is an empty file, as a power cut leaves: rows may be missing.

    None if there is none, or a later snapshot or rebuild has replaced the table. Raises StoreUnavailable.
    """
    emptied = emptied_commits(places.silver(feed, table))
    if not emptied or any(
        cut.delta_version > emptied[-1] for cut in read_cuts(places, feed, table=table) if cut.replaced
    ):
        return None
    return emptied[-1]


def record(places: Places, feed: str, row: CutRow) -> None:
    """Add one cut to the list. Raises StoreUnavailable."""
    ledger.append(places.cuts(feed), SCHEMA, [_to_ledger(row)])


def read_cuts(places: Places, feed: str, *, table: str | None = None, newest: int | None = None) -> list[CutRow]:
    """Return applied cuts, oldest first. Raises StoreUnavailable.

    Args:
        table: Only those of this silver table.
        newest: Return at most this many, the newest.
    """
    where = None if table is None else f'"table" = {ledger.sql_text(table)}'
    found = ledger.read(places.cuts(feed), SCHEMA, where=where)
    return _rows(found, newest)


def last_cuts(places: Places, feed: str) -> Mapping[str, CutRow]:
    """Return the last cut of each silver table that has one. Raises StoreUnavailable."""
    times = ledger.read(places.cuts(feed), SCHEMA, columns=("table", "committed_at"))
    if not times.num_rows:
        return {}
    earliest = pc.min(times.group_by("table").aggregate([("committed_at", "max")])["committed_at_max"])
    where = f"committed_at >= {ledger.sql_text(earliest.as_py().isoformat())}"
    return {row.table: row for row in _rows(ledger.read(places.cuts(feed), SCHEMA, where=where))}


def restore(places: Places, feed: str, tables: Sequence[str]) -> int:
    """Add cuts that are in the silver tables' logs but missing from the list; return their number.

    Safe to repeat. For a table without cuts in the list, its whole log is read. Otherwise the commits after the newest
    known cut are read, and some before it, which may be missing if the list could not be written for a moment. A
    damaged list is made anew.

    Raises:
        StoreUnavailable: A table's store cannot be read or written now.
    """
    columns = ("table", "delta_version", "last_position", "committed_at")
    try:
        known = ledger.read(places.cuts(feed), SCHEMA, columns=columns).to_pylist()
    except StoreUnavailable:
        from silverfold.pipelines.storage.remove_tree import remove_tree  # noqa: PLC0415 - receivers need not load it

        if not is_damaged(places.cuts(feed), lambda: ledger.read(places.cuts(feed), SCHEMA)):
            raise
        remove_tree(places.cuts(feed))
        known = []
    missing = _missing(places, feed, tables, {tuple(row.values())[:3]: row["committed_at"] for row in known})
    if missing:
        ledger.append(places.cuts(feed), SCHEMA, [_to_ledger(row) for row in missing])
    return len(missing)


def all_cuts(places: Places, feed: str, tables: Sequence[str]) -> list[CutRow]:
    """Return the cuts of some silver tables, including those the list lacks, in no order.

    Writes nothing, so that readers do not write what a build is about to. An unreadable list counts as empty.

    Raises:
        StoreUnavailable: A table's store cannot be read now.
    """
    known: list[CutRow] = []
    with suppress(StoreUnavailable):
        known = [row for row in read_cuts(places, feed) if row.table in tables]
    have = {(row.table, row.delta_version, row.last_position): row.committed_at for row in known}
    return [*known, *_missing(places, feed, tables, have)]


def later_than(row: CutRow, before: datetime | None) -> CutRow:
    """Return a cut with a time after that of the previous cut: a clock may have been set back between them."""
    return row if before is None else replace(row, committed_at=max(row.committed_at, before + _TICK))


def current_cuts(rows: Iterable[CutRow]) -> list[CutRow]:
    """Return the cuts that produced a table's present rows, oldest first.

    If several reached a position the newest counts: a rebuild has replaced the others. Cuts of an earlier table at the
    same place went further, in versions that the table does not have.
    """
    current: list[CutRow] = []
    for row in sorted(rows, key=lambda row: (row.committed_at, row.delta_version), reverse=True):
        later = current[-1] if current else None
        if later is None or (row.delta_version < later.delta_version and row.last_position < later.last_position):
            current.append(row)
    return current[::-1]


_Cut: TypeAlias = tuple[str, int, int]
"""Identity of a cut: table, version and last position."""


def _missing(places: Places, feed: str, tables: Sequence[str], have: Mapping[_Cut, datetime]) -> list[CutRow]:
    """Return the cuts in the silver tables' logs that are not in ``have``, which maps known cuts to their times."""
    newest = {table: (version, at) for (table, version, _), at in sorted(have.items())}
    missing: list[CutRow] = []
    for table in tables:
        known, at = newest.get(table, (None, None))
        found = cuts_in_log(places.silver(feed, table), table, known)
        new = (row for row in found if (row.table, row.delta_version, row.last_position) not in have)
        missing += (later_than(row, at) if known is not None and row.delta_version > known else row for row in new)
    return missing


def cuts_in_log(silver: Place, table: str, known: int | None = None) -> list[CutRow]:
    """Return the cuts in a silver table's log, oldest first; none if there is no table.

    Args:
        known: Version up to which all but some of the newest are known; None to read the whole log.
    """
    opened = open_table(silver)
    if opened is None:
        return []
    # A known version ahead of the table's is that of an earlier table at this place: then nothing is known.
    ahead = -1 if known is None else opened.version() - known
    commits = newest_commits(silver, opened, ahead + _OVERLAP if ahead >= 0 else None)
    found: list[CutRow] = []
    for commit in reversed(commits):
        row = from_commit(commit)
        if row is not None and row.table == table:
            found.append(later_than(row, found[-1].committed_at if found else None))
    return found


def from_commit(commit: Mapping[str, Any]) -> CutRow | None:
    """Return the cut that a commit of a silver table made; None if it made none.

    Args:
        commit: One entry of a Delta table's history.
    """
    note = CommitNote.from_json(commit.get("userMetadata"))
    if note is None:
        return None
    metrics = {name: int(value) for name, value in commit.get("operationMetrics", {}).items() if str(value).isdecimal()}
    shared = {name: value for name, value in asdict(note).items() if name in _SHARED}
    return CutRow(
        **shared,
        ignored=note.ignored + _without_effect(note, metrics),
        delta_version=int(commit["version"]),
        inserted=metrics.get("numTargetRowsInserted", _appended(commit, metrics)),
        updated=metrics.get("numTargetRowsUpdated", 0),
        deleted=metrics.get("numTargetRowsDeleted", 0),
        committed_at=datetime.fromtimestamp(commit["timestamp"] / 1000, UTC),
        seconds=metrics["executionTimeMs"] / 1000 if "executionTimeMs" in metrics else None,
        notes=note.notes or {},
    )


def _without_effect(note: CommitNote, metrics: Mapping[str, int]) -> int:
    """Return how many net rows changed no row; 0 for a replacing cut, where equal rows are expected."""
    if note.replaced or "numSourceRows" not in metrics:
        return 0
    effects = sum(metrics.get(f"numTargetRows{effect}", 0) for effect in ("Inserted", "Updated", "Deleted"))
    return max(metrics["numSourceRows"] - effects, 0)


def _appended(commit: Mapping[str, Any], metrics: Mapping[str, int]) -> int:
    return metrics.get("numOutputRows", 0) if commit.get("operation") == "WRITE" else 0


def _to_ledger(row: CutRow) -> dict[str, Any]:
    return {**asdict(row), "notes": json.dumps(dict(row.notes), sort_keys=True)}


def _rows(found: pa.Table, newest: int | None = None) -> list[CutRow]:
    names = [field.name for field in fields(CutRow)]
    ordered = found.select(names).sort_by([("committed_at", "ascending"), ("last_position", "ascending")])
    wanted = ordered if newest is None else ordered.slice(max(0, ordered.num_rows - newest))
    return [CutRow(**{**row, "notes": json.loads(row["notes"])}) for row in wanted.to_pylist()]
