"""The rows of a silver table that ``verify`` compares, and those it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from silverfold.conf.model import LATE_PARTIAL, UNEXPLAINED
from silverfold.conf.text import counted
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.key_span import Key
from silverfold.pipelines.places import REASONS, Places
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import app_id, position_in
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.compare import shown


def read_side_table(places: Places, feed: str, table: str, version: int | None = None) -> pa.Table | None:
    """Return the rows of the side table; None for none. Raises StoreUnavailable.

    Args:
        version: Version of the silver table, if not the newest: the side table is read as of it.
    """
    opened = companion(places, feed, table, "aside", at=version).committed
    if opened is None:
        return None
    found = SilverRows(places.side_table(feed, table), opened).table()
    return found if found.num_rows else None


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return the complete rows of the side table, which exist at the source but fail the table's rules; None for none.

    Args:
        version: As for `read_side_table`.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    found = read_side_table(places, feed, table, version)
    if found is None:
        return None
    is_complete = [{UNEXPLAINED, LATE_PARTIAL}.isdisjoint(reasons) for reasons in found[REASONS].to_pylist()]
    return found.filter(pa.array(is_complete, pa.bool_()))


class LeftOut(NamedTuple):
    """Rows that are not compared."""

    names: Sequence[str] = ()
    """The source's key columns."""
    keys: frozenset[Key] = frozenset()

    @property
    def reason(self) -> str | None:
        """Why they are not compared; None if there are none."""
        why = "not compared: changes came late among partial updates"
        return f"{counted(len(self.keys), 'key')} {why}" if self.keys else None

    def others(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return all other rows."""
        return [row for row in rows if _key(row, self.names) not in self.keys] if self.keys else rows

    def others_found(self, found: pa.Table) -> pa.Table:
        """Return all other rows of a table."""
        if not self.keys:
            return found
        return found.filter(pa.array([_key(row, self.names) not in self.keys for row in found.to_pylist()], pa.bool_()))


NOTHING_LEFT_OUT: Final = LeftOut()


def degraded_rows(places: Places, connector: Connector, feed: Feed, table: str, version: int) -> LeftOut:
    """Return the rows, or their versions, that may lack late changes. Raises as `failing_rows`."""
    found = read_side_table(places, feed.name, table, version) if connector.source_ordered else None
    if found is None:
        return NOTHING_LEFT_OUT
    names = connector.reference(feed, table).keys
    return LeftOut(names, frozenset(_key(row, names) for row in found.to_pylist() if LATE_PARTIAL in row[REASONS]))


def older_than_deletes(places: Places, connector: Connector, feed: Feed, table: str, rows: SilverRows) -> str | None:
    """Return a message on rows older than their key's tombstone; None if there are none, or it cannot be determined."""
    if not connector.source_ordered:
        return None
    tombstones = companion(places, feed.name, table, "tombstones", at=rows.version).committed
    if tombstones is None:
        return None
    keys = connector.reference(feed, table).keys
    listed = SilverRows(places.tombstones(feed.name, table), tombstones).table().to_pylist()
    listed.sort(key=itemgetter("_position"))  # the last delete of a key wins
    deleted_at = {_key(stone, keys): stone["_position"] for stone in listed}
    found = ((_key(row, keys), row["_position"]) for row in rows.table().to_pylist())
    late = sorted(key for key, position in found if key in deleted_at and position <= deleted_at[key])
    named = ", ".join(f"{name}={shown(value)}" for name, value in zip(keys, late[0], strict=True)) if late else ""
    return f"{len(late)} rows are older than the deletes of their keys, the first {named}" if late else None


def _key(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    return tuple(row[name] for name in names)


def without_reasons(failing: pa.Table | None) -> str | None:
    """Return a message if `failing_rows` name no rule that they fail, which no build produces; else None."""
    count = 0 if failing is None else sum(not reasons for reasons in failing[REASONS].to_pylist())
    return f"{count} of the rows that it keeps aside name no rule that they fail" if count else None


class Silver(NamedTuple):
    """A silver table at one version."""

    position: int
    """-1 if none is recorded."""
    rows: SilverRows


def read_silver(places: Places, feed: str, table: str) -> Silver | None:
    """Return a silver table and its position, both of one version; None if it does not exist. Raises StoreUnavailable.

    Rows that exist at the source but fail the table's rules are included: together they are the source's table.
    """
    place = places.silver(feed, table)
    opened = open_table(place)
    if opened is None:
        return None
    failing = failing_rows(places, feed, table, opened.version())
    return Silver(position_in(opened, app_id(feed, table)), SilverRows(place, opened, failing))
