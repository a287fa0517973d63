"""Verifies silver against the source itself: was the source's table ever what silver is?

A subscription of its own (`connectors.base.SourceSubscription`) gives the source's table as a snapshot, then update after update.
The table is kept in memory, and of every state it has stood in at the end of an update a digest. Silver, read without
Spark, has a digest too. If it is among them, silver *is* the source's table as of that update: exactly the table when
the source rests, one of its states when it changes while receiver and build go on.

What is proved: connection, receiver, bronze and build together lost nothing and made nothing up, for the one version
of silver that was found equal. What is not: anything about other versions; that silver will get to the newest state;
a log or a table without snapshots, whose rows say nothing about the source's table; that what the source sends to
two subscriptions is right. Two different tables with one digest (64 bits a row, added up) will not be met by chance.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from connectors.base import Connector, Feed, ReferenceChange
from pipelines.cuts import built_otherwise
from pipelines.places import Place, Places
from pipelines.reference_fold import Expected
from pipelines.store import open_table
from pipelines.table_fold import Row, TableFold
from pipelines.verify import Silver, TableVerification, Verdict, compared, read_silver, unknown

_WAIT = 0.25
"""Seconds between looks at silver."""

_MOD = 1 << 64


def verify_against_source(
    places: Places,
    connector: Connector,
    feed: Feed,
    table: str,
    *,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> TableVerification:
    """Look for the update of the source at which its table was what silver is.

    Args:
        patience: Seconds to look. Silver is looked at again whenever it has a new version, the source all the time.

    Returns:
        ``different`` with the differences to the source's newest state when none was found.

    Raises:
        SourceUnavailable, SourceRefused: The source cannot be asked.
        StoreUnavailable: Silver cannot be read now.
    """
    silver = _SilverTable(places, feed.name, table)
    if not connector.has_snapshots(feed.tables[table]):
        return unknown(table, "a table without snapshots cannot be compared with the source")
    if not silver.exists():
        return unknown(table, "there is nothing to compare with the source", verdict=Verdict.NOT_BUILT)
    until, keys = clock() + patience, feed.tables[table].keys
    other = built_otherwise(places, connector, feed, table, keys)
    if other is not None:
        return unknown(table, other)
    with connector.subscribe(feed, table) as watch:
        states = States(watch.keys)
        while True:
            for update in watch.take(_WAIT):
                states.take(update.changes, watch.columns, snapshot=update.snapshot)
            silver.look()
            if silver.digest in states.seen:
                return _equal(table, silver.seen)
            if clock() >= until:
                return _nowhere(table, keys, states, silver.seen)


class _SilverTable:
    """A silver table, read anew when it has a newer version."""

    def __init__(self, places: Places, feed: str, table: str) -> None:
        self._places, self._feed, self._table = places, feed, table
        self.seen: Silver
        self.digest = -1
        """Of all its rows; -1 when there is none yet."""

    def exists(self) -> bool:
        """Tell whether there is a table."""
        return open_table(self._place) is not None

    def look(self) -> None:
        """Read what is new."""
        opened = open_table(self._place)
        if opened is None or (self.digest >= 0 and opened.version() == self.seen.rows.version):
            return
        now = read_silver(self._places, self._feed, self._table)
        if now is None:
            return
        names = [name for name in now.rows.names if name != "_position"]
        self.seen, self.digest = now, sum(map(row_digest, now.rows.table().select(names).to_pylist())) % _MOD

    @property
    def _place(self) -> Place:
        return self._places.silver(self._feed, self._table)


def _nowhere(table: str, keys: tuple[str, ...], states: States, silver: Silver) -> TableVerification:
    """Return how silver differs from the source's newest state."""
    if not states.seen:
        return unknown(table, "the source sent no snapshot in time", silver)
    fold = states.fold
    expected = Expected(keys or fold.own_columns, (*fold.own_columns, *fold.columns), fold.all_rows(), None)
    never = f"in {len(states.seen)} states the source was never what silver is; silver may be behind: see its lag"
    found = compared(table, lambda _: expected, silver)
    return found if found.verdict is Verdict.EQUAL else found.model_copy(update={"reason": never})


def _equal(table: str, silver: Silver) -> TableVerification:
    rows = silver.rows.count
    return unknown(table, None, silver, Verdict.EQUAL).model_copy(
        update={"expected_rows": rows, "missing_rows": 0, "extra_rows": 0, "different_cells": 0}
    )


@dataclass
class _DigestedFold(TableFold):
    """A table's state, and the sum of its rows' digests."""

    digest: int = 0
    columns: Sequence[str] = ()

    def put(self, key: tuple[Any, ...], row: Row | None) -> None:
        """Let a row stand at a key, or none."""
        stands = self.rows.get(key)
        if stands is not None:
            self.digest -= self._of(stands)
        super().put(key, row)
        if row is not None:
            self.digest += self._of(row)

    def _of(self, row: Row) -> int:
        return row_digest({name: row.get(name) for name in (*self.own_columns, *self.columns)})


class States:
    """The states a table of the source has stood in, as far as they were watched."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.fold = _DigestedFold(keys)
        self.seen: set[int] = set()
        """Digests of all states, each at the end of an update."""

    def take(self, changes: Sequence[ReferenceChange], columns: Sequence[str], *, snapshot: bool) -> None:
        """Apply one whole update."""
        self.fold.columns = columns
        self.fold.apply(changes, snapshot=snapshot)
        self.seen.add(self.fold.digest % _MOD)


def row_digest(row: Mapping[str, Any]) -> int:
    """Return a number for a row, whatever the order of its columns."""
    cells = [(name, _canonical(row[name])) for name in sorted(row)]
    return int.from_bytes(hashlib.blake2b(repr(cells).encode(), digest_size=8).digest())


def _canonical(value: Any) -> Any:
    """Return a value in the one form that equal values have: zero has no sign, a moment no name of its time zone."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    return value.isoformat() if isinstance(value, datetime) else value
