"""Accepts a server's links. A port may serve several transports: the first bytes tell them apart.

============================  ==================================================
``TeNgI``                     TCP
``GET /wss`` with an upgrade  WebSocket
``POST /channel``             HTTP long polling
anything else                 an error of HTTP, or the connection is closed
============================  ==================================================

Peers without a handshake are bounded in number, bytes and time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.common.server_thread import listen
from silverfold.connectors.common.transport import Address, Connection
from silverfold.connectors.tengi.protocol.connection import ServerConnection
from silverfold.connectors.tengi.protocol.events import HandshakeReceived, Peer, Transport
from silverfold.connectors.tengi.protocol.heads import MAGIC
from silverfold.connectors.tengi.protocol.limits import MAX_HANDSHAKE
from silverfold.connectors.tengi.protocol.values import Handshake, Identifier
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.exchanges import fill, grant_upgrade, read_head
from silverfold.connectors.tengi.transports.link import Link, cancel_and_wait
from silverfold.connectors.tengi.transports.requests import Head, HttpReader, encode_answer, request_error
from silverfold.connectors.tengi.transports.server_polling import ServerPollingLink
from silverfold.connectors.tengi.transports.streams import StreamLink

OnLink: TypeAlias = Callable[[Link], Awaitable[object]]
"""Serves a link. The link is closed on return."""

_MAX_PENDING: Final = 256
"""Most sockets without a handshake, that of TLS included; beyond it, the oldest is closed."""
_MAX_JAVA_BODY: Final = 1 << 20
_HEAD_OF_PACKET: Final = 23
"""Bytes of a body that identify its connection, and show whether it is a Message."""
_NOT_OFFERED: Final = {b"\x1f\x8b": "gzip", b"\xff\x73\x4e\x61": "snappy", b"\x16\x03": "TLS"}
"""What a connection may begin with that a server in Java can be made to understand."""
_ACCEPT_AGAIN: Final = 0.5
"""Seconds between an error of accept and the next try."""


class _Socket(Connection):
    """An accepted connection of a peer."""

    def __init__(self, peer: Address, accepted: Callable[[_Socket], None], silent_after: float | None) -> None:
        super().__init__(silent_after)
        self.peer, self._accepted = str(peer), accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._accepted(self)


class Listening:
    """Listens from `start` to `stop`, and runs ``on_link`` for each link."""

    def __init__(self, settings: Configuration, on_link: OnLink, log: FilteringBoundLogger) -> None:
        self._settings, self._on_link, self._log = settings, on_link, log
        self.ports: dict[Transport, int] = {}
        """Port of each transport; set by `start`."""
        self._is_stopped = False
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[_Socket] = set()
        self._pending: dict[_Socket | asyncio.Task[None], Callable[[], object]] = {}
        """What closes each socket without a handshake, the oldest first; in TLS's handshake a socket is its task."""
        self._crowd_logged_at = float("-inf")
        self._links: set[Link] = set()
        self._polling: dict[Identifier, ServerPollingLink] = {}

    @property
    def link_count(self) -> int:
        """Number of open links."""
        return len(self._links)

    async def start(self) -> None:
        """Start listening.

        Raises:
            SourceUnavailable: A port cannot be listened on. No other is then, either.
            ConfigError: A certificate cannot be used.
        """
        tls = self._settings.tls.server_context() if self._settings.tls else None
        shared: dict[tuple[int, int | None], list[Transport]] = {}
        for transport, port in self._settings.transports.items():
            free = None if port else self._settings.free_ports.get(transport)
            shared.setdefault((port, free), []).append(transport)
        try:
            for (port, _), transports in shared.items():
                listening = listen(self._settings.host, port)
                self._listening.append(listening)
                self.ports |= dict.fromkeys(transports, listening.getsockname()[1])
                self._watch(listening, frozenset(transports), tls)
        except BaseException:
            await self.stop()
            raise
        self._log.info("listening", host=self._settings.host, **{name.value: port for name, port in self.ports.items()})

    async def stop(self) -> None:
        """Stop listening, and end all links at once. Safe to repeat."""
        self._is_stopped = True
        for each in self._listening:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._listening.clear()
        for link in list(self._links):
            await link.abort()
        await cancel_and_wait(*self._tasks)
        for connection in list(self._sockets):
            await connection.close()

    def _watch(self, listening: socket.socket, transports: frozenset[Transport], tls: ssl.SSLContext | None) -> None:
        """Accept sockets as they come. Unlike asyncio's server, this loses no socket that comes during a stop."""
        loop = asyncio.get_running_loop()

        def accept() -> None:
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many files are open
                self._log.warning("accept_failed", reason=str(error))
                loop.remove_reader(listening)
                loop.call_later(_ACCEPT_AGAIN, resume)
                return
            if len(self._tasks) >= 2 * (self._settings.max_connections + _MAX_PENDING):
                accepted.close()
                self._log_crowd("too many sockets are open: new ones are closed")
                return
            accepted.setblocking(False)
            task = self._spawn(self._connect(accepted, Address(*address[:2]), transports, tls))
            task.add_done_callback(lambda done: accepted.close() if done.cancelled() else None)
            task.add_done_callback(lambda done: self._pending.pop(done, None))
            self._add_pending(task, task.cancel)

        def resume() -> None:
            if not self._is_stopped:
                loop.add_reader(listening, accept)

        resume()

    async def _connect(
        self, accepted: socket.socket, peer: Address, transports: frozenset[Transport], tls: ssl.SSLContext | None
    ) -> None:
        """Make a connection of a socket, after the handshake of TLS, if any."""
        task = asyncio.current_task()
        assert task is not None

        def accept(socket: _Socket) -> None:
            self._pending.pop(task, None)
            self._accept(socket, transports)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Socket(peer, accept, self._settings.dead_after),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._settings.handshake_timeout if tls else None,
            )
        except OSError as error:
            reason = str(error) or "the peer closed the connection in the handshake of TLS: it may not trust us"
            self._log.info("client_dropped", client=str(peer), reason=reason)

    def _accept(self, socket: _Socket, transports: frozenset[Transport]) -> None:
        if self._is_stopped:
            socket.abort()
            return
        self._sockets.add(socket)
        self._add_pending(socket, socket.abort)
        self._spawn(self._serve_socket(socket, transports))

    def _add_pending(self, socket: _Socket | asyncio.Task[None], close: Callable[[], object]) -> None:
        self._pending[socket] = close
        if len(self._pending) > _MAX_PENDING:
            self._pending.pop(next(iter(self._pending)))()
            self._log_crowd(f"more than {_MAX_PENDING} sockets without a handshake: the oldest are closed")

    def _log_crowd(self, reason: str) -> None:
        """Log why sockets are closed, at most once in ``handshake_timeout``."""
        now = asyncio.get_running_loop().time()
        if now >= self._crowd_logged_at + self._settings.handshake_timeout:
            self._crowd_logged_at = now
            self._log.warning("clients_dropped", reason=reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve_socket(self, socket: _Socket, transports: frozenset[Transport]) -> None:
        log = self._log.bind(client=socket.peer)
        try:
            await self._sniff(socket, transports)
        except TimeoutError:
            log.info("client_dropped", reason="too slow")
        except SilverfoldError as error:
            log.info("client_dropped", reason=str(error))
        except Exception:
            log.exception("client_failed")
        finally:
            self._pending.pop(socket, None)
            await socket.close()
            self._sockets.discard(socket)

    async def _sniff(self, socket: _Socket, transports: frozenset[Transport]) -> None:
        async with asyncio.timeout(self._settings.handshake_timeout):
            first = b""
            while len(first) < len(MAGIC) and (MAGIC.startswith(first) or first[:1].isupper()):
                chunk = await socket.read()
                if not chunk:
                    return
                first += chunk
        if first.startswith(MAGIC):
            if Transport.TCP in transports:
                await self._serve_stream(socket, Transport.TCP, first)
        elif first[:1].isupper() and transports - {Transport.TCP}:
            await self._serve_http(socket, HttpReader(first), transports)
        elif named := next((name for begin, name in _NOT_OFFERED.items() if first.startswith(begin)), None):
            raise RemoteProtocolError(f"{named} is not offered here", reason="not_offered")

    async def _serve_stream(self, socket: _Socket, transport: Transport, first: bytes) -> None:
        protocol, log = self._protocol(transport), self._log.bind(client=socket.peer, transport=transport.value)
        link = StreamLink(
            socket,
            protocol,
            self._settings,
            peer_address=socket.peer,
            log=log,
            first=first,
            faults=self._settings.faults,
        )
        try:
            async with asyncio.timeout(self._settings.handshake_timeout):
                answer = self._answer_handshake(protocol, await link.shake_hands())
                self._links.add(link)  # before anything is awaited: the next handshake counts it
                await link.write(answer)
            self._pending.pop(socket, None)
            link.start()
            await self._run(link)
        finally:
            await link.abort()
            self._links.discard(link)

    async def _run(self, link: Link) -> None:
        log = self._log.bind(client=link.peer_address, connection=str(link.connection_id), transport=link.transport)
        log.info("client_connected")
        try:
            await self._on_link(link)
            await link.close()
        except SilverfoldError as error:
            log.info("client_dropped", reason=str(error))
        except Exception:
            log.exception("client_failed")
        finally:
            await link.abort()
            self._links.discard(link)
            log.info("client_left")

    def _protocol(self, transport: Transport) -> ServerConnection:
        settings = self._settings
        return ServerConnection(transport, types=settings.types, peer=settings.peer, max_packet=settings.max_packet)

    def _answer_handshake(self, protocol: ServerConnection, event: HandshakeReceived) -> bytes:
        """Return the answer to a handshake. Raise RemoteProtocolError to refuse it."""
        if len(self._links) >= self._settings.max_connections:
            raise RemoteProtocolError(f"{len(self._links)} connections are open", reason="too_many")
        connection_id = Identifier.random()
        answer = self._settings.handshake_handler(connection_id, Handshake(event.values))
        if answer is None:
            raise RemoteProtocolError("the handshake is refused", reason="refused")
        if not isinstance(answer, Handshake):
            raise TypeError(f"handshake_handler returned {type(answer).__name__}: it returns a Handshake or None")
        return protocol.accept(connection_id, answer.values)

    async def _serve_http(self, socket: _Socket, reader: HttpReader, transports: frozenset[Transport]) -> None:
        """Serve requests until one of them ends the connection."""
        within = self._settings.handshake_timeout
        while True:
            async with asyncio.timeout(within):
                head = await read_head(socket, reader)
            if head is None:
                return
            if head.is_upgrade and Transport.WEBSOCKET in transports:
                if await grant_upgrade(socket, head, timeout=self._settings.close_timeout):
                    await self._serve_stream(socket, Transport.WEBSOCKET, reader.take(reader.held))
                return
            is_java = self._settings.peer is Peer.JAVA
            limit = _MAX_JAVA_BODY if is_java else max(self._settings.max_packet, MAX_HANDSHAKE)
            status = request_error(head, max_body=limit) if Transport.HTTP in transports else HTTPStatus.FORBIDDEN
            if status is None:
                status = await self._serve_request(socket, reader, head)
            if status is None:
                return
            is_taken = status is HTTPStatus.NO_CONTENT
            if is_taken and is_java:
                return
            await socket.send(encode_answer(status, closes=head.closes or not is_taken))
            if head.closes or not is_taken:
                await socket.finish(self._settings.close_timeout)
                return
            within = self._settings.expire_after

    async def _serve_request(self, socket: _Socket, reader: HttpReader, head: Head) -> HTTPStatus | None:
        """Serve a packet. Return the status to answer with; None if an answer was sent, or none is due."""
        size = head.content_length or 0
        async with asyncio.timeout(self._settings.request_timeout):
            if not await fill(socket, reader, min(size, _HEAD_OF_PACKET)):
                return None
            link = self._link_of(reader.peek(_HEAD_OF_PACKET))
            if link is None and (size > MAX_HANDSHAKE or reader.peek(1) != b"\0"):
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if reader.peek(1) == b"\0" else HTTPStatus.FORBIDDEN
            if not await fill(socket, reader, size):
                return None
        body = reader.take(size)
        if link is None:
            await self._open_polling(socket, body)
            return None
        self._pending.pop(socket, None)
        return await link.serve(body, socket, wants_messages=not head.prefers_minimal)

    def _link_of(self, head: bytes) -> ServerPollingLink | None:
        return self._polling.get(Identifier(head[3:19])) if head[:1] != b"\0" and len(head) >= 19 else None

    async def _open_polling(self, socket: _Socket, body: bytes) -> None:
        protocol = self._protocol(Transport.HTTP)
        protocol.receive(body)
        event = protocol.next_event()
        if not isinstance(event, HandshakeReceived):
            raise getattr(event, "error", RemoteProtocolError("no handshake", reason="no_handshake"))
        answer = self._answer_handshake(protocol, event)
        log = self._log.bind(client=socket.peer, transport=Transport.HTTP.value)
        link = ServerPollingLink(protocol, self._settings, peer_address=socket.peer, log=log, forget=self._forget)
        link.handshake = event.values
        self._polling[link.connection_id] = link
        self._links.add(link)  # before anything is awaited: the next handshake counts it
        await socket.send(encode_answer(HTTPStatus.OK, answer))
        if socket.is_closing:  # nobody knows the connection: it would keep others out until it counts as silent
            await link.abort()
            self._links.discard(link)
            raise SourceUnavailable("it was gone before the answer to its handshake")
        self._spawn(self._run(link))
        await socket.finish(self._settings.close_timeout)

    def _forget(self, link: ServerPollingLink) -> None:
        self._polling.pop(link.connection_id, None)
