"""Connects a subscription to its table, once: updates flow until it is closed, from any thread.

A subscription may be closed while another thread is still opening it. Then nothing flows, and it is detached from the
table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from silverfold.connectors.deephaven.server.publication import Publication
from silverfold.connectors.deephaven.server.tables.live_table import Detach
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows


class TableSubscription:
    """The flow of updates from a table to one subscription of a client.

    Args:
        publication: The subscription.
        deliver: Called with every update, in the updating thread. Must neither raise nor block.
    """

    def __init__(self, publication: Publication, deliver: Callable[[TableSubscription, NetChange], None]) -> None:
        self.publication = publication
        self._deliver = deliver
        self._lock = threading.Lock()
        self._detach: Detach | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing may be sent any more."""
        return self._closed

    def open(self) -> None:
        """Start the flow of updates."""
        table = self.publication.table
        self._store_detach(table.listen(self._on_update, before=self.publication.filter_columns))

    def open_with_snapshot(self) -> Rows:
        """Start the flow of updates, and return the rows as they were before the first of them."""
        publication = self.publication
        snapshot, detach = publication.table.listen_from(
            self._on_update, publication.snapshot_columns, before=publication.filter_columns
        )
        self._store_detach(detach)
        return snapshot.rows

    def stop(self) -> None:
        """Stop the flow. Never waits; `detach` follows."""
        self._closed = True

    def detach(self) -> None:
        """Stop the flow and detach from the table. May wait for the table; safe to repeat."""
        with self._lock:
            self._closed = True
            detach, self._detach = self._detach, None
        if detach is not None:
            detach()

    def _on_update(self, delta: NetChange) -> None:
        if not self._closed:
            self._deliver(self, delta)

    def _store_detach(self, detach: Detach) -> None:
        with self._lock:
            if not self._closed:
                self._detach = detach
                return
        detach()
