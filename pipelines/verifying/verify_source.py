"""Verify silver against the source itself: was the source's table ever in the state of silver?

A separate subscription (`connectors.verification.SourceSubscription`) gives the source's table as a snapshot, then
update by update. The table is retained in memory, with a digest of its state at the end of each update. Silver, read
without Spark, has a digest too. If it is among them, silver *is* the source's table as of that update: the current
state while the source rests, one of its states while it changes.

This proves that connection, receiver, bronze and build together neither lost nor invented anything, for the one version
of silver found equal. It proves nothing about other versions, nor that silver will reach the newest state, nor that the
source sends the right data to two subscriptions. It does not apply to a changelog or a table without snapshots, whose
rows say nothing about the source's table: the latter is compared by replay, if the source keeps its records
(`verify_replay`). Different tables will not by chance have the same digest (64 bits per row, summed).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from silverfold.conf.errors import SourceUnavailable
from silverfold.conf.text import without_secrets
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.cuts import built_otherwise
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.compared_rows import Silver, read_silver
from silverfold.pipelines.verifying.reference_fold import Expected
from silverfold.pipelines.verifying.table_fold import Row, TableFold
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, compare_table, unknown
from silverfold.pipelines.verifying.verify_replay import verify_by_replay

_WAIT = 0.25
"""Seconds between reads of silver."""

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
    """Search for an update of the source at which its table was in silver's state.

    Args:
        patience: Seconds to search. Silver is reread whenever it has a new version; the source is followed all the
            time. A replay needs none.

    Returns:
        ``different`` with the differences to the source's newest state if none was found.

    Raises:
        SourceUnavailable, SourceRefused: The source cannot be queried, or cannot be compared with.
        StoreUnavailable: Silver cannot be read now.
    """
    try:
        return _search(places, connector, feed, table, patience=patience, clock=clock)
    except SourceUnavailable as error:
        source = f"{table} cannot be asked for at {without_secrets(feed.address)}"
        raise SourceUnavailable(f"{source}: {error}") from error


def _search(
    places: Places, connector: Connector, feed: Feed, table: str, *, patience: float, clock: Callable[[], float]
) -> TableVerification:
    replay = None
    if not connector.has_snapshots(feed.tables[table]):
        replay = connector.replay(feed, table)
        if replay is None:
            return unknown(table, "a table without snapshots cannot be compared with the source")
    first, keys = read_silver(places, feed.name, table), feed.tables[table].keys
    if first is None:
        return unknown(table, "there is nothing to compare with the source", verdict=Verdict.NOT_BUILT)
    other = built_otherwise(places, connector, feed, table, keys)
    if other is not None:
        return unknown(table, other)
    if replay is not None:
        with replay as source:
            return verify_by_replay(places, connector, feed, table, first, replay=source)
    silver, until = _SilverTable(places, feed.name, table, connector.row_number), clock() + patience
    with connector.subscribe(feed, table) as subscription:
        states = SourceStates(subscription.keys, connector.row_number)
        while True:
            for update in subscription.take(_WAIT):
                states.take(update.changes, subscription.columns, snapshot=update.snapshot)
            silver.refresh()
            if silver.digest in states.seen:
                return _equal(table, silver.seen)
            if clock() >= until:
                return _not_found(table, keys, states, silver.seen)


class _SilverTable:
    """A silver table, reread when it has a newer version."""

    def __init__(self, places: Places, feed: str, table: str, ignored: Sequence[str]) -> None:
        self._places, self._feed, self._table, self._ignored = places, feed, table, ("_position", *ignored)
        self.seen: Silver
        self.digest = -1
        """Digest of all its rows; -1 if there is no table yet."""

    def refresh(self) -> None:
        """Read the table if it has a new version."""
        opened = open_table(self._place)
        if opened is None or (self.digest >= 0 and opened.version() == self.seen.rows.version):
            return
        now = read_silver(self._places, self._feed, self._table)
        if now is None:
            return
        names = [name for name in now.rows.names if name not in self._ignored]
        self.seen, self.digest = now, sum(map(row_digest, now.rows.table().select(names).to_pylist())) % _MOD

    @property
    def _place(self) -> Place:
        return self._places.silver(self._feed, self._table)


def _not_found(table: str, keys: tuple[str, ...], states: SourceStates, silver: Silver) -> TableVerification:
    """Return how silver differs from the source's newest state."""
    if not states.seen:
        return unknown(table, "the source sent no snapshot in time", silver)
    fold = states.fold
    never = f"in {len(states.seen)} states the source was never what silver is; silver may be behind: see its lag"
    if states.are_numbered:  # rows of equal numbers need not be the same
        found = unknown(table, never, silver, Verdict.DIFFERENT)
        return found.model_copy(update={"expected_rows": len(fold.rows)})
    expected = Expected(keys or fold.own_columns, (*fold.own_columns, *fold.columns), fold.all_rows(), None)
    found = compare_table(table, lambda _: expected, silver)
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
    ignored: Sequence[str] = ()

    def put(self, key: tuple[Any, ...], row: Row | None) -> None:
        """Set the row at a key, or delete it with None."""
        previous = self.rows.get(key)
        if previous is not None:
            self.digest -= self._of(previous)
        super().put(key, row)
        if row is not None:
            self.digest += self._of(row)

    def _of(self, row: Row) -> int:
        names = {*self.own_columns, *self.columns}.difference(self.ignored)
        return row_digest({name: row.get(name) for name in names})


class SourceStates:
    """The observed states of a table of the source.

    Args:
        row_number: `Connector.row_number`.
    """

    def __init__(self, keys: tuple[str, ...], row_number: tuple[str, ...] = ()) -> None:
        self.are_numbered = bool(row_number) and keys == row_number
        self.fold = _DigestedFold(keys, ignored=row_number if self.are_numbered else ())
        self.seen: set[int] = set()
        """Digests of all states, each at the end of an update."""

    def take(self, changes: Sequence[ReferenceChange], columns: Sequence[str], *, snapshot: bool) -> None:
        """Apply one complete update."""
        self.fold.columns = columns
        self.fold.apply(changes, snapshot=snapshot)
        self.seen.add(self.fold.digest % _MOD)


def row_digest(row: Mapping[str, Any]) -> int:
    """Return a hash of a row, independent of the order of its columns."""
    cells = [(name, _canonical(row[name])) for name in sorted(row)]
    return int.from_bytes(hashlib.blake2b(repr(cells).encode(), digest_size=8).digest())


def _canonical(value: Any) -> Any:
    """Return a canonical form that equal values share: zero without sign, times without a time zone name."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    return value.isoformat() if isinstance(value, datetime) else value
