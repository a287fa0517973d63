"""The course of one connection, without a socket: bytes in, frames for bronze out, and requests when they are due.

Which frame lands as what is the table in `PROTOCOL.md`, "How frames land". Bodies are kept as they came; of a column
message nothing but header and subscription is read. A stream is of a silver table; each time it is subscribed it
gets an id of its own, so that what belongs to an older subscription cannot be taken for the newer one's.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from conf.errors import LocalProtocolError, RemoteProtocolError, WireError
from connectors.backoff import Backoff
from connectors.base import Boundary, Frame, Kind, mark
from connectors.deephaven.messages import (
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
from connectors.deephaven.options import DeephavenTable
from connectors.deephaven.protocol import Session
from connectors.deephaven.roles import Roles
from connectors.deephaven.subscriptions import SubscriptionState

_BOUNDARIES: Mapping[type[Event], Boundary] = {
    UpdateBegan: Boundary.BEGIN,
    ColumnReceived: Boundary.INSIDE,
    RowsRemovedReceived: Boundary.INSIDE,
    UpdateEnded: Boundary.END,
}
_KINDS = (Kind.DATA, Kind.SNAPSHOT)
"""By whether the update is a snapshot."""
_REFUSED = {SubscriptionState.FAILED, SubscriptionState.REQUESTED}


class Epoch:
    """One connection from its first byte to its last.

    Args:
        tables: By stream.
        rests: Per stream, seconds that it is to stay out of this epoch; 0.0 for none.
        backoffs: Per stream, the waits before a refused subscription is asked for again.
        clock: Seconds, of any origin.
    """

    def __init__(
        self,
        session: Session,
        tables: Mapping[str, DeephavenTable],
        *,
        rests: Mapping[str, float],
        backoffs: Mapping[str, Backoff],
        clock: Callable[[], float],
    ) -> None:
        self._session, self._tables, self._backoffs, self._clock = session, tables, backoffs, clock
        self._rests = rests
        self._stopping = False
        self._landing: Mapping[type[Event], Callable[[Any], Sequence[Frame]]] = {
            ConnectionResponse: self._connected,
            SubscribeResponse: self._answer,
            UnsubscribeResponse: self._unsubscribed,
            SubscriptionError: self._refused,
            UpdateBegan: self._of_update,
            ColumnReceived: self._of_update,
            RowsRemovedReceived: self._of_update,
            UpdateEnded: self._of_update,
            UpdateVoided: self._void,
            UnknownMessage: self._unknown,
            BadFrame: self._broken,
        }
        self._streams: dict[int, str] = {}
        self._ids = count(1)
        self._due: dict[str, float] = {}
        self._unknown_ones: Counter[int] = Counter()
        self.greeted = False
        """The server's first frame has come, and was understood."""
        self.error: RemoteProtocolError | None = None
        """Why the connection is to be dropped."""

    @property
    def took_part(self) -> set[str]:
        """Streams that were subscribed."""
        return set(self._streams.values())

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes and return the frames that became whole. After `error` is set, there are no more."""
        self._session.receive(chunk)
        return self._pull()

    def receive_eof(self) -> list[Frame]:
        """Take the end of the connection and return what is left to land: marks of updates that stay void."""
        self._session.receive_eof()
        return self._pull()

    def stop(self, arrived: bytes) -> list[Frame]:
        """Take the last bytes before we ourselves drop the connection. Part of a frame is no fault then."""
        frames = self.receive(arrived)
        self._stopping = True
        return frames + self.receive_eof()

    def wait(self) -> float | None:
        """Return seconds until a request is due; None when none is to come."""
        return max(0.0, min(self._due.values()) - self._clock()) if self._due else None

    def requests(self) -> tuple[bytes, list[Frame]]:
        """Return the requests that are due now, and the marks that say so; both empty when there are none."""
        now = self._clock()
        sent = bytearray()
        marks: list[Frame] = []
        for stream in [stream for stream, due in self._due.items() if due <= now]:
            del self._due[stream]
            try:
                sent += self._subscribe(stream, marks)
            except LocalProtocolError as error:  # to ask again would not help in this epoch
                marks.append(
                    mark("subscription failed", stream=stream, level="warning", code=error.error_class, text=str(error))
                )
        return bytes(sent), marks

    def _subscribe(self, stream: str, marks: list[Frame]) -> bytes:
        table, subscription_id = self._tables[stream], next(self._ids)
        request = self._session.subscribe(subscription_id, table.mode, table.source, table.columns, table.filter)
        self._streams[subscription_id] = stream
        asked = "updates asked" if table.mode is SubscribeMode.UPDATES_ONLY else "snapshot asked"
        marks.append(mark(asked, stream=stream, subscription_id=subscription_id))
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
            event = self._session.next_event()
            if event is None:
                return frames
            frames += self._landing[type(event)](event)
            if self.error is not None:
                return frames

    def _answer(self, event: SubscribeResponse | UnsubscribeResponse) -> list[Frame]:
        return [Frame(event.body, Kind.CONTROL, stream=self._streams[event.subscription_id])]

    def _unsubscribed(self, event: UnsubscribeResponse) -> Sequence[Frame]:
        """Ask again for what the server ended unasked, unless that is due anyway, or has been asked for again."""
        stream = self._streams[event.subscription_id]
        newest = max(each for each, name in self._streams.items() if name == stream)
        if stream in self._due or event.subscription_id != newest:
            return self._answer(event)
        text = "the server ended the subscription, unasked"
        return [*self._answer(event), self._failed(stream, code="ENDED", text=text, subscription_id=newest)]

    def _failed(self, stream: str, **details: Any) -> Frame:
        """Let a stream be asked for again, later; return the mark that says so."""
        wait = self._backoffs[stream].next_wait()
        self._due[stream] = self._clock() + wait
        return mark("subscription failed", stream=stream, next_in=round(wait, 3), level="warning", **details)

    def _void(self, event: UpdateVoided) -> Sequence[Frame]:
        return [mark("update void", stream=self._streams[event.subscription_id])]

    def _unknown(self, event: UnknownMessage) -> Sequence[Frame]:
        self._unknown_ones[event.template_id] += 1
        number = self._unknown_ones[event.template_id]
        if number != 10 ** (len(str(number)) - 1):  # a server may send nothing else
            return []
        return [mark("unknown template", template_id=event.template_id, count=number, body=_text(event.body))]

    def _of_update(self, event: UpdateBegan | ColumnReceived | RowsRemovedReceived | UpdateEnded) -> Sequence[Frame]:
        stream = self._streams[event.subscription_id]
        table = self._tables[stream]
        if isinstance(event, UpdateEnded):
            self._backoffs[stream].reset()
            if table.mode is SubscribeMode.SNAPSHOT_ONLY:
                self._due[stream] = self._clock() + table.every
        return [Frame(event.body, _KINDS[event.snapshot], _BOUNDARIES[type(event)], stream)]

    def _connected(self, event: ConnectionResponse) -> Sequence[Frame]:
        self.greeted = True
        now = self._clock()
        self._due = {stream: now + self._rests[stream] for stream in self._tables}
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
        resting = [
            mark("stream suspended", stream=stream, level="warning", seconds=round(rest, 3))
            for stream, rest in self._rests.items()
            if rest
        ]
        return [Frame(event.body, Kind.CONTROL), calibrated, *resting]

    def _refused(self, event: SubscriptionError) -> Sequence[Frame]:
        stream = self._streams.get(event.subscription_id)
        frame = Frame(event.body, Kind.CONTROL, stream=stream)
        details = {"code": event.code, "text": event.text, "subscription_id": event.subscription_id}
        if stream is None or self._session.state(event.subscription_id) not in _REFUSED:
            return [frame, mark("server error", stream=stream, level="warning", **details)]
        return [frame, self._failed(stream, **details)]

    def _broken(self, event: BadFrame) -> Sequence[Frame]:
        stream = self._streams.get(_subscription_id(self._session.roles, event.body) or 0)
        error = event.error
        self.error = RemoteProtocolError(str(error), stream=stream)
        if self._stopping:
            return []
        return [
            mark(
                "bad frame",
                stream=stream,
                level="warning",
                error_class=error.error_class,
                reason=str(error),
                body=_text(event.body),
            )
        ]


def _text(body: bytes) -> str:
    return b64encode(body).decode("ascii")


def _subscription_id(roles: Roles, body: bytes) -> int | None:
    """Return which subscription a bad frame belongs to, as far as it tells."""
    named = (roles.response, roles.begin, roles.end, roles.removed, roles.unsubscribed, roles.refusal)
    known = {role.message.id: role for role in (*named, *roles.columns.values()) if role is not None}
    try:
        header = roles.read_header(body)
        return known[header.template_id].read(body, header)[0]
    except (WireError, KeyError):
        return None
