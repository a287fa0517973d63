"""The companion tables of a silver table: its history, its tombstones, and its side table.

A cut or a rebuild writes them first and the silver table last. The silver commit records which version of each counts
(`pipelines.storage.commit_note.CommitNote`), so it decides for all of them. Writes of a process that died or was
overtaken do not count. The next cut undoes them (`pipelines.applying.roll_back`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from silverfold.conf.model import Table
from silverfold.connectors.base import Connector
from silverfold.pipelines.places import Place, Places, history_of, side_table_of, silver_table_of
from silverfold.pipelines.storage.commit_note import NOT_RECORDED, REBUILT, CommitNote
from silverfold.pipelines.storage.cuts import app_id, newest_note, position_in, restored_since
from silverfold.pipelines.store import count_rows, is_emptied, newest_commits, open_table

Part: TypeAlias = Literal["history", "tombstones", "aside"]
"""Which of the companion tables."""

GONE: Mapping[Part, str] = {
    "history": "its history is gone",
    "tombstones": "its list of deletes is gone",
    "aside": "the rows that were kept aside are gone",
}
"""Error text for a missing companion table; no cut is applied then."""

EMPTIED = "the commit of its newest version is an empty file, as a power cut leaves"
"""The same for the silver table itself. Spark may still know the commit from another file; other readers do not."""

ROLLED_BACK = "taken_back_to"
"""Note of a commit that undid other writes: the version whose rows it has, -1 for none."""


def lost_cuts(place: Place, opened: DeltaTable) -> str | None:
    """Return why a silver table at its newest version may lack cuts up to its position; None if it has them.

    Raises StoreUnavailable.
    """
    return EMPTIED if is_emptied(place, opened.version()) else restored_since(opened)


class Companion(NamedTuple):
    """A companion table of a silver table."""

    newest: DeltaTable | None
    """At its newest version; None if it does not exist."""
    committed: DeltaTable | None
    """At the newest version with the rows that count; None if no rows count, or they are gone."""
    is_committed: bool
    """Its newest version has exactly the rows that count."""
    is_gone: bool = False
    """The version that counts can no longer be read."""
    written: int = 0
    """Number of our commits after the version that counts; a rebuild resets the number to 1."""


NONE = Companion(None, None, True)
"""Companion table of a silver table that has none."""


class CompanionVersions(NamedTuple):
    """Versions of the companion tables that count according to a silver commit, as `CommitNote` records them."""

    history: int | None
    tombstones: int | None
    aside: int | None


NO_VERSIONS = CompanionVersions(None, None, None)


def companion_versions(note: CommitNote | None, *, built: bool) -> CompanionVersions:
    """Return which versions count.

    Args:
        note: Commit note of the table's newest cut; None if its log does not reach back to one.
        built: The table has reached a position.
    """
    if note is not None:
        return CompanionVersions(note.history, note.tombstones, note.aside)
    return CompanionVersions(NOT_RECORDED, NOT_RECORDED, NOT_RECORDED) if built else NO_VERSIONS


def find_companion(place: Place, version: int | None) -> Companion:
    """Open a companion table. Raises StoreUnavailable.

    Args:
        version: The version that counts; None for none, `NOT_RECORDED` for the newest.
    """
    newest = open_table(place)
    if newest is None:
        return Companion(None, None, True, is_gone=version is not None and version != NOT_RECORDED)
    last = newest.version()
    if version is not None and is_emptied(place, version):  # by a power cut: the version exists without its rows
        return Companion(newest, None, False, is_gone=True)
    if version in (last, NOT_RECORDED):
        return Companion(newest, newest, True)
    same, written = _with_same_rows(place, newest, -1 if version is None else version)
    if version is None:
        return Companion(newest, None, last in same or count_rows(newest) == 0, written=written)
    committed = newest if last in same else _at(place, max(same), last)
    return Companion(newest, committed, last in same, committed is None, written)


def was_written_on(place: Place, newest: DeltaTable, version: int, before: DeltaTable | None) -> bool:
    """Return whether a commit was made on the rows that were read, with no other rows written in between.

    Args:
        newest: The table at its newest version.
        version: Version of the commit.
        before: The table as it was read; None if it did not exist.

    Raises:
        StoreUnavailable: The log cannot be read now.
    """
    same, _ = _with_same_rows(place, newest, -1 if before is None else before.version())
    return version - 1 in same


def companion_named(places: Places, feed: str, name: str) -> Companion | None:
    """Open a companion table by the name used in queries; return None for any other table.

    Args:
        name: Name of a silver table or of its companion (`history_of`, `side_table_of`).

    Raises:
        StoreUnavailable: A log cannot be read now.
    """
    table = silver_table_of(name)
    parts: dict[str, Part] = {history_of(table): "history", side_table_of(table): "aside"}
    return companion(places, feed, table, parts[name]) if name in parts else None


def companion(places: Places, feed: str, table: str, part: Part, *, at: int | None = None) -> Companion:
    """Open a companion table at the version that the silver table records. Raises StoreUnavailable.

    Args:
        at: Version of the silver table to go by, if not the newest.
    """
    return companion_of(places, feed, table, part, open_table(places.silver(feed, table)), at=at)


def companion_of(
    places: Places, feed: str, table: str, part: Part, silver: DeltaTable | None, *, at: int | None = None
) -> Companion:
    """Do as `companion`, for a silver table already open at its newest version; None if it does not exist."""
    built = position_in(silver, app_id(feed, table)) >= 0
    version: int | None = getattr(companion_versions(newest_note(silver, until=at), built=built), part)
    return find_companion(companion_place(places, feed, table, part), version)


def parts_of(connector: Connector, table: Table) -> list[Part]:
    """Return which companion tables a table with these settings may need."""
    parts: list[Part] = ["aside"]
    if table.keeps_history:
        parts.append("history")
    if connector.source_ordered:
        parts.append("tombstones")
    return parts


def companion_place(places: Places, feed: str, table: str, part: Part) -> Place:
    """Return the location of a companion table."""
    return {"history": places.history, "tombstones": places.tombstones, "aside": places.side_table}[part](feed, table)


def tables_of(places: Places, feed: str, table: str) -> list[Place]:
    """Return the locations of a table's companion tables, and last its own."""
    return [*(companion_place(places, feed, table, part) for part in get_args(Part)), places.silver(feed, table)]


