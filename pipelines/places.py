"""Where tables live: every Delta table silverfold writes has one place under the warehouse.

::

    <warehouse>/bronze/<feed>
    <warehouse>/silver/<feed>/<table>
    <warehouse>/silver/<feed>/<table>__history
    <warehouse>/silver/<feed>/<table>__aside
    <warehouse>/_silverfold/<feed>/cuts | quarantine/<table> | tombstones/<table> | lease/<table>
    <warehouse>/_trial-<token>, while `silverfold config check --connect` runs; of one that was killed it can be removed

A place is known before its table exists. Nothing here touches storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conf.model import Settings


def history_of(table: str) -> str:
    """Return the name of a table's history: of its folder, and in queries."""
    return f"{table}__history"


def aside_of(table: str) -> str:
    """Return the name of the rows kept aside by a table: of their folder, and in queries."""
    return f"{table}__aside"


def silver_table_of(name: str) -> str:
    """Return the silver table that a name in queries is of: its own, its history's, or that of its rows aside."""
    return name.removesuffix(history_of("")).removesuffix(aside_of(""))


_REBUILD = "else `silverfold rebuild {feed} {table}` makes it anew"

_WAYS_ON = {
    r"/bronze/[^/]+": "else bronze's whole folder can be removed, README says what is lost then",
    r"/silver/(?P<feed>[^/]+)/(?P<table>[^/]+)": _REBUILD,
    r"/_silverfold/(?P<feed>[^/]+)/tombstones/(?P<table>[^/]+)": _REBUILD,
    r"/_silverfold/[^/]+/cuts": "else the next build makes it anew",
    r"/_silverfold/[^/]+/quarantine/[^/]+": "else its folder can be removed: what was skipped holds its table again",
}
"""What can be done, by how a table's URL ends."""


def way_on_without(url: str) -> str:
    """Say what else can be done than to put back what a Delta table has lost; empty for one of nobody knows what."""
    for layout, way_on in _WAYS_ON.items():
        found = re.search(f"{layout}/?$", url)
        if found is not None:
            named = found.groupdict()
            return way_on.format(**named | ({"table": silver_table_of(named["table"])} if named else {}))
    return ""


@dataclass(frozen=True)
class Place:
    """One Delta table's address.

    Args:
        url: An absolute local path, or a URL such as ``s3://bucket/prefix/table``.
        storage_options: How to reach the store, as delta-rs names the keys. May hold secrets: never shown.
    """

    url: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url

    @property
    def local(self) -> Path | None:
        """The folder, when the place is on this machine's file system; None for any other store."""
        return None if "://" in self.url else Path(self.url)


@dataclass(frozen=True)
class Places:
    """The places of one warehouse.

    Args:
        warehouse: A local path (a relative one is taken from the working directory) or a URL.
        needs_leases: Spark writes a table only while it holds a lease on it (`pipelines.lease`).
    """

    warehouse: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    needs_leases: bool = False

    def bronze(self, feed: str) -> Place:
        """Return the place of the feed's landed frames."""
        return self._at("bronze", feed)

    def silver(self, feed: str, table: str) -> Place:
        """Return the place of a silver table's current rows."""
        return self._at("silver", feed, table)

    def history(self, feed: str, table: str) -> Place:
        """Return the place of a silver table's past rows, kept with ``stored_as_scd_type = 2``."""
        return self._at("silver", feed, history_of(table))

    def cuts(self, feed: str) -> Place:
        """Return the place of the list of applied cuts. Derivable: losing it loses nothing."""
        return self._at("_silverfold", feed, "cuts")

    def quarantine(self, feed: str, table: str) -> Place:
        """Return the place of what a table could not take. One per table: each has one writer."""
        return self._at("_silverfold", feed, "quarantine", table)

    def tombstones(self, feed: str, table: str) -> Place:
        """Return the place of a table's remembered deletes."""
        return self._at("_silverfold", feed, "tombstones", table)

    def aside(self, feed: str, table: str) -> Place:
        """Return the place of the rows that may not stand in a table (`pipelines.kept_aside`)."""
        return self._at("silver", feed, aside_of(table))

    def lease(self, feed: str, table: str) -> str:
        """Return the name, below the warehouse, of the object that says who may write a table with Spark."""
        return f"_silverfold/{feed}/lease/{table}"

    def trial(self, token: str) -> Place:
        """Return the place of a table that is made to see whether one can be made."""
        return self._at(f"_trial-{token}")

    def _at(self, *parts: str) -> Place:
        root = self.warehouse if "://" in self.warehouse else str(Path(self.warehouse).absolute())
        return Place("/".join((root.rstrip("/"), *parts)), self.storage_options)


def places_of(settings: Settings) -> Places:
    """Return where the tables are, with the store's secrets revealed. Raises ConfigError."""
    return Places(settings.warehouse, settings.storage(), settings.needs_leases)


@dataclass(frozen=True)
class SidePlaces(Places):
    """Where a rebuild of one table works: bronze is where it is, all that is written is in a folder of its own.

    Args:
        table: The table that is rebuilt.
        token: Unlike any other rebuild's.
    """

    table: str = ""
    token: str = ""

    def all_rebuilds(self, feed: str) -> Place:
        """Return where all rebuilds of the table work."""
        return self._at("silver", feed, f"{self.table}__rebuild")

    def own(self, feed: str) -> Place:
        """Return where this rebuild works."""
        return self._beside(feed)

    def silver(self, feed: str, table: str) -> Place:
        """Return the place of the new table."""
        return self._beside(feed, "table")

    def history(self, feed: str, table: str) -> Place:
        """Return the place of the new table's past rows."""
        return self._beside(feed, "history")

    def cuts(self, feed: str) -> Place:
        """Return the place of the list of cuts that made the new table."""
        return self._beside(feed, "cuts")

    def quarantine(self, feed: str, table: str) -> Place:
        """Return the place of what the new table could not take."""
        return self._beside(feed, "quarantine")

    def tombstones(self, feed: str, table: str) -> Place:
        """Return the place of the new table's remembered deletes."""
        return self._beside(feed, "tombstones")

    def aside(self, feed: str, table: str) -> Place:
        """Return the place of the rows that may not stand in the new table."""
        return self._beside(feed, "aside")

    def _beside(self, feed: str, *part: str) -> Place:
        return self._at("silver", feed, f"{self.table}__rebuild", self.token, *part)
