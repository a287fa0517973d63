"""Locations of tables: every Delta table silverfold writes has one place under the warehouse.

::

    <warehouse>/bronze/<feed>
    <warehouse>/silver/<feed>/<table>
    <warehouse>/silver/<feed>/<table>__history
    <warehouse>/silver/<feed>/<table>__aside
    <warehouse>/_silverfold/<feed>/cuts | verified
    <warehouse>/_silverfold/<feed>/quarantine/<table> | tombstones/<table> | lease/<table> | bases/<table>
    <warehouse>/_trial-<token>, during `silverfold config check --connect`; if that was killed, remove it by hand

A place is known before its table exists. Nothing here accesses storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from silverfold.conf.model import Settings


REASONS: Final = "_reasons"
"""Column of a side table: why the row is kept aside, as names of rules, `UNEXPLAINED` or `LATE_PARTIAL`."""


def history_of(table: str) -> str:
    """Return the name of a table's history, both of its folder and in queries."""
    return f"{table}__history"


def side_table_of(table: str) -> str:
    """Return the name of a table's side table, both of its folder and in queries."""
    return f"{table}__aside"


def silver_table_of(name: str) -> str:
    """Return the silver table for a name in queries: its own, its history's, or its side table's."""
    return name.removesuffix(history_of("")).removesuffix(side_table_of(""))


_REBUILD = "else `silverfold rebuild {feed} {table}` makes it anew"

_ADVICE = {
    r"/bronze/[^/]+": "else bronze's whole folder can be removed, README says what is lost then",
    r"/silver/(?P<feed>[^/]+)/(?P<table>[^/]+)": _REBUILD,
    r"/_silverfold/(?P<feed>[^/]+)/tombstones/(?P<table>[^/]+)": _REBUILD,
    r"/_silverfold/[^/]+/cuts": "else the next build makes it anew",
    r"/_silverfold/[^/]+/verified": "else its folder can be removed: reports then lack what was verified",
    r"/_silverfold/[^/]+/quarantine/[^/]+": "else its folder can be removed: what was skipped holds its table again",
    r"/_silverfold/[^/]+/bases/[^/]+/\w+": "else the folder of the base can be removed, README says what is lost then",
}
"""Recovery advice by the end of a table's URL."""


def recovery_advice(url: str) -> str:
    """Return an alternative to restoring what a Delta table has lost; empty for a table of unknown kind."""
    for layout, advice in _ADVICE.items():
        found = re.search(f"{layout}/?$", url)
        if found is not None:
            named = found.groupdict()
            return advice.format(**named | ({"table": silver_table_of(named["table"])} if named else {}))
    return ""


@dataclass(frozen=True)
class Place:
    """The address of one Delta table.

    Args:
        url: An absolute local path, or a URL such as ``s3://bucket/prefix/table``.
        storage_options: Options to access the store, with delta-rs's keys. May hold secrets: never shown.
    """

    url: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url

    @property
    def local(self) -> Path | None:
        """The folder, if the place is on this machine's file system; None for any other store."""
        return None if "://" in self.url else Path(self.url)


