"""Gives silver tables their names in Spark SQL.

Every built table of every feed is the temporary view ``<feed>__<table>``, and plain ``<table>`` too where only one
feed has a table of that name. Views read the newest version each time a query begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipelines.places import Places
from pipelines.store import open_table


@dataclass(frozen=True)
class Views:
    """What names mean, in small letters: Spark SQL does not look at case."""

    built: Mapping[str, tuple[str, str]]
    """Name of a view → feed and table."""
    not_built: Mapping[str, tuple[str, str]]
    """Name that will be a view once the table is built → feed and table."""
    shared: Mapping[str, tuple[str, ...]]
    """Name of tables of several feeds, which is no view → the names to use instead."""

    def why_missing(self, name: str) -> str | None:
        """Return why a name is no view, and what to do; None when no configured table has it."""
        wanted = name.lower()
        if wanted in self.shared:
            return f"several feeds have a table {name}: use {' or '.join(self.shared[wanted])}"
        if wanted in self.not_built:
            feed, table = self.not_built[wanted]
            return f"table {table} of feed {feed} is not built yet: run `silverfold build {feed} --once`"
        return None


def register_views(session: SparkSession, places: Places, tables: Mapping[str, Iterable[str]]) -> Views:
    """Name every built silver table in the session. Reads no rows; safe to repeat.

    Args:
        tables: Names of the silver tables of each feed.

    Raises:
        StoreUnavailable: A table's store cannot be read now.
    """
    names, shared = _names((feed, table) for feed in tables for table in tables[feed])
    there = {table for table in set(names.values()) if open_table(places.silver(*table)) is not None}
    for name, table in names.items():
        if table in there:
            session.read.format("delta").load(places.silver(*table).url).createOrReplaceTempView(name)
    return Views(
        built={name: table for name, table in names.items() if table in there},
        not_built={name: table for name, table in names.items() if table not in there},
        shared=shared,
    )


def _names(tables: Iterable[tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, ...]]]:
    """Return the table each name means, and the names that would mean several."""
    qualified = {f"{feed}__{table}".lower(): (feed, table) for feed, table in tables}
    holders: dict[str, list[str]] = {}
    for name, (_feed, table) in qualified.items():
        holders.setdefault(table.lower(), []).append(name)
    plain = {name: qualified[only] for name, (only, *others) in holders.items() if not others}
    return qualified | plain, {name: tuple(sorted(found)) for name, found in holders.items() if len(found) > 1}
