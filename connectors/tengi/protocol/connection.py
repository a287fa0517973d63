"""Both sides of a connection, without a socket.

::

    client:  IDLE ──send_handshake──▶ WAIT_HANDSHAKE ──answer──▶ OPEN ──eof, error──▶ CLOSED
    server:  WAIT_HANDSHAKE ──request──▶ ACCEPTING ──accept──▶ OPEN ──eof, error──▶ CLOSED

    packet = flag 00, handshake | flag 01, object Identifier (connection id), object

On TCP ``receive`` takes chunks; the client's first bytes are `MAGIC`. On WebSocket and HTTP it takes one unit, a frame
or a body, which is one packet. Pull with ``next_event`` until it returns None.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from silverfold.conf.errors import (
    InvalidValue,
    LocalProtocolError,
    OversizedMessage,
    ProtocolError,
    RemoteProtocolError,
    TruncatedMessage,
    WireError,
)
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.encoder import Encoder
from silverfold.connectors.tengi.protocol.errors import cut_off
from silverfold.connectors.tengi.protocol.events import (
    BadFrame,
    Closed,
    Event,
    HandshakeReceived,
    MessageReceived,
    Peer,
    PollAnswered,
    PollReceived,
    Transport,
)
from silverfold.connectors.tengi.protocol.heads import MAGIC, MESSAGE, Head, encode_message, read_head
from silverfold.connectors.tengi.protocol.limits import (
    JAVA_CUT,
    JAVA_MAX_FRAME,
    JAVA_MAX_TCP,
    MAX_ANSWER,
    MAX_HANDSHAKE,
    MAX_PACKET,
)
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.scanner import PacketScanner
from silverfold.connectors.tengi.protocol.simple_messages import PacketEnds
from silverfold.connectors.tengi.protocol.values import (
    SMALLEST_MESSAGE,
    Handshake,
    Identifier,
    Message,
    PollingRequest,
)

_POLLING_REQUEST: Final = b"\xff\x98\xff\x36"
_POLLING_RESPONSE: Final = b"\xff\x98\xff\x35"
_HANDSHAKE: Final = len(MAGIC) + MAX_HANDSHAKE
"""Most bytes of the first packet of either side, with what is before it on TCP."""


class State(Enum):
    """What a connection expects next."""

    IDLE = auto()
    WAIT_HANDSHAKE = auto()
    ACCEPTING = auto()
    """Server: our answer to the handshake."""
    OPEN = auto()
    CLOSED = auto()


class Connection(ABC):
    """Common base of both sides.

    A violation yields one `events.BadFrame`. It is final on TCP; elsewhere a WireError only costs the unit.

    Args:
        types: User types.
        peer: A Java peer cuts its packets on TCP and WebSocket, and takes packets of a limited size.
        max_packet: Most bytes of a packet but a handshake, in both directions.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        types: TypeRegistry = BUILT_IN,
        peer: Peer = Peer.TENGI,
        max_packet: int = MAX_PACKET,
    ) -> None:
        self.transport, self.types, self.peer = transport, types, peer
        self.connection_id: Identifier | None = None
        """Known once the connection is open."""
        self.trailing_bytes = 0
        """Bytes after packets that were ignored. Only a Java peer may send any."""
        self._max_packet, self._eof, self._state = max_packet, False, State.IDLE
        self._units: deque[bytes] = deque()
        self._later: deque[Event] = deque()
        self._error: WireError | ProtocolError | None = None
        self._ends = PacketEnds()
        self._scanner = PacketScanner(types, limit=_HANDSHAKE, ends=self._ends)

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state

    def receive(self, octets: bytes) -> None:
        """Take received bytes: on TCP any chunk, else one unit."""
        if self.transport is Transport.TCP:
            self._scanner.receive(octets)
        else:
            self._units.append(octets)

    def receive_eof(self) -> None:
        """Record that no bytes follow: an incomplete packet becomes an error."""
        self._eof = True

    def send_message(self, message: Message) -> bytes:
        """Return the packet of a message.

        Raises:
            LocalProtocolError: The connection is not open.
            OversizedMessage: ``too_large``: the peer would not take it.
            WireError: The body cannot be written.
        """
        return self.send_encoded(encode_message(message, self.types))

    def send_encoded(self, message: bytes) -> bytes:
        """Return the packet of an encoded message. Raises as `send_message`."""
        return self._checked(self._open_head() + message, self._max_packet)

    def next_event(self) -> Event | None:
        """Return the next event; None if more bytes are needed, and after `events.Closed`.

        Raises:
            WireError, ProtocolError: The final error of an earlier `events.BadFrame`.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._later:
            return self._later.popleft()
        raw: bytes | None = None
        try:
            raw = self._next_packet()
            if raw is not None:
                return self._take(raw, read_head(raw))
            self._check_end()
        except (WireError, ProtocolError) as error:
            return self._refused(error, raw)
        if not self._eof or self._state is State.CLOSED:
            return None
        self._state = State.CLOSED
        return Closed("end of the connection")

    @abstractmethod
    def _take(self, raw: bytes, head: Head) -> Event:
        """Return the event of a packet. Raise WireError or ProtocolError."""

    def _expect_cuts(self) -> None:
        if self.peer is Peer.JAVA and self.transport is Transport.TCP:
            self._scanner.expect_cuts(JAVA_CUT)

    def _next_packet(self) -> bytes | None:
        if self.transport is Transport.TCP:
            return self._scanner.next_packet()
        return self._units.popleft() if self._units else None

    def _refused(self, error: WireError | ProtocolError, raw: bytes | None) -> BadFrame:
        is_stream = self.transport is Transport.TCP
        octets = (raw or b"") + (self._scanner.left() if is_stream else b"")
        if isinstance(error, TruncatedMessage) and len(octets) == JAVA_CUT and self.transport is not Transport.HTTP:
            error = cut_off(JAVA_CUT)
        if is_stream or isinstance(error, ProtocolError) or self._state is not State.OPEN:
            self._error, self._state = error, State.CLOSED
        return BadFrame(error, octets)

    def _check_end(self) -> None:
        if self._eof and self._scanner.held and self._state is not State.CLOSED:
            detail = f"the stream ends {self._scanner.held} bytes into a packet"
            raise TruncatedMessage(detail, offset=self._scanner.held, reason="truncated")

    def _message(self, raw: bytes, head: Head) -> MessageReceived:
        """Return the event of a message. A unit must end with it; a stream's packet was cut at its end."""
        if head.message_id is None:
            raise RemoteProtocolError("a second handshake", reason="second_handshake")
        if head.connection_id is None or head.connection_id != self.connection_id:
            raise RemoteProtocolError("a message of another connection", reason="foreign_connection")
        if self.transport is not Transport.TCP:
            raw = self._without_rest(raw, head.at)
        return MessageReceived(head.connection_id, head.message_id, raw, head.at, self.types)

    def _without_rest(self, unit: bytes, at: int) -> bytes:
        scanner = PacketScanner(self.types, limit=self._max_packet, ends=self._ends)
        scanner.receive(unit[at:])
        found = scanner.next_object()
        if found is None:
            raise TruncatedMessage(f"a unit of {len(unit)} bytes ends too early", offset=len(unit), reason="truncated")
        self._check_rest(unit, at + len(found))
        return unit[: at + len(found)]

    def _check_rest(self, unit: bytes, end: int) -> None:
        rest = len(unit) - end
        if rest and self.peer is not Peer.JAVA:
            raise InvalidValue(f"{rest} bytes follow the packet", offset=end, reason="trailing_bytes")
        self.trailing_bytes += rest

    def _handshake(self, raw: bytes, head: Head) -> Mapping[str, object]:
        if head.message_id is not None:
            raise RemoteProtocolError("a message before the handshake", reason="no_handshake")
        _check_handshake(raw)
        decoder = Decoder(raw, self.types, at=head.at, limit=MAX_HANDSHAKE)
        values: Mapping[str, object] = decoder.read_object().values
        self._check_rest(raw, decoder.offset)
        return values

    def _open_head(self) -> bytes:
        if self._state is not State.OPEN or self.connection_id is None:
            raise LocalProtocolError(f"nothing can be sent in the state {self._state.name}")
        return b"\1\xff\x9b" + self.connection_id

    def _open(self, connection_id: Identifier) -> None:
        """Open the connection, after both handshakes."""
        self.connection_id, self._state = connection_id, State.OPEN
        self._scanner.limit, self._scanner.head = self._max_packet, self._open_head()
        self._expect_cuts()

    def _checked(self, packet: bytes, limit: int) -> bytes:
        if self.peer is Peer.JAVA:
            limit = {Transport.TCP: JAVA_MAX_TCP, Transport.WEBSOCKET: JAVA_MAX_FRAME}.get(self.transport, limit)
        if len(packet) > limit:
            raise OversizedMessage(f"a packet of {len(packet)} bytes, {limit} are allowed", reason="too_large")
        return packet


