"""The client's side of a session, without a socket: bytes in, events out; requests in, bytes out.

Feed with `Session.receive`, pull with `Session.next_event` until it returns None. The two are apart so that a bad
frame never costs the good ones before it. Events do not depend on where the chunks of bytes end. A violation gives
one `BadFrame`, which holds the bytes, and is final: every later `next_event` raises its error.

The session reads headers, root blocks and control messages. Rows stay bytes: `connectors.deephaven.columns`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from conf.errors import InvalidValue, LocalProtocolError, ProtocolError, RemoteProtocolError, WireError
from connectors.deephaven.control import (
    decode_subscribe_response,
    decode_subscription_error,
    encode_subscribe,
    encode_unsubscribe,
)
from connectors.deephaven.frames import PREFIX_SIZE, SLACK, FrameCutter, Known, PrefixCounts, frame
from connectors.deephaven.handshake import FIRST_FRAME, Calibration, Expected, calibrate
from connectors.deephaven.messages import (
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
from connectors.deephaven.roles import Header, Roles, Subscribed
from connectors.deephaven.subscriptions import Subscription, SubscriptionState

LARGEST_BUFFER = 1 << 26
"""Message buffer size, in bytes, that is accepted from a server: 64 MiB, a thousand times what is usual."""

_MOST_HEADS = 1024
"""Beginnings of row messages to remember: a peer could make up more."""

_Reader = Callable[[bytes, Header], Event]


class Session:
    """One connection to a table server.

    Args:
        roles: Of the schema, in its own byte order.
        expected: What the settings say about the server; by default the first frame tells everything.
        largest_buffer: Message buffer size to accept, in bytes; a server that announces more is refused.
    """

    def __init__(self, roles: Roles, *, expected: Expected | None = None, largest_buffer: int = LARGEST_BUFFER) -> None:
        self._roles = roles
        self._expected = expected
        self._largest_buffer = largest_buffer
        self._header_size = roles.schema.header.size
        self._cutter = FrameCutter(header_size=self._header_size, counts=PrefixCounts.MESSAGE, largest=0)
        self._calibration: Calibration | None = None
        self._readers: dict[int, _Reader] = {}
        self._heads: dict[bytes, Known[Subscription]] = {}
        self._head_size = 0
        self._subscriptions: dict[int, Subscription] = {}
        self._pending: deque[Event] = deque()
        self._eof = False
        self._greeted = False
        self._error: WireError | ProtocolError | None = None

    @property
    def calibration(self) -> Calibration | None:
        """What the first frame told; None until it has come."""
        return self._calibration

    @property
    def roles(self) -> Roles:
        """The roles by which this server's messages are read, once `calibration` is there."""
        return self._roles

    @property
    def ended(self) -> bool:
        """Tell whether nothing more can come: an error, or the end of the connection and all before it."""
        over = self._error is not None or (self._eof and not self._cutter.held)
        return over and not self._pending

    def state(self, subscription_id: int) -> SubscriptionState | None:
        """Return where a subscription stands; None for an id that was never subscribed."""
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
            LocalProtocolError: The id was used before in this session, the first frame has not come, the schema or
                the server's buffer cannot hold the request, or the session is over.
        """
        self._check_ready()
        if subscription_id in self._subscriptions:
            raise LocalProtocolError(f"subscription id {subscription_id} was used before in this session")
        try:
            request = encode_subscribe(self._roles, subscription_id, mode, table, columns=columns, row_filter=filter)
        except InvalidValue as error:
            raise LocalProtocolError(f"subscription {subscription_id} cannot be sent: {error}") from error
        sent = self._framed(request)
        self._subscriptions[subscription_id] = Subscription(subscription_id, mode)
        return sent

    def unsubscribe(self, subscription_id: int) -> bytes:
        """Return the bytes that end a subscription. Updates may still come until the server has answered.

        Raises:
            LocalProtocolError: The id was never subscribed, the schema lacks the request, or the session is over.
        """
        self._check_ready()
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise LocalProtocolError(f"subscription id {subscription_id} was never subscribed")
        sent = self._framed(encode_unsubscribe(self._roles, subscription_id))
        subscription.leave()
        return sent

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. After an error they are ignored: the connection is to be dropped."""
        if self._error is None:
            self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """The server closed the connection, or it broke."""
        self._eof = True

    def next_event(self) -> Event | None:
        """Return the next event, or None when more bytes are needed or the connection has ended.

        When the connection ends or fails, each open update gives an `UpdateVoided`; then bytes that are no whole frame
        give a `BadFrame`, as does a connection that ends before its first frame (with no bytes).

        Raises:
            WireError, RemoteProtocolError: What the `BadFrame` before said; every time from then on.
        """
        if self._pending:
            return self._pending.popleft()
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            body = self._cutter.next_body() if self._calibration else self._first_body()
        except (WireError, RemoteProtocolError) as error:
            return self._fail(self._cutter.peek(self._cutter.held), error)
        if body is None:
            return self._end() if self._eof else None
        try:
            return self._read(body)
        except (WireError, RemoteProtocolError) as error:
            return self._fail(body, error)

    def next_rows(self) -> list[tuple[bytes, Subscription]]:
        """Return bodies of row messages that come next, up to the first other event, each with its subscription.

        What `next_event` would give as `ColumnReceived` and `RowsRemovedReceived`, only faster; may be empty where that
        gives some. For receivers of many small messages.
        """
        return [] if self._pending else self._cutter.next_known(self._heads, self._head_size)

    def _first_body(self) -> bytes | None:
        """Cut the first frame by what it tells of itself."""
        received = self._cutter.peek(PREFIX_SIZE + FIRST_FRAME + self._header_size)
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
        self._readers = self._all_readers()
        self._head_size = self._header_size + max(map(_end_of_id, (self._roles.removed, *self._roles.columns.values())))
        return body

    def _all_readers(self) -> dict[int, _Reader]:
        """What to do with each template id that a server may send."""
        roles = self._roles
        readers = {template: self._rows_reader(role, ColumnReceived) for template, role in roles.columns.items()}
        readers[roles.removed.message.id] = self._rows_reader(roles.removed, RowsRemovedReceived)
        readers[roles.connection.message.id] = self._connected
        readers[roles.response.message.id] = self._answered
        readers[roles.begin.message.id] = self._began
        readers[roles.end.message.id] = self._ended
        if roles.unsubscribed is not None:
            readers[roles.unsubscribed.message.id] = self._unsubscribed
        if roles.refusal is not None:
            readers[roles.refusal.message.id] = self._refused
        for request in filter(None, (roles.subscribe, roles.unsubscribe)):
            readers[request.message.id] = self._misdirected
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
                raise _unknown(name, subscription_id)
            if not subscription.open:
                raise subscription.unfit_rows(name)
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            self._heads[body[: self._head_size]] = Known(header.end_of_root, subscription)
            return make(body, subscription_id, subscription.snapshot)

        return rows

    def _connected(self, body: bytes, header: Header) -> Event:
        if self._greeted or self._calibration is None:
            raise RemoteProtocolError("the server sent a second ConnectionResponse")
        self._greeted = True
        return ConnectionResponse(body, self._calibration.message_buffer_size)

    def _misdirected(self, _body: bytes, header: Header) -> Event:
        raise RemoteProtocolError(f"the server sent {self._roles.schema.templates[header.template_id].name}")

    def _answered(self, body: bytes, header: Header) -> Event:
        response = decode_subscribe_response(self._roles, body, header)
        self._known(response.subscription_id, "TableSubscribeResponse").answered()
        return response

    def _began(self, body: bytes, header: Header) -> Event:
        (subscription_id,) = self._roles.begin.read(body, header)
        subscription = self._known(subscription_id, "BeginTableUpdate")
        subscription.began()
        return UpdateBegan(body, subscription_id, subscription.snapshot)

    def _ended(self, body: bytes, header: Header) -> Event:
        (subscription_id,) = self._roles.end.read(body, header)
        subscription = self._known(subscription_id, "EndTableUpdate")
        snapshot = subscription.snapshot
        subscription.ended()
        return UpdateEnded(body, subscription_id, snapshot)

    def _unsubscribed(self, body: bytes, header: Header) -> Event:
        assert self._roles.unsubscribed is not None
        (subscription_id,) = self._roles.unsubscribed.read(body, header)
        subscription = self._known(subscription_id, "TableUnsubscribeResponse")
        return self._after_void(subscription_id, subscription.unsubscribed, UnsubscribeResponse(body, subscription_id))

    def _refused(self, body: bytes, header: Header) -> Event:
        """An id that is not ours is no violation: nothing says what an error without a subscription carries."""
        refusal = decode_subscription_error(self._roles, body, header)
        subscription = self._subscriptions.get(refusal.subscription_id)
        if subscription is None:
            return refusal
        return self._after_void(refusal.subscription_id, lambda: subscription.refused(refusal.code), refusal)

    def _after_void(self, subscription_id: int, change: Callable[[], None], event: Event) -> Event:
        """Let a subscription end; an update that was open then is void, and said so before the event."""
        subscription = self._subscriptions[subscription_id]
        was_open = subscription.open
        change()
        if was_open and not subscription.open:
            self._pending.append(event)
            return UpdateVoided(subscription_id, subscription.snapshot)
        return event

    def _known(self, subscription_id: int, message: str) -> Subscription:
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise _unknown(message, subscription_id)
        return subscription

    def _end(self) -> Event | None:
        if self._cutter.held:
            cut_off = self._cutter.peek(self._cutter.held)
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

    def _framed(self, request: bytes) -> bytes:
        assert self._calibration is not None
        if len(request) > self._calibration.message_buffer_size:
            detail = (
                f"a request of {len(request)} bytes, the server's buffer has {self._calibration.message_buffer_size}"
            )
            raise LocalProtocolError(detail)
        return frame(request, self._calibration.prefix_counts, header_size=self._header_size)


def _end_of_id(role: Subscribed) -> int:
    """Return how many bytes of a root block tell all that the session reads of a row message: the subscription id."""
    field = role.message.field(role.ids.names[0])
    return field.offset + field.size


def _unknown(message: str, subscription_id: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{message} for subscription {subscription_id}, which was never requested")
