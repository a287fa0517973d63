"""The Delta tables beside a silver table: its history, its tombstones, and the rows it keeps aside.

A cut writes them first and the table last, and so does a rebuild. Which version of each counts is said by the table's
own commit (`pipelines.cuts.CommitNote`), so that commit decides for all of them: what a process has written that died,
or that another one overtook, counts for nobody. The next cut takes it back (`pipelines.applying.settle`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.beginnings import REBUILT
from pipelines.commit_note import NOT_TOLD, CommitNote
from pipelines.cuts import app_id, newest_note, position_in
from pipelines.places import Place, Places, aside_of, history_of, silver_table_of
from pipelines.store import count_rows, is_emptied, naming_the_store, open_table

Part: TypeAlias = Literal["history", "tombstones", "aside"]
"""Which of the tables beside a silver table."""

GONE: Mapping[Part, str] = {
    "history": "its history is gone",
    "tombstones": "its list of deletes is gone",
    "aside": "the rows that were kept aside are gone",
}
"""What is said of a table that lacks one of them; no cut is applied to it then."""

EMPTIED = "the commit of its newest version is an empty file, as a power cut leaves"
"""The same, of the table itself: Spark may still know from a file beside it what it said, other readers do not."""

TAKEN_BACK = "taken_back_to"
"""Note of a commit that took back what others wrote: the version whose rows it has, -1 for none."""


class Beside(NamedTuple):
    """One of the tables beside a silver table."""

    newest: DeltaTable | None
    """As it is; None where there is none."""
    counts: DeltaTable | None
    """At the newest version with the rows that count; None where none do, or they are gone."""
    is_settled: bool
    """Its newest version has just the rows that count."""
    is_gone: bool = False
    """What counts cannot be read any more."""
    written: int = 0
    """How many commits of ours came after what counts; that of a rebuild is in the stead of those before it."""


NOTHING = Beside(None, None, True)
"""None of them is kept."""


class Counting(NamedTuple):
    """The versions that count by a silver table's commit, as `CommitNote` has them."""

    history: int | None
    tombstones: int | None
    aside: int | None


NO_VERSIONS = Counting(None, None, None)


def counting(note: CommitNote | None, *, built: bool) -> Counting:
    """Return which versions count.

    Args:
        note: What the newest cut of the table says; None where its log does not reach back to one.
        built: The table has reached a position.
    """
    if note is not None:
        return Counting(note.history, note.tombstones, note.aside)
    return Counting(NOT_TOLD, NOT_TOLD, NOT_TOLD) if built else NO_VERSIONS


def find_beside(place: Place, version: int | None) -> Beside:
    """Open a table beside a silver table. Raises StoreUnavailable.

    Args:
        version: The one that counts; None for none, `NOT_TOLD` for the newest.
    """
    newest = open_table(place)
    if newest is None:
        return Beside(None, None, True, is_gone=version is not None and version != NOT_TOLD)
    last = newest.version()
    if version is not None and is_emptied(place, version):  # by a power cut: its number is there, its rows are not
        return Beside(newest, None, False, is_gone=True)
    if version in (last, NOT_TOLD):
        return Beside(newest, newest, True)
    same, written = _with_same_rows(place, newest, -1 if version is None else version)
    if version is None:
        return Beside(newest, None, last in same or count_rows(newest) == 0, written=written)
    counts = newest if last in same else _at(place, max(same), last)
    return Beside(newest, counts, last in same, counts is None, written)


def was_written_on(place: Place, newest: DeltaTable, version: int, before: DeltaTable | None) -> bool:
    """Tell whether a commit was made on rows that were read, and nobody wrote others in between.

    Args:
        newest: The table as it is.
        version: The commit's.
        before: The table as it was read; None where there was none.

    Raises:
        StoreUnavailable: The log cannot be read now.
    """
    same, _ = _with_same_rows(place, newest, -1 if before is None else before.version())
    return version - 1 in same


def beside_named(places: Places, feed: str, name: str) -> Beside | None:
    """Open a table by the name it is queried by, if it is one beside a silver table; else None.

    Args:
        name: Of a silver table, or of what is beside it (`history_of`, `aside_of`).

    Raises:
        StoreUnavailable: A log cannot be read now.
    """
    table = silver_table_of(name)
    parts: dict[str, Part] = {history_of(table): "history", aside_of(table): "aside"}
    return beside(places, feed, table, parts[name]) if name in parts else None


def beside(places: Places, feed: str, table: str, part: Part, *, at: int | None = None) -> Beside:
    """Open a table beside a silver table, by what the table says. Raises StoreUnavailable.

    Args:
        at: The version of the silver table that is asked about, if it is not the newest.
    """
    return beside_opened(places, feed, table, part, open_table(places.silver(feed, table)), at=at)


def beside_opened(
    places: Places, feed: str, table: str, part: Part, silver: DeltaTable | None, *, at: int | None = None
) -> Beside:
    """Return the same as `beside`, by a silver table that is open at its newest version; None where there is none."""
    built = position_in(silver, app_id(feed, table)) >= 0
    version: int | None = getattr(counting(newest_note(silver, until=at), built=built), part)
    return find_beside(place_beside(places, feed, table, part), version)


def place_beside(places: Places, feed: str, table: str, part: Part) -> Place:
    """Return where a table beside a silver table is."""
    return {"history": places.history, "tombstones": places.tombstones, "aside": places.aside}[part](feed, table)


def position_of(found: Beside) -> int:
    """Return the position that what counts of a history says it has reached; -1 for none. Raises StoreUnavailable."""
    note = None if found.counts is None else newest_note(found.newest, until=found.counts.version())
    return -1 if note is None else note.last_position


def _with_same_rows(place: Place, newest: DeltaTable, version: int) -> tuple[set[int], int]:
    """Return the versions that have the rows of one, -1 for none, and how many commits of ours came after the last."""
    same, written = {version}, 0
    for at, is_ours, notes in _commits(place, newest, after=version):
        if (notes.get(TAKEN_BACK) if is_ours else at - 1) in same:
            same.add(at)
            written = 0
        else:
            written = 1 if REBUILT in notes else written + is_ours
    return same, written


def _commits(place: Place, newest: DeltaTable, *, after: int) -> Iterator[tuple[int, bool, Mapping[str, int]]]:
    """Yield the commits after a version, the oldest first: version, whether it is ours, and its notes.

    Ours are told by what they carry; maintenance commits the same rows.
    """
    with naming_the_store(place):
        commits = newest.history(newest.version() - after) if newest.version() > after else []
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