def _encode_handshake(head: bytes, values: Mapping[str, object] | None, types: TypeRegistry) -> bytes:
    encoder = Encoder(types)
    encoder.write_object(Handshake(values or {}))
    return _check_handshake(head + encoder.to_bytes())


def _check_handshake(packet: bytes) -> bytes:
    if len(packet) > MAX_HANDSHAKE:
        detail = f"a handshake of {len(packet)} bytes, {MAX_HANDSHAKE} are allowed"
        raise OversizedMessage(detail, reason="too_large")
    return packet


class ClientConnection(Connection):
    """The client's side. ``max_answer``: most bytes of an answer to a poll."""

    def __init__(
        self,
        transport: Transport,
        *,
        types: TypeRegistry = BUILT_IN,
        peer: Peer = Peer.TENGI,
        max_packet: int = MAX_PACKET,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        super().__init__(transport, types=types, peer=peer, max_packet=max_packet)
        self._max_answer = max_answer
        self._expect_cuts()

    def send_handshake(self, values: Mapping[str, object] | None = None) -> bytes:
        """Return the first bytes to send. A Java peer must get them in one write.

        Raises:
            LocalProtocolError: It was sent before.
            WireError: A value cannot be written, or is too large.
        """
        if self._state is not State.IDLE:
            raise LocalProtocolError("the handshake was sent before")
        request = _encode_handshake(b"\0", values, self.types)
        sent = self._checked(MAGIC + request if self.transport is Transport.TCP else request, _HANDSHAKE)
        self._state = State.WAIT_HANDSHAKE
        return sent

    def send_poll(self, message_id: Identifier | None = None) -> bytes:
        """Return the body of a poll over HTTP. Raises LocalProtocolError if the connection is not open."""
        return self.send_message(Message(message_id or Identifier.random(), PollingRequest()))

    def _take(self, raw: bytes, head: Head) -> Event:
        if head.connection_id is None:
            raise RemoteProtocolError("a packet without connection id", reason="no_connection_id")
        if self._state is State.OPEN:
            is_answer = raw[head.at : head.at + 4] == _POLLING_RESPONSE and self.transport is Transport.HTTP
            return self._answer(raw, head) if is_answer else self._message(raw, head)
        if self._state is not State.WAIT_HANDSHAKE:
            raise RemoteProtocolError("a packet before our handshake", reason="no_handshake")
        values = self._handshake(raw, head)
        self._open(head.connection_id)
        return HandshakeReceived(head.connection_id, values)

    def _answer(self, raw: bytes, head: Head) -> PollAnswered:
        """Return the messages of an answer. The rest from the first bad one on is a later event."""
        if head.connection_id is None or head.connection_id != self.connection_id:
            raise RemoteProtocolError("an answer of another connection", reason="foreign_connection")
        if len(raw) > self._max_answer:
            detail = f"an answer of {len(raw)} bytes, {self._max_answer} are allowed (`max_answer`)"
            raise OversizedMessage(detail, reason="too_large")
        decoder = Decoder(raw, at=head.at + 4, limit=self._max_answer)
        messages: list[MessageReceived] = []
        at = decoder.offset
        try:
            count = decoder.read_count(SMALLEST_MESSAGE)
            at = decoder.offset
            scanner = PacketScanner(self.types, limit=self._max_packet, ends=self._ends)
            scanner.receive(raw[at:])
            for _ in range(count):
                messages.append(self._entry(scanner, head.connection_id))
                at += len(messages[-1].raw)
            self._check_rest(raw, at)
        except WireError as error:
            self._later.append(BadFrame(error, raw[at:]))
        return PollAnswered(tuple(messages))

    def _entry(self, scanner: PacketScanner, connection_id: Identifier) -> MessageReceived:
        entry = scanner.next_object()
        if entry is None:
            raise TruncatedMessage("an answer ends in a message", reason="truncated")
        if not entry.startswith(MESSAGE):
            raise InvalidValue("an answer has an object that is no message", reason="unexpected_object")
        return MessageReceived(connection_id, Identifier(entry[4:20]), entry, 20, self.types)


class ServerConnection(Connection):
    """The server's side. On HTTP each request's body is a unit; `read_head` identifies its connection."""

    def __init__(
        self,
        transport: Transport,
        *,
        types: TypeRegistry = BUILT_IN,
        peer: Peer = Peer.TENGI,
        max_packet: int = MAX_PACKET,
    ) -> None:
        super().__init__(transport, types=types, peer=peer, max_packet=max_packet)
        self._state = State.WAIT_HANDSHAKE
        self._has_magic = transport is not Transport.TCP

    def accept(self, connection_id: Identifier, values: Mapping[str, object] | None = None) -> bytes:
        """Return the answer to the handshake, and open the connection. To refuse, close the socket without an answer.

        Raises:
            LocalProtocolError: No handshake came, or it was answered.
            WireError: A value cannot be written, or is too large.
        """
        if self._state is not State.ACCEPTING:
            raise LocalProtocolError(f"no handshake can be answered in the state {self._state.name}")
        answer = self._checked(_encode_handshake(b"\1\xff\x9b" + connection_id, values, self.types), _HANDSHAKE)
        self._open(connection_id)  # of the requests of Java's client, only the handshake is whole
        return answer

    def send_poll_answer(self, message_id: Identifier, messages: Iterable[bytes]) -> bytes:
        """Return the body of the answer to a poll.

        Args:
            messages: Encoded by `encode_message`.

        Raises:
            LocalProtocolError: The connection is not open.
        """
        entries = list(messages)
        head = self._open_head() + b"\xff\x9a\xff\x9b" + message_id + _POLLING_RESPONSE
        return b"".join((head, len(entries).to_bytes(4), *entries))

    def _next_packet(self) -> bytes | None:
        if not self._has_magic:
            found = self._scanner.left()[: len(MAGIC)]
            if not MAGIC.startswith(found):
                raise RemoteProtocolError("the first bytes are not TeNgI", reason="no_magic")
            if len(found) < len(MAGIC):
                return None
            self._scanner.skip(len(MAGIC))
            self._has_magic = True
        return super()._next_packet()

    def _take(self, raw: bytes, head: Head) -> Event:
        if self._state is State.WAIT_HANDSHAKE:
            if head.connection_id is not None:
                raise RemoteProtocolError("a packet before the handshake", reason="no_handshake")
            values = self._handshake(raw, head)
            self._state = State.ACCEPTING
            return HandshakeReceived(None, values)
        message = self._message(raw, head)
        if self.transport is Transport.HTTP and raw[head.at : head.at + 4] == _POLLING_REQUEST:
            return PollReceived(message.message_id)
        return message