def history_position(found: Companion) -> int:
    """Return the position of the history's version that counts; -1 for none. Raises StoreUnavailable."""
    note = None if found.committed is None else newest_note(found.newest, until=found.committed.version())
    return -1 if note is None else note.last_position


def _with_same_rows(place: Place, newest: DeltaTable, version: int) -> tuple[set[int], int]:
    """Return the versions with the same rows as ``version`` (-1 for none), and how many of our commits follow them."""
    same, written = {version}, 0
    for at, is_ours, notes in _commits(place, newest, after=version):
        if (notes.get(ROLLED_BACK) if is_ours else at - 1) in same:
            same.add(at)
            written = 0
        else:
            written = 1 if REBUILT in notes else written + is_ours
    return same, written


def _commits(place: Place, newest: DeltaTable, *, after: int) -> Iterator[tuple[int, bool, Mapping[str, int]]]:
    """Yield the commits after a version, oldest first: version, whether it is ours, and its notes.

    Ours are recognised by their metadata; maintenance commits keep the same rows.
    """
    commits = newest_commits(place, newest, newest.version() - after) if newest.version() > after else []
    for commit in reversed(commits):
        if commit["version"] > after:
            text = commit.get("userMetadata")
            note = CommitNote.from_json(text)
            is_ours = note is not None or (bool(text) and commit["operation"] == "WRITE")
            yield int(commit["version"]), is_ours, (note and note.notes) or {}


def _at(place: Place, version: int, newest: int) -> DeltaTable | None:
    if not 0 <= version <= newest:
        return None
    try:
        return DeltaTable(place.url, version, storage_options=dict(place.storage_options))
    except DeltaError:
        return None
