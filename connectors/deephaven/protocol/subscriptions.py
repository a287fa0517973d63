"""State machine of one subscription, as the client sees it.

::

    requested ──response──▶ snapshotting ──End──▶ live (or closed, SNAPSHOT_ONLY)
        │                   (UPDATES_ONLY: live at once)
        └──error──▶ failed ◀──error── any        live ──unsubscribe──▶ closing ──response──▶ closed

An update is open between its Begin and its End. A message that does not fit the state is an error of the server.
"""

from __future__ import annotations

from enum import StrEnum

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.deephaven.protocol.messages import ErrorCode, SubscribeMode

_HARMLESS = frozenset({ErrorCode.DUPLICATE_SUBSCRIPTION_ID, ErrorCode.INVALID_SUBSCRIPTION_ID})
"""Codes of a failed request, which leave the subscription that has the id intact."""


class SubscriptionState(StrEnum):
    """State of a subscription."""

    REQUESTED = "requested"
    SNAPSHOTTING = "snapshotting"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


ENDED = frozenset({SubscriptionState.CLOSED, SubscriptionState.FAILED})
"""States after which no update can come."""


class Subscription:
    """One subscription id of a session.

    Attributes:
        id: Id on the wire.
        state: Current state.
        open: Whether an update has begun and not ended.
        snapshot: Whether the open update, or else the next one, is the snapshot.
    """

    __slots__ = ("_answered", "_mode", "id", "open", "snapshot", "state")

    def __init__(self, subscription_id: int, mode: SubscribeMode) -> None:
        self.id, self._mode, self._answered = subscription_id, mode, False
        self.state = SubscriptionState.REQUESTED
        self.open = False
        self.snapshot = mode is not SubscribeMode.UPDATES_ONLY

    def receive_response(self) -> None:
        """Handle a TableSubscribeResponse."""
        if self._answered or self.state in ENDED:
            raise self._violation("a second TableSubscribeResponse")
        self._answered = True
        if self.state is SubscriptionState.REQUESTED:
            self.state = SubscriptionState.SNAPSHOTTING if self.snapshot else SubscriptionState.LIVE

    def receive_begin(self) -> None:
        """Handle a BeginTableUpdate."""
        if not self._answered or self.state in ENDED:
            raise self._violation("BeginTableUpdate")
        if self.open:
            raise self._violation("BeginTableUpdate inside an open update")
        self.open = True

    def receive_end(self) -> None:
        """Handle an EndTableUpdate."""
        if not self.open:
            raise self._violation("EndTableUpdate without BeginTableUpdate")
        was_snapshot, self.open, self.snapshot = self.snapshot, False, False
        if was_snapshot and self._mode is SubscribeMode.SNAPSHOT_ONLY:
            self.state = SubscriptionState.CLOSED
        elif self.state is SubscriptionState.SNAPSHOTTING:
            self.state = SubscriptionState.LIVE

    def send_unsubscribe(self) -> None:
        """Record that a TableUnsubscribe was sent."""
        if self.state not in ENDED:
            self.state = SubscriptionState.CLOSING

    def receive_unsubscribed(self) -> None:
        """Handle a TableUnsubscribeResponse; a server may also send one after a SNAPSHOT_ONLY snapshot or a failure."""
        if not self._answered:
            raise self._violation("TableUnsubscribeResponse")
        self.open = False
        if self.state is not SubscriptionState.FAILED:
            self.state = SubscriptionState.CLOSED

    def receive_error(self, code: str) -> None:
        """Handle a TableSubscriptionError with this id."""
        if code not in _HARMLESS and self.state is not SubscriptionState.CLOSED:
            self.open, self.state = False, SubscriptionState.FAILED

    def rows_violation(self, message: str) -> RemoteProtocolError:
        """Return the error for rows outside an update."""
        return self._violation(f"{message} outside an update")

    def _violation(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{what} for subscription {self.id}, which is {self.state}")
