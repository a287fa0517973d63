"""Connects a subscription to its table, once: updates flow until it is closed, from whichever thread.

A tap may be closed while another thread is still opening it; then nothing flows, and the table forgets it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from connectors.deephaven.publication import Publication
from connectors.deephaven.rows import Delta, Rows
from connectors.deephaven.tables import Detach


class TableSubscription:
    """What flows from a table to one subscription of a client.

    Args:
        publication: The subscription.
        deliver: Called with every update, in the updating thread. Must neither raise nor block.
    """

    def __init__(self, publication: Publication, deliver: Callable[[TableSubscription, Delta], None]) -> None:
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
        """Let updates flow from now on."""
        table = self.publication.table
        self._keep(table.listen(self._flow, before=self.publication.filtered))

    def open_with_snapshot(self) -> Rows:
        """Let updates flow, and return the rows as they were before the first of them."""
        publication = self.publication
        snapshot, detach = publication.table.listen_from(self._flow, publication.looked_at, before=publication.filtered)
        self._keep(detach)
        return snapshot.rows

    def shut(self) -> None:
        """Let nothing flow any more. Never waits; `detach` follows."""
        self._closed = True

    def detach(self) -> None:
        """Shut, and let the table forget it. May wait for the table, and may be repeated."""
        with self._lock:
            self._closed = True
            detach, self._detach = self._detach, None
        if detach is not None:
            detach()

    def _flow(self, delta: Delta) -> None:
        if not self._closed:
            self._deliver(self, delta)

    def _keep(self, detach: Detach) -> None:
        with self._lock:
            if not self._closed:
                self._detach = detach
                return
        detach()