@dataclass(frozen=True)
class Places:
    """The places of one warehouse.

    Args:
        warehouse: A local path (a relative one is taken from the working directory) or a URL.
        needs_leases: Spark writes a table only while it holds a lease on it (`pipelines.storage.lease`).
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
        """Return the place of a silver table's history, which exists with ``stored_as_scd_type = 2``."""
        return self._at("silver", feed, history_of(table))

    def cuts(self, feed: str) -> Place:
        """Return the place of the list of applied cuts. Derived data: losing it loses nothing."""
        return self._at("_silverfold", feed, "cuts")

    def verified(self, feed: str) -> Place:
        """Return the place of the list of verifications (`pipelines.verifying.verify_log`)."""
        return self._at("_silverfold", feed, "verified")

    def quarantine(self, feed: str, table: str) -> Place:
        """Return the place of a table's quarantine. One per table, so each has one writer."""
        return self._at("_silverfold", feed, "quarantine", table)

    def tombstones(self, feed: str, table: str) -> Place:
        """Return the place of a table's tombstones."""
        return self._at("_silverfold", feed, "tombstones", table)

    def side_table(self, feed: str, table: str) -> Place:
        """Return the place of a table's side table (`pipelines.verifying.compared_rows`)."""
        return self._at("silver", feed, side_table_of(table))

    def base(self, table: str) -> BasePlaces:
        """Return the places of a table's base."""
        return BasePlaces(self.warehouse, self.storage_options, self.needs_leases, table=table)

    def lease(self, feed: str, table: str) -> str:
        """Return the name, below the warehouse, of the object that holds a table's lease for writing with Spark."""
        return f"_silverfold/{feed}/lease/{table}"

    def lock(self, feed: str, table: str) -> Place:
        """Return the place of the file that writers of a table lock where no lease is needed."""
        return self._at(*self.lease(feed, table).split("/"))

    def trial(self, token: str) -> Place:
        """Return the place of a table created to test that the store can be written."""
        return self._at(f"_trial-{token}")

    def _at(self, *parts: str) -> Place:
        root = self.warehouse if "://" in self.warehouse else str(Path(self.warehouse).absolute())
        return Place("/".join((root.rstrip("/"), *parts)), self.storage_options)


def places_of(settings: Settings) -> Places:
    """Return the places of the tables, with the store's secrets revealed. Raises ConfigError."""
    return Places(settings.warehouse, settings.storage(), settings.needs_leases)


@dataclass(frozen=True)
class _PlacesApart(Places):
    """Places of one table apart from the feed's: bronze is shared, everything written is in a separate folder."""

    table: str = ""

    def own(self, feed: str) -> Place:
        """Return the folder."""
        return self._beside(feed)

    def silver(self, feed: str, table: str) -> Place:
        """Return the place of the table's rows."""
        return self._beside(feed, "table")

    def history(self, feed: str, table: str) -> Place:
        """Return the place of its history."""
        return self._beside(feed, "history")

    def cuts(self, feed: str) -> Place:
        """Return the place of the list of cuts that made it."""
        return self._beside(feed, "cuts")

    def quarantine(self, feed: str, table: str) -> Place:
        """Return the place of its quarantine."""
        return self._beside(feed, "quarantine")

    def tombstones(self, feed: str, table: str) -> Place:
        """Return the place of its tombstones."""
        return self._beside(feed, "tombstones")

    def side_table(self, feed: str, table: str) -> Place:
        """Return the place of its side table."""
        return self._beside(feed, "aside")

    def _beside(self, feed: str, *part: str) -> Place:
        raise NotImplementedError


@dataclass(frozen=True)
class SidePlaces(_PlacesApart):
    """Places of the rebuild of one table.

    Args:
        table: The table being rebuilt.
        token: Unique to this rebuild.
    """

    token: str = ""

    def all_rebuilds(self, feed: str) -> Place:
        """Return the folder of all rebuilds of the table."""
        return self._at("silver", feed, f"{self.table}__rebuild")

    def lease(self, feed: str, table: str) -> str:
        """Return the name of the lease for writing the new table."""
        return f"silver/{feed}/{self.table}__rebuild/{self.token}/lease"

    def _beside(self, feed: str, *part: str) -> Place:
        return self._at("silver", feed, f"{self.table}__rebuild", self.token, *part)


@dataclass(frozen=True)
class BasePlaces(_PlacesApart):
    """Places of the base of one table (`pipelines.upkeep.bases`)."""

    def lease(self, feed: str, table: str) -> str:
        """Return the name of the lease for writing the base."""
        return f"_silverfold/{feed}/bases/{self.table}/lease"

    def _beside(self, feed: str, *part: str) -> Place:
        return self._at("_silverfold", feed, "bases", self.table, *part)
