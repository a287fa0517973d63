"""The states of one subscription, as the client sees them.

::

    requested ──response──▶ snapshotting ──End──▶ live (or closed, SNAPSHOT_ONLY)
        │                   (UPDATES_ONLY: live at once)
        └──error──▶ failed ◀──error── any        live ──unsubscribe──▶ closing ──response──▶ closed

An update is open between its Begin and its End. What does not fit the state is the server's fault.
"""

from __future__ import annotations

from enum import StrEnum

from conf.errors import RemoteProtocolError
from connectors.deephaven.messages import ErrorCode, SubscribeMode

_HARMLESS = frozenset({ErrorCode.DUPLICATE_SUBSCRIPTION_ID, ErrorCode.INVALID_SUBSCRIPTION_ID})
"""The request failed, not the subscription that has the id."""


class SubscriptionState(StrEnum):
    """Where a subscription stands."""

    REQUESTED = "requested"
    SNAPSHOTTING = "snapshotting"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


_ENDED = frozenset({SubscriptionState.CLOSED, SubscriptionState.FAILED})


class Subscription:
    """One subscription id of a session.

    Attributes:
        id: What it is called on the wire.
        state: Where it stands.
        open: Whether an update has begun and not ended.
        snapshot: Whether the open update, or else the next one, is the snapshot.
    """

    __slots__ = ("_answered", "_mode", "id", "open", "snapshot", "state")

    def __init__(self, subscription_id: int, mode: SubscribeMode) -> None:
        self.id, self._mode, self._answered = subscription_id, mode, False
        self.state = SubscriptionState.REQUESTED
        self.open = False
        self.snapshot = mode is not SubscribeMode.UPDATES_ONLY

    def answered(self) -> None:
        """A TableSubscribeResponse came."""
        if self._answered or self.state in _ENDED:
            raise self._unfit("a second TableSubscribeResponse")
        self._answered = True
        if self.state is SubscriptionState.REQUESTED:
            self.state = SubscriptionState.SNAPSHOTTING if self.snapshot else SubscriptionState.LIVE

    def began(self) -> None:
        """A BeginTableUpdate came."""
        if not self._answered or self.state in _ENDED:
            raise self._unfit("BeginTableUpdate")
        if self.open:
            raise self._unfit("BeginTableUpdate inside an open update")
        self.open = True

    def ended(self) -> None:
        """An EndTableUpdate came."""
        if not self.open:
            raise self._unfit("EndTableUpdate without BeginTableUpdate")
        was_snapshot, self.open, self.snapshot = self.snapshot, False, False
        if was_snapshot and self._mode is SubscribeMode.SNAPSHOT_ONLY:
            self.state = SubscriptionState.CLOSED
        elif self.state is SubscriptionState.SNAPSHOTTING:
            self.state = SubscriptionState.LIVE

    def leave(self) -> None:
        """A TableUnsubscribe was sent."""
        if self.state not in _ENDED:
            self.state = SubscriptionState.CLOSING

    def unsubscribed(self) -> None:
        """A TableUnsubscribeResponse came; a server may send one after a SNAPSHOT_ONLY snapshot or a failure too."""
        if not self._answered:
            raise self._unfit("TableUnsubscribeResponse")
        self.open = False
        if self.state is not SubscriptionState.FAILED:
            self.state = SubscriptionState.CLOSED

    def refused(self, code: str) -> None:
        """A TableSubscriptionError with this id came."""
        if code not in _HARMLESS and self.state is not SubscriptionState.CLOSED:
            self.open, self.state = False, SubscriptionState.FAILED

    def unfit_rows(self, message: str) -> RemoteProtocolError:
        """Return the error for rows outside an update."""
        return self._unfit(f"{message} outside an update")

    def _unfit(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{what} for subscription {self.id}, which is {self.state}")
