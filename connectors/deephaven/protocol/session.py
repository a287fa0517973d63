"""The client's side of a session, without a socket: bytes in, events out; requests in, bytes out.

Feed with `Session.receive`, then pull with `Session.next_event` until it returns None. The two are separate so that a
bad frame never costs the good ones before it. Events do not depend on chunk boundaries. A violation gives one
`BadFrame`, which holds the bytes, and is final: every later `next_event` raises its error.

The session parses headers, root blocks and control messages. Rows stay bytes; see
`connectors.deephaven.protocol.columns.decode`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from silverfold.conf.errors import InvalidValue, LocalProtocolError, ProtocolError, RemoteProtocolError, WireError
from silverfold.connectors.deephaven.protocol.control import (
    decode_subscribe_response,
    decode_subscription_error,
    encode_subscribe,
    encode_unsubscribe,
)
from silverfold.connectors.deephaven.protocol.frames import PREFIX_SIZE, SLACK, FrameCutter, Known, PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.handshake import FIRST_FRAME, Calibration, Expected, calibrate
from silverfold.connectors.deephaven.protocol.messages import (
    BadFrame,
    ColumnReceived,
    ConnectionResponse,
    Event,
    RowsRemovedReceived,
    SubscribeMode,
    UnknownMessage,
    UnsubscribeResponse,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.roles import Header, Roles, Subscribed
from silverfold.connectors.deephaven.protocol.subscriptions import ENDED, Subscription, SubscriptionState

LARGEST_BUFFER = 1 << 26
"""Largest message buffer size accepted from a server, in bytes: 64 MiB, a thousand times the usual size."""

_MAX_HEADS = 1024
"""Limit of remembered beginnings of row messages: a peer could make up more."""

_Reader = Callable[[bytes, Header], Event]


class Session:
    """One connection to a table server.

    Args:
        roles: Roles of the schema, in its own byte order.
        expected: What the settings require of the server; by default everything is taken from the first frame.
        largest_buffer: Largest message buffer size to accept, in bytes; a server that announces more is refused.
    """

    def __init__(self, roles: Roles, *, expected: Expected | None = None, largest_buffer: int = LARGEST_BUFFER) -> None:
        self._roles = roles
        self._expected = expected
        self._largest_buffer = largest_buffer
        self._header_size = roles.schema.header.size
        self._cutter = FrameCutter(header_size=self._header_size, counts=PrefixCounts.MESSAGE, largest=1)
        self._calibration: Calibration | None = None
        self._readers: dict[int, _Reader] = {}
        self._heads: dict[bytes, Known[Subscription]] = {}
        self.head_size = 0
        """Bytes of a row message up to behind its subscription id; 0 before the server's first message."""
        self._subscriptions: dict[int, Subscription] = {}
        self._pending: deque[Event] = deque()
        self._eof = self._closed = False
        self._greeted = False
        self._error: WireError | ProtocolError | None = None

    @property
    def calibration(self) -> Calibration | None:
        """Parameters learned from the first frame; None until it has arrived."""
        return self._calibration

    @property
    def roles(self) -> Roles:
        """Roles for reading this server's messages, once `calibration` is set."""
        return self._roles

    @property
    def ended(self) -> bool:
        """Whether nothing more can come: after an error, or after the end of the connection and all its events."""
        over = self._error is not None or (self._eof and not self._cutter.held)
        return over and not self._pending

    def state(self, subscription_id: int) -> SubscriptionState | None:
        """Return the state of a subscription; None for an id that was never subscribed."""
        found = self._subscriptions.get(subscription_id)
        return None if found is None else found.state

    def subscribe(
        self,
        subscription_id: int,
        mode: SubscribeMode,
        table: str,
        columns: Sequence[str] = (),
        filter: str = "",
    ) -> bytes:
        """Return the bytes that subscribe to a table. No columns: all of them; an empty filter: all rows.

        Raises:
            LocalProtocolError: The id was used before in this session, the first frame has not arrived, the schema or
                the server's buffer cannot hold the request, or the session is over.
        """
        self._check_ready()
        if subscription_id in self._subscriptions:
            raise LocalProtocolError(f"subscription id {subscription_id} was used before in this session")
        try:
            request = encode_subscribe(self._roles, subscription_id, mode, table, columns=columns, row_filter=filter)
        except InvalidValue as error:
            raise LocalProtocolError(f"subscription {subscription_id} cannot be sent: {error}") from error
        sent = self._encode_frame(request)
        self._subscriptions[subscription_id] = Subscription(subscription_id, mode)
        return sent

    def forget(self, subscription_id: int) -> bool:
        """Forget a subscription that has ended; return whether there was one. A later message of it is a violation."""
        if self.state(subscription_id) not in ENDED:
            return False
        del self._subscriptions[subscription_id]
        self._heads.clear()
        return True

    def unsubscribe(self, subscription_id: int) -> bytes:
        """Return the bytes that end a subscription. Updates may still arrive until the server has answered.

        Raises:
            LocalProtocolError: The id was never subscribed, the schema lacks the request, or the session is over.
        """
        self._check_ready()
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise LocalProtocolError(f"subscription id {subscription_id} was never subscribed")
        sent = self._encode_frame(encode_unsubscribe(self._roles, subscription_id))
        subscription.send_unsubscribe()
        return sent

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. After an error they are ignored: the connection must be dropped."""
        if self._error is None:
            self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Take the end of the connection, closed or broken."""
        self._eof = True

    def close(self) -> None:
        """End the connection here: frames received but not reported are dropped, and updates still open are void."""
        self._eof = self._closed = True

    def next_event(self) -> Event | None:
        """Return the next event, or None when more bytes are needed or the connection has ended.

        When the connection ends or fails, each open update gives an `UpdateVoided`. Then an incomplete frame gives a
        `BadFrame`, as does a connection that ends before its first frame (with no bytes).

        Raises:
            WireError, RemoteProtocolError: The error of the `BadFrame` before; on every call from then on.
        """
        if self._pending:
            return self._pending.popleft()
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._closed:
            self._void_open_updates()
            return self._pending.popleft() if self._pending else None
        try:
            body = self._cutter.next_body() if self._calibration else self._first_body()
        except (WireError, RemoteProtocolError) as error:
            return self._fail(self._cutter.left(), error)
        if body is None:
            return self._end() if self._eof else None
        try:
            return self._read(body)
        except (WireError, RemoteProtocolError) as error:
            return self._fail(body, error)

    def next_rows(self) -> list[tuple[bytes, Subscription]]:
        """Return the bodies of the next row messages, up to the first other event, each with its subscription.

        These are the messages that `next_event` would return as `ColumnReceived` and `RowsRemovedReceived`, only
        faster. The list may be empty although `next_event` would return some. Meant for receivers of many small
        messages.
        """
        return [] if self._pending else self._cutter.next_known(self._heads, self.head_size)

    def _first_body(self) -> bytes | None:
        """Cut the first frame by the parameters that it shows."""
        received = self._cutter.left()[: PREFIX_SIZE + FIRST_FRAME + self._header_size]
        found = calibrate(self._roles, received, self._expected)
        if found is None:
            return None
        if found.message_buffer_size > self._largest_buffer:
            raise RemoteProtocolError(
                f"the server announces a message buffer of {found.message_buffer_size} bytes, "
                f"{self._largest_buffer} are allowed"
            )
        self._cutter.accept(counts=found.prefix_counts, largest=len(received))
        body = self._cutter.next_body()
        self._cutter.accept(counts=found.prefix_counts, largest=found.message_buffer_size + SLACK)
        self._calibration, self._roles = found, found.adapt(self._roles)
        self._readers = self._build_readers()
        self.head_size = self._header_size + max(map(_end_of_id, (self._roles.removed, *self._roles.columns.values())))
        return body

    def _build_readers(self) -> dict[int, _Reader]:
        """Return the reader of each template id that a server may send."""
        roles = self._roles
        readers = {template: self._rows_reader(role, ColumnReceived) for template, role in roles.columns.items()}
        readers[roles.removed.message.id] = self._rows_reader(roles.removed, RowsRemovedReceived)
        readers[roles.connection.message.id] = self._read_connection
        readers[roles.response.message.id] = self._read_response
        readers[roles.begin.message.id] = self._read_begin
        readers[roles.end.message.id] = self._read_end
        if roles.unsubscribed is not None:
            readers[roles.unsubscribed.message.id] = self._read_unsubscribed
        if roles.refusal is not None:
            readers[roles.refusal.message.id] = self._read_refusal
        for request in filter(None, (roles.subscribe, roles.unsubscribe)):
            readers[request.message.id] = self._read_client_message
        return readers

    def _read(self, body: bytes) -> Event:
        header = self._roles.read_header(body)
        reader = self._readers.get(header.template_id)
        return UnknownMessage(body, header.template_id) if reader is None else reader(body, header)

    def _rows_reader(
        self, role: Subscribed, make: Callable[[bytes, int, bool], ColumnReceived | RowsRemovedReceived]
    ) -> _Reader:
        subscriptions, read, name = self._subscriptions, role.read, role.message.name

        def rows(body: bytes, header: Header) -> Event:
            subscription_id = read(body, header)[0]
            subscription = subscriptions.get(subscription_id)
            if subscription is None:
                raise _unknown_subscription(name, subscription_id)
            if not subscription.open:
                raise subscription.rows_violation(name)
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[body[: self.head_size]] = Known(header.end_of_root, subscription)
            return make(body, subscription_id, subscription.snapshot)

        return rows

    def _read_connection(self, body: bytes, header: Header) -> Event:
        if self._greeted or self._calibration is None:
            raise RemoteProtocolError("the server sent a second ConnectionResponse")
        self._greeted = True
        return ConnectionResponse(body, self._calibration.message_buffer_size)

    def _read_client_message(self, _body: bytes, header: Header) -> Event:
        raise RemoteProtocolError(f"the server sent {self._roles.schema.templates[header.template_id].name}")

    def _read_response(self, body: bytes, header: Header) -> Event:
        response = decode_subscribe_response(self._roles, body, header)
        self._find(response.subscription_id, "TableSubscribeResponse").receive_response()
        return response

    def _read_begin(self, body: bytes, header: Header) -> Event:
        (subscription_id,) = self._roles.begin.read(body, header)
        subscription = self._find(subscription_id, "BeginTableUpdate")
        subscription.receive_begin()
        return UpdateBegan(body, subscription_id, subscription.snapshot)

    def _read_end(self, body: bytes, header: Header) -> Event:
        (subscription_id,) = self._roles.end.read(body, header)
        subscription = self._find(subscription_id, "EndTableUpdate")
        snapshot = subscription.snapshot
        subscription.receive_end()
        return UpdateEnded(body, subscription_id, snapshot)

    def _read_unsubscribed(self, body: bytes, header: Header) -> Event:
        assert self._roles.unsubscribed is not None
        (subscription_id,) = self._roles.unsubscribed.read(body, header)
        subscription = self._find(subscription_id, "TableUnsubscribeResponse")
        return self._after_void(
            subscription_id, subscription.receive_unsubscribed, UnsubscribeResponse(body, subscription_id)
        )

    def _read_refusal(self, body: bytes, header: Header) -> Event:
        """Handle a TableSubscriptionError.

        An unknown id is no violation: no document defines the id in an error without a subscription.
        """
        refusal = decode_subscription_error(self._roles, body, header)
        subscription = self._subscriptions.get(refusal.subscription_id)
        if subscription is None:
            return refusal
        return self._after_void(refusal.subscription_id, lambda: subscription.receive_error(refusal.code), refusal)

    def _after_void(self, subscription_id: int, change: Callable[[], None], event: Event) -> Event:
        """Apply a change that may end a subscription; an update open until then is voided before the event."""
        subscription = self._subscriptions[subscription_id]
        was_open = subscription.open
        change()
        if was_open and not subscription.open:
            self._pending.append(event)
            return UpdateVoided(subscription_id, subscription.snapshot)
        return event

    def _find(self, subscription_id: int, message: str) -> Subscription:
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise _unknown_subscription(message, subscription_id)
        return subscription

    def _end(self) -> Event | None:
        if self._cutter.held:
            cut_off = self._cutter.left()
            return self._fail(cut_off, RemoteProtocolError(f"the connection ended {len(cut_off)} bytes into a frame"))
        if self._calibration is None:
            return self._fail(b"", RemoteProtocolError("the connection ended before its first frame"))
        self._void_open_updates()
        return self._pending.popleft() if self._pending else None

    def _fail(self, body: bytes, error: WireError | ProtocolError) -> Event:
        self._error = error
        self._void_open_updates()
        self._pending.append(BadFrame(body, error))
        return self._pending.popleft()

    def _void_open_updates(self) -> None:
        for subscription_id, subscription in self._subscriptions.items():
            if subscription.open:
                subscription.open = False
                self._pending.append(UpdateVoided(subscription_id, subscription.snapshot))

    def _check_ready(self) -> None:
        if self._calibration is None:
            raise LocalProtocolError("requests wait for the server's first frame")
        if self._error is not None or self._eof:
            raise LocalProtocolError("the session is over")

    def _encode_frame(self, request: bytes) -> bytes:
        assert self._calibration is not None
        if len(request) > self._calibration.message_buffer_size:
            detail = (
                f"a request of {len(request)} bytes, the server's buffer has {self._calibration.message_buffer_size}"
            )
            raise LocalProtocolError(detail)
        return frame(request, self._calibration.prefix_counts, header_size=self._header_size)


def _end_of_id(role: Subscribed) -> int:
    """Return how many bytes of a root block the session reads of a row message: up to the subscription id's end."""
    field = role.message.field(role.ids.names[0])
    return field.offset + field.size


def _unknown_subscription(message: str, subscription_id: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{message} for subscription {subscription_id}, which was never requested")
