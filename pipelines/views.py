"""Gives silver tables their names in Spark SQL.

Every built table of every feed is the temporary view ``<feed>__<table>``, and plain ``<table>`` too where only one
feed has a table of that name. Views read the newest version each time a query begins, or the version that
`pipelines.travel` found: nothing is copied. A history is called as its folder is, ``<table>__history``; as of a
position it has the versions that had begun by then, and those that ended later stand. What a table keeps aside is
``<table>__aside``, only as of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.beside import shown_version
from pipelines.places import Place, Places
from pipelines.store import open_table
from pipelines.travel import AsOf
from transforms.history import END, START


@dataclass(frozen=True)
class Views:
    """What names mean, in small letters: Spark SQL does not look at case."""

    built: Mapping[str, tuple[str, str]]
    """Name of a view → feed and table."""
    not_built: Mapping[str, tuple[str, str]]
    """Name that will be a view once the table is built → feed and table."""
    shared: Mapping[str, tuple[str, ...]]
    """Name of tables of several feeds, which is no view → the names to use instead."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Name of a table that cannot be read as of the position asked for → why."""

    def why_missing(self, name: str) -> str | None:
        """Return why a name is no view, and what to do; None when no configured table has it."""
        wanted = name.lower()
        if wanted in self.shared:
            return f"several feeds have a table {name}: use {' or '.join(self.shared[wanted])}"
        if wanted in self.unreadable:
            return self.unreadable[wanted]
        if wanted in self.not_built:
            feed, table = self.not_built[wanted]
            return f"table {table} of feed {feed} is not built yet: run `silverfold build {feed} --once`"
        return None


def register_views(
    session: SparkSession, places: Places, tables: Mapping[str, Iterable[str]], as_of: Iterable[AsOf] = ()
) -> Views:
    """Name every built silver table in the session. Reads no rows; safe to repeat.

    Args:
        tables: Names of the silver tables of each feed, and of their histories (`pipelines.places.history_of`).
        as_of: Feeds whose tables are to show a position, not what is newest.

    Raises:
        StoreUnavailable: A table's store cannot be read now.
    """
    names, shared = _names((feed, table) for feed in tables for table in tables[feed])
    there = {table for table in set(names.values()) if open_table(places.silver(*table)) is not None}
    missing = {(found.feed, table): why for found in as_of for table, why in found.missing.items()}
    versions = {(found.feed, table): version for found in as_of for table, version in found.versions.items()}
    until = {(found.feed, table): position for found in as_of for table, position in found.until.items()}
    for name, table in names.items():
        if table in there and table not in missing:
            rows = _read(session, places.silver(*table), versions.get(table))
            shown = _up_to(rows, until[table]) if table in until else _that_count(rows, places, *table)
            shown.createOrReplaceTempView(name)
        else:
            session.catalog.dropTempView(name)  # of an earlier call
    return Views(
        built={name: table for name, table in names.items() if table in there and table not in missing},
        not_built={name: table for name, table in names.items() if table not in there},
        shared=shared,
        unreadable={name: missing[table] for name, table in names.items() if table in missing},
    )


def _read(session: SparkSession, place: Place, version: int | None) -> DataFrame:
    reader = session.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(place.url)


def _up_to(versions: DataFrame, position: int) -> DataFrame:
    ended = F.when(F.col(END) <= position, F.col(END))
    return versions.where(F.col(START) <= position).withColumn(END, ended)


def _that_count(rows: DataFrame, places: Places, feed: str, name: str) -> DataFrame:
    """Return the rows of a table that count now, whatever a process that died has written."""
    version = shown_version(places, feed, name)
    if version is None:
        return rows
    return rows.limit(0) if version < 0 else _read(rows.sparkSession, places.silver(feed, name), version)


def _names(tables: Iterable[tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, ...]]]:
    """Return the table each name means, and the names that would mean several."""
    qualified = {f"{feed}__{table}".lower(): (feed, table) for feed, table in tables}
    holders: dict[str, list[str]] = {}
    for name, (_feed, table) in qualified.items():
        holders.setdefault(table.lower(), []).append(name)
    plain = {name: qualified[only] for name, (only, *others) in holders.items() if not others}
    return plain | qualified, {name: tuple(sorted(found)) for name, found in holders.items() if len(found) > 1}
