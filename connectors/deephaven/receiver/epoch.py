"""One connection, without a socket: bytes in, frames for bronze out, and requests when they are due.

`PROTOCOL.md`, "How frames land", lists what each frame lands as. Bodies land byte for byte; of a column message only
the header and the subscription id are read. Each stream feeds one silver table. Every subscription of a stream gets a
new id, so frames of an older subscription cannot be mistaken for the newer one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from silverfold.conf.errors import LocalProtocolError, RemoteProtocolError, SourceUnavailable, WireError
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.deephaven.protocol.columns.decode import read_column
from silverfold.connectors.deephaven.protocol.messages import (
    BadFrame,
    ColumnReceived,
    ConnectionResponse,
    Event,
    RowsRemovedReceived,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
    UnknownMessage,
    UnsubscribeResponse,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.subscriptions import SubscriptionState
from silverfold.connectors.frames import Boundary, Frame, Kind, mark

_BOUNDARIES: Mapping[type[Event], Boundary] = {
    UpdateBegan: Boundary.BEGIN,
    ColumnReceived: Boundary.INSIDE,
    RowsRemovedReceived: Boundary.INSIDE,
    UpdateEnded: Boundary.END,
}
_KINDS = (Kind.DATA, Kind.SNAPSHOT)
"""Indexed by whether the update is a snapshot."""
_REFUSED_STATES = {SubscriptionState.FAILED, SubscriptionState.REQUESTED}


_REMEMBERED: Final = 1_000
"""Subscriptions remembered behind the newest: with ``snapshot_only`` each snapshot is one, and leaves 300 bytes."""
_MOST_COUNTS: Final = 10_000
"""Subscriptions and types of columns whose messages are counted, before all counts begin anew."""
_WARNINGS: Final = {
    "range-overlap": "ranges of rows overlap or descend: of a row that is in several, the last value counts",
    "trailing-bytes": "bytes follow the message, though its version is not newer than ours: they are ignored",
    "decimal-byte-order": "some BigDecimal looks as if its bytes came in reverse: check values against the source",
}
"""Reasons for marks, by the warnings of `ColumnMessage`."""
_CHECKED: Final = frozenset(10**digits for digits in range(19))


class ColumnChecks:
    """Reads some column messages whole as they arrive: what a server does otherwise than described, it does always.

    Rows are decoded later, where nobody watches. A check of every message would cost more than all else here.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._reported = set[tuple[str, str, str]]()

    def is_due(self, body: bytes, head_size: int) -> bool:
        """Count a row message; return whether it is the 1st, 10th, 100th … with its header and subscription id."""
        head = body[:head_size]
        number = self._counts.get(head, 0) + 1
        if number == 1 and len(self._counts) > _MOST_COUNTS:
            self._counts.clear()
        self._counts[head] = number  # 0.3 µs in all, of 1.0 for a message of 57 bytes
        return number in _CHECKED

    def check(self, roles: Roles, body: bytes, stream: str) -> list[Frame]:
        """Return marks of what is strange in a message, each once; none if it is unreadable, which decoding reports."""
        if roles.template_id(body) not in roles.columns:
            return []
        try:
            found = read_column(roles, body)
        except WireError:
            return []
        kind = found.type.name
        new = [each for each in found.warnings if (stream, kind, each) not in self._reported]
        self._reported.update((stream, kind, each) for each in new)
        return [
            mark("strange column", stream=stream, level="warning", kind=each, type=kind, reason=_WARNINGS[each])
            for each in new
        ]


