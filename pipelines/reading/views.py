"""Name silver tables in Spark SQL.

Every built table of every feed is the temporary view ``<feed>__<table>``, and also ``<table>`` if only one feed has a
table of that name. Views read the newest version whenever a query begins, or the version found by
`pipelines.reading.time_travel`; nothing is copied. Companion tables are read at the version that counted when the views
were made.

A history is named as its folder, ``<table>__history``. As of a position it shows the versions that had begun by then;
those that ended later appear as current. A side table is ``<table>__aside``, and only readable as of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.conf.errors import QueryFailed
from silverfold.pipelines.places import REASONS, Place, Places, side_table_of, silver_table_of
from silverfold.pipelines.reading.time_travel import AsOf
from silverfold.pipelines.storage.companions import Companion, companion_named
from silverfold.pipelines.store import open_table
from silverfold.transforms.history import END, START
from silverfold.transforms.merge import PRESENT


@dataclass(frozen=True)
class Views:
    """The meaning of names, in lower case: Spark SQL is case-insensitive."""

    built: Mapping[str, tuple[str, str]]
    """Name of a view → feed and table."""
    not_built: Mapping[str, tuple[str, str]]
    """Name that will be a view once the table is built → feed and table."""
    shared: Mapping[str, tuple[str, ...]]
    """Name of tables of several feeds, which is no view → the names to use instead."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Name of a table that cannot be read as of the requested position → the reason."""

    def why_missing(self, name: str) -> str | None:
        """Return why a name is no view, and what to do; None if no configured table has it."""
        wanted = name.lower()
        if wanted in self.shared:
            return f"several feeds have a table {name}: use {' or '.join(self.shared[wanted])}"
        if wanted in self.unreadable:
            return self.unreadable[wanted]
        if wanted in self.not_built:
            feed, table = self.not_built[wanted]
            return f"table {table} of feed {feed} is not built yet: run `silverfold build {feed} --once`"
        return None

    def missing(self, name: str) -> QueryFailed:
        """Return the error for a name that is no view: why, or which there are."""
        known = ", ".join(sorted(self.built)) or "none is built yet"
        why = self.why_missing(name) or f"there is no table {name}; tables: {known}"
        return QueryFailed(why, condition="TABLE_OR_VIEW_NOT_FOUND")


def register_views(
    session: SparkSession, places: Places, tables: Mapping[str, Iterable[str]], as_of: Iterable[AsOf] = ()
) -> Views:
    """Create views for every built silver table in the session. Reads no rows; safe to repeat.

    Args:
        tables: Names of the silver tables of each feed, and of their histories (`pipelines.places.history_of`).
        as_of: Feeds whose tables are shown as of a position instead of at their newest version.

    Raises:
        StoreUnavailable: A table's store cannot be read now.
    """
    names, shared = _names((feed, table) for feed in tables for table in tables[feed])
    then = {each.feed: each for each in as_of}
    lookups = {table: _look_up(places, then, *table) for table in set(names.values())}
    for name, table in names.items():
        if lookups[table].is_there:
            _view_rows(session, places, then, *table, found=lookups[table].beside).createOrReplaceTempView(name)
        else:
            session.catalog.dropTempView(name)  # left by an earlier call
    return Views(
        built={name: table for name, table in names.items() if lookups[table].is_there},
        not_built={name: table for name, table in names.items() if lookups[table] == _Lookup()},
        shared=shared,
        unreadable={name: why for name, table in names.items() if (why := lookups[table].why) is not None},
    )


def find_table(tables: Mapping[str, Iterable[str]], name: str) -> tuple[str, str]:
    """Return the feed and table that a view's name means, whether it is built or not.

    Args:
        tables: As for `register_views`.

    Raises:
        QueryFailed: Several tables have the name, or none.
    """
    names, shared = _names((feed, table) for feed in tables for table in tables[feed])
    if name.lower() not in names:
        raise Views(names, {}, shared).missing(name)
    return names[name.lower()]


def table_rows(session: SparkSession, places: Places, feed: str, name: str, as_of: AsOf | None = None) -> DataFrame:
    """Return the rows that the view of a table shows. Lazy.

    Raises:
        QueryFailed: The table is not built, or cannot be read as of then.
        StoreUnavailable: The table's store cannot be read now.
    """
    then = {} if as_of is None else {feed: as_of}
    found = _look_up(places, then, feed, name)
    if found.is_there:
        return _view_rows(session, places, then, feed, name, found=found.beside)
    not_built = {name.lower(): (feed, name)} if found.why is None else {}
    raise Views({}, not_built, {}, {} if found.why is None else {name.lower(): found.why}).missing(name)


class _Lookup(NamedTuple):
    """Whether a table can be queried, and if not, why; the defaults mean it is not built."""

    is_there: bool = False
    why: str | None = None
    beside: Companion | None = None
    """For a companion table, as of now: its version that counts."""


def _look_up(places: Places, then: Mapping[str, AsOf], feed: str, name: str) -> _Lookup:
    """Look up a table. The side table of a built table is there even if it is empty."""
    is_aside, called = name.endswith(side_table_of("")), f"table {name} of feed {feed}"
    table = silver_table_of(name)
    if open_table(places.silver(feed, table)) is None:
        return _Lookup(why=then[feed].missing.get(name) if feed in then else None)
    if feed in then:
        now_only = f"{called} is shown only as of now: ask without --at" if is_aside else None
        why = now_only or then[feed].missing.get(name)
        return _Lookup(why is None, why)
    found = companion_named(places, feed, name)
    if found is not None and (found.is_gone or (found.committed is None and not is_aside)):
        return _Lookup(why=f"{called} is not what its table was built with: run `silverfold rebuild {feed} {table}`")
    return _Lookup(True, beside=found)


def _view_rows(
    session: SparkSession, places: Places, then: Mapping[str, AsOf], feed: str, name: str, *, found: Companion | None
) -> DataFrame:
    """Return a table's rows as the view shows them. Lazy."""
    place = places.silver(feed, name)
    if feed in then:
        rows = _read(session, place, then[feed].versions.get(name))
        return _up_to(rows, then[feed].until[name]) if name in then[feed].until else rows
    if found is None:
        return _read(session, place, None)
    if found.committed is not None:
        return _read(session, place, found.committed.version())
    table = _read(session, places.silver(feed, silver_table_of(name)), None).limit(0)
    return table.select("*", *(F.lit(None).cast("array<string>").alias(name) for name in (PRESENT, REASONS)))


def _read(session: SparkSession, place: Place, version: int | None) -> DataFrame:
    reader = session.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(place.url)


def _up_to(versions: DataFrame, position: int) -> DataFrame:
    ended = F.when(F.col(END) <= position, F.col(END))
    return versions.where(F.col(START) <= position).withColumn(END, ended)


def _names(tables: Iterable[tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, ...]]]:
    """Return the table for each name, and the ambiguous names."""
    qualified = {f"{feed}__{table}".lower(): (feed, table) for feed, table in tables}
    names_by_table: dict[str, list[str]] = {}
    for name, (_feed, table) in qualified.items():
        names_by_table.setdefault(table.lower(), []).append(name)
    for name in (
        names_by_table.keys() & qualified.keys()
    ):  # one feed's FEED__TABLE may be another's TABLE, as with a history
        names_by_table[name].append(qualified[name][1].lower())
    unqualified = {name: qualified[only] for name, (only, *others) in names_by_table.items() if not others}
    shared = {name: tuple(sorted(found)) for name, found in names_by_table.items() if len(found) > 1}
    return {name: table for name, table in (unqualified | qualified).items() if name not in shared}, shared
