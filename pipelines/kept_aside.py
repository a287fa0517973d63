"""Rows that may not be in a table yet: they fail its rules, or wait for the change that explains them.

They are in a side table, which has the table's columns, ``_position``, and

=============  =====================================================================================
``_present``   columns of a partial update that waits for its row; NULL for a whole row
``_reasons``   names of the rules the row fails; `UNEXPLAINED` for an update without row
=============  =====================================================================================

Each cut looks at all rows that are aside, and writes the side table anew, before the table. Which version of it counts
is said by the table's own commit (`CommitNote.aside`), so that commit decides for both: what a process has written that
died, or that another one overtook, counts for nobody, whatever columns it has.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from pipelines.cuts import CommitNote, app_id, newest_note, position_in
from pipelines.places import Place, Places
from pipelines.store import count_rows, naming_the_store, open_table
from transforms.aside_columns import REASONS, UNEXPLAINED

_WRITTEN = "WRITE"
"""What Delta calls a commit that has other rows; what maintenance commits has the same."""


class Aside(NamedTuple):
    """The side table of a table."""

    counts: DeltaTable | None
    """At the version that counts; None where nothing is aside, or that is gone."""
    is_settled: bool
    """Its newest version has no other rows. Else the next cut writes it again, so that the newest one counts."""


def find_aside(place: Place, note: CommitNote | None, *, built: bool) -> Aside:
    """Open a side table. Raises StoreUnavailable.

    Args:
        note: What the newest cut of the table says; None where its log does not reach back to one.
        built: The table has reached a position.
    """
    opened = open_table(place)
    if opened is None:
        return Aside(None, True)
    newest, counts = opened.version(), None
    if note is None:  # a cut leaves the newest version to count
        counts = opened if built else None
    elif note.aside is not None:
        counts = _at(place, opened, note.aside)
    return Aside(counts, count_rows(opened) == 0 if counts is None else counts.version() == newest)


def opened_aside(
    places: Places, feed: str, table: str, silver: DeltaTable | None, *, at: int | None = None
) -> DeltaTable | None:
    """Open the side table at the version that counts for a table; None where nothing is aside, or that is gone.

    Args:
        silver: The table at its newest version; None where there is none.
        at: The version of the table that is asked about, if it is not the newest.

    Raises:
        StoreUnavailable: A log cannot be read now.
    """
    return _found(places, feed, table, silver, at).counts


def read_aside(places: Places, feed: str, table: str) -> pa.Table | None:
    """Return the rows that a table keeps aside; None for none. Raises StoreUnavailable."""
    return _read(places, feed, table, None, "TRUE")


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return those of the rows kept aside that stand at the source, whole, and fail the table's rules; None for none.

    Args:
        version: Of the table: they are those kept aside then.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    return _read(places, feed, table, version, f"NOT array_has({REASONS}, '{UNEXPLAINED}')")


def is_settled(places: Places, feed: str, table: str) -> bool:
    """Tell whether nothing is left in the side table that does not count. Raises StoreUnavailable."""
    return _found(places, feed, table, _silver(places, feed, table), None).is_settled


def _found(places: Places, feed: str, table: str, silver: DeltaTable | None, at: int | None) -> Aside:
    built = position_in(silver, app_id(feed, table)) >= 0
    return find_aside(places.aside(feed, table), newest_note(silver, until=at), built=built)


def _silver(places: Places, feed: str, table: str) -> DeltaTable | None:
    return open_table(places.silver(feed, table))


def _at(place: Place, opened: DeltaTable, version: int) -> DeltaTable | None:
    """Load the side table at a version, or at a later one with the same rows; None where it is gone."""
    if not 0 <= version <= opened.version():
        return None
    if opened.version() > version:
        with naming_the_store(place):
            later = opened.history(opened.version() - version)
        other = [each["version"] for each in later if each["version"] > version and each["operation"] == _WRITTEN]
        try:
            opened.load_as_version(min(other, default=opened.version() + 1) - 1)
        except DeltaError:
            return None
    return opened


def _read(places: Places, feed: str, table: str, version: int | None, where: str) -> pa.Table | None:
    opened = opened_aside(places, feed, table, _silver(places, feed, table), at=version)
    if opened is None:
        return None
    with naming_the_store(places.aside(feed, table)):
        query = f"SELECT * FROM aside WHERE {where}"
        found = pa.table(QueryBuilder().register("aside", opened).execute(query).read_all())
    return found if found.num_rows else None