class Epoch:
    """One connection from its first byte to its last.

    Args:
        tables: By stream.
        suspensions: Per stream, seconds that it is suspended in this epoch; 0.0 for none.
        backoffs: Per stream, the waits before a refused subscription is requested again.
        clock: Seconds from an arbitrary origin.
    """

    def __init__(
        self,
        session: Session,
        tables: Mapping[str, DeephavenTable],
        *,
        suspensions: Mapping[str, float],
        backoffs: Mapping[str, Backoff],
        clock: Callable[[], float],
    ) -> None:
        self._session, self._tables, self._backoffs, self._clock = session, tables, backoffs, clock
        self._suspensions = suspensions
        self._stopping = False
        self._handlers: Mapping[type[Event], Callable[[Any], Sequence[Frame]]] = {
            ConnectionResponse: self._land_connection_response,
            SubscribeResponse: self._land_response,
            UnsubscribeResponse: self._land_unsubscribed,
            SubscriptionError: self._land_error,
            UpdateBegan: self._land_update_frame,
            ColumnReceived: self._land_update_frame,
            RowsRemovedReceived: self._land_update_frame,
            UpdateEnded: self._land_update_frame,
            UpdateVoided: self._mark_void,
            UnknownMessage: self._mark_unknown,
            BadFrame: self._land_bad_frame,
        }
        self._streams: dict[int, str] = {}
        self._ids = count(1)
        self._due: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._unknown_counts: Counter[int] = Counter()
        self._checks = ColumnChecks()
        self.greeted = False
        """Whether the server's first frame has arrived and was valid."""
        self.error: RemoteProtocolError | None = None
        """Reason to drop the connection; None while there is none."""

    @property
    def subscribed_streams(self) -> set[str]:
        """Streams that were subscribed."""
        return set(self._streams.values())

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes and return the frames that they complete. After `error` is set, no more frames are returned."""
        self._session.receive(chunk)
        return self._pull()

    def receive_eof(self) -> list[Frame]:
        """Take the end of the connection and return what is left to land: marks of void updates."""
        self._session.receive_eof()
        return self._pull()

    def stop(self) -> list[Frame]:
        """Take the end when we drop the connection ourselves. A partial frame is not an error then."""
        self._stopping = True
        return self.receive_eof()

    def wait(self) -> float | None:
        """Return seconds until the next request is due; None when none is scheduled."""
        return max(0.0, min(self._due.values()) - self._clock()) if self._due else None

    def requests(self) -> tuple[bytes, list[Frame]]:
        """Return the requests due now, and the marks that record them; both empty when nothing is due.

        Raises:
            SourceUnavailable: The ids of subscriptions are used up. A new connection begins with the first again.
        """
        now = self._clock()
        sent = bytearray()
        marks: list[Frame] = []
        for stream in [stream for stream, due in self._due.items() if due <= now]:
            del self._due[stream]
            try:
                sent += self._subscribe(stream, marks)
            except LocalProtocolError as error:  # a retry would not help in this epoch
                if stream in self._streams.values():
                    raise SourceUnavailable(f"the connection's subscription ids are used up: {error}") from error
                marks.append(
                    mark("subscription failed", stream=stream, level="warning", code=error.error_class, text=str(error))
                )
        return bytes(sent), marks

    def _subscribe(self, stream: str, marks: list[Frame]) -> bytes:
        table, subscription_id = self._tables[stream], next(self._ids)
        if self._session.forget(old := subscription_id - _REMEMBERED):
            del self._streams[old]
        request = self._session.subscribe(subscription_id, table.mode, table.source, table.columns, table.filter)
        self._streams[subscription_id], self._asked_at[stream] = stream, self._clock()
        name = "updates asked" if table.mode is SubscribeMode.UPDATES_ONLY else "snapshot asked"
        marks.append(mark(name, stream=stream, subscription_id=subscription_id))
        return request

    def _pull(self) -> list[Frame]:
        frames: list[Frame] = []
        if self.error is not None:
            return frames
        streams, inside, new = self._streams, Boundary.INSIDE, tuple.__new__
        while True:
            rows = self._session.next_rows()
            frames += [
                new(Frame, (body, _KINDS[subscription.snapshot], inside, streams[subscription.id], None))
                for body, subscription in rows
            ]
            for body, subscription in rows:
                if self._checks.is_due(body, self._session.head_size):
                    frames += self._checks.check(self._session.roles, body, streams[subscription.id])
            event = self._session.next_event()
            if event is None:
                return frames
            frames += self._handlers[type(event)](event)
            if self.error is not None:
                return frames

    def _land_response(self, event: SubscribeResponse | UnsubscribeResponse) -> list[Frame]:
        return [Frame(event.body, Kind.CONTROL, stream=self._streams[event.subscription_id])]

    def _land_unsubscribed(self, event: UnsubscribeResponse) -> Sequence[Frame]:
        """Request the table again if the server ended the subscription without a request of ours.

        Nothing is scheduled if a request is due anyway, or a newer subscription of the stream exists.
        """
        stream = self._streams[event.subscription_id]
        newest = max(each for each, name in self._streams.items() if name == stream)
        if stream in self._due or event.subscription_id != newest:
            return self._land_response(event)
        text = "the server ended the subscription, unasked"
        return [
            *self._land_response(event),
            self._schedule_retry(stream, code="ENDED", text=text, subscription_id=newest),
        ]

    def _schedule_retry(self, stream: str, **details: Any) -> Frame:
        """Schedule a later request for a stream; return the mark that records it."""
        wait = self._backoffs[stream].next_wait()
        self._due[stream] = self._clock() + wait
        return mark("subscription failed", stream=stream, next_in=round(wait, 3), level="warning", **details)

    def _mark_void(self, event: UpdateVoided) -> Sequence[Frame]:
        return [mark("update void", stream=self._streams[event.subscription_id])]

    def _mark_unknown(self, event: UnknownMessage) -> Sequence[Frame]:
        self._unknown_counts[event.template_id] += 1
        number = self._unknown_counts[event.template_id]
        if number != 10 ** (len(str(number)) - 1):  # marks 1, 10, 100, …: a server may send nothing else
            return []
        return [bad_input("unknown template", event.body, template_id=event.template_id, count=number)]

    def _land_update_frame(
        self, event: UpdateBegan | ColumnReceived | RowsRemovedReceived | UpdateEnded
    ) -> Sequence[Frame]:
        stream = self._streams[event.subscription_id]
        table = self._tables[stream]
        if isinstance(event, UpdateEnded):
            now, backoff = self._clock(), self._backoffs[stream]
            if table.mode is SubscribeMode.SNAPSHOT_ONLY:
                backoff.reset()
                self._due[stream] = now + table.every
            elif not event.snapshot and now - self._asked_at[stream] >= backoff.bound:  # others may fail soon each time
                backoff.reset()
        frame = Frame(event.body, _KINDS[event.snapshot], _BOUNDARIES[type(event)], stream)
        is_due = isinstance(event, ColumnReceived) and self._checks.is_due(event.body, self._session.head_size)
        return [frame, *(self._checks.check(self._session.roles, event.body, stream) if is_due else ())]

    def _land_connection_response(self, event: ConnectionResponse) -> Sequence[Frame]:
        self.greeted = True
        now = self._clock()
        self._due = {stream: now + self._suspensions[stream] for stream in self._tables}
        found = self._session.calibration
        assert found is not None
        calibrated = mark(
            "calibrated",
            byte_order="little" if found.byte_order == "<" else "big",
            prefix_counts=found.prefix_counts,
            message_buffer_size=found.message_buffer_size,
            schema_id=found.schema_id,
            version=found.version,
            differences=found.differences,
        )
        suspended = [
            mark("stream suspended", stream=stream, level="warning", seconds=round(suspension, 3))
            for stream, suspension in self._suspensions.items()
            if suspension
        ]
        return [Frame(event.body, Kind.CONTROL), calibrated, *suspended]

    def _land_error(self, event: SubscriptionError) -> Sequence[Frame]:
        stream = self._streams.get(event.subscription_id)
        frame = Frame(event.body, Kind.CONTROL, stream=stream)
        details = {"code": event.code, "text": event.text, "subscription_id": event.subscription_id}
        if stream is None or self._session.state(event.subscription_id) not in _REFUSED_STATES:
            return [frame, mark("server error", stream=stream, level="warning", **details)]
        return [frame, self._schedule_retry(stream, **details)]

    def _land_bad_frame(self, event: BadFrame) -> Sequence[Frame]:
        stream = self._streams.get(_subscription_id(self._session.roles, event.body) or 0)
        error = event.error
        self.error = RemoteProtocolError(str(error), stream=stream)
        if self._stopping:
            return []
        return [bad_input("bad frame", event.body, error, stream=stream, level="warning")]


def _subscription_id(roles: Roles, body: bytes) -> int | None:
    """Return the subscription id of a bad frame; None if it cannot be read."""
    named = (roles.response, roles.begin, roles.end, roles.removed, roles.unsubscribed, roles.refusal)
    known = {role.message.id: role for role in (*named, *roles.columns.values()) if role is not None}
    try:
        header = roles.read_header(body)
        return known[header.template_id].read(body, header)[0]
    except (WireError, KeyError):
        return None
