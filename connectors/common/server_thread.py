"""Runs a connector's server: an event loop in its own thread, until it is closed.

`ServerThread` leaves listening to its subclass. `Server` listens on sockets, and accepts, counts, logs and breaks off
connections; its subclasses serve one connection. `RenewedCertificate` is for whoever listens with TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import SilverfoldError, SourceUnavailable
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.common.transport import server_context

_PENDING_CONNECTIONS: Final = 128

_State: TypeAlias = list[tuple[int, int, int] | None]
_T = TypeVar("_T")
_Connection = TypeVar("_Connection")


class ServerThread(Closeable):
    """A running server. All public methods may be called from any thread. A context manager that closes on exit.

    Args:
        name: Beginning of the names of the thread and the log.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{name}-server", daemon=True)
        self._log = structlog.get_logger(f"{name}.server")

    @property
    @abstractmethod
    def client_count(self) -> int:
        """Number of clients."""

    @abstractmethod
    async def _open(self) -> None:
        """Start serving. Called once, in the loop."""

    @abstractmethod
    async def _shut(self) -> None:
        """End all connections and return once they have ended. Called once, in the loop."""

    def close(self) -> None:
        """End all connections and the server. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _start(self) -> Self:
        """Start the server's thread; return once clients are served."""
        self._thread.start()
        self._wait_for(self._open())
        return self

    def _wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result.

        Call only while the server runs, and not from the loop itself.
        """
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        self._loop.run_forever()  # until `close`
        self._loop.run_until_complete(self._shut())
        self._loop.run_until_complete(_cancel_tasks(self._loop))
        self._loop.close()


class Server(ServerThread, Generic[_Connection]):
    """A running server that listens on sockets.

    Args:
        listening: Sockets on which clients connect, all at one port; closed with the server.
        name: Beginning of the names of the thread and the log.
        tls: Context for encryption; None for plain text.
    """

    def __init__(self, *listening: socket.socket, name: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(name)
        self._listening, self._tls = listening, tls
        self.port: int = listening[0].getsockname()[1]
        """The TCP port it listens on."""
        self._accepting: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        """By the task that serves each."""

    @property
    def client_count(self) -> int:
        """Number of client connections."""
        return len(self._connections)

    def disconnect_all(self) -> None:
        """Break the connection to every client, whatever its state; return when that is done. Clients may reconnect."""
        if self._thread.is_alive():
            self._wait_for(self._disconnect())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, in `_serving`. Not called if `_open` accepts connections itself."""

    @abstractmethod
    def _break_off(self, connection: _Connection) -> None:
        """End a connection in whatever state; its task ends soon after."""

    async def _open(self) -> None:
        """Start serving. Called once, in the loop."""
        self._accepting = [
            await asyncio.start_server(self._serve, sock=each, ssl=self._tls) for each in self._listening
        ]

    async def _shut(self) -> None:
        """End all connections and return once they have ended. Called once, in the loop."""
        for each in self._accepting:
            each.close()
        await self._disconnect()

    @contextmanager
    def _serving(
        self, connection: _Connection, peer: tuple[Any, ...], **details: object
    ) -> Iterator[FilteringBoundLogger]:
        """Count a connection, which the current task serves inside the block; log its beginning, and its end.

        Yields:
            The connection's log, with its details.
        """
        task: Any = asyncio.current_task()
        self._connections[task] = connection
        log = self._log.bind(client=f"{peer[0]}:{peer[1]}", **details)
        log.info("client_connected")
        try:
            yield log
            log.info("client_left")
        except OSError as error:
            log.info("client_left", reason=str(error))
        except SilverfoldError as error:
            log.warning("client_dropped", reason=str(error))
        except Exception:
            log.exception("client_failed")
        finally:
            del self._connections[task]

    async def _disconnect(self, chosen: Callable[[_Connection], bool] = lambda _: True) -> None:
        """Break off connections, and return once they have ended."""
        ended = {task: each for task, each in self._connections.items() if chosen(each)}
        for connection in ended.values():
            self._break_off(connection)
        if ended:
            await asyncio.wait(ended)

    def _run(self) -> None:
        super()._run()
        for each in self._listening:
            each.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that accepts connections, with keep-alive and TCP_NODELAY.

    Args:
        port: 0 for any free port.

    Raises:
        SourceUnavailable: Cannot listen on the address or port.
    """
    if not host:  # the system takes an empty host for all addresses
        raise SourceUnavailable(f"cannot listen on port {port} of no host: 127.0.0.1, or 0.0.0.0 for all")
    try:
        host.encode("idna")  # a host that cannot be encoded would be a TypeError, and leave a socket open
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_PENDING_CONNECTIONS)
    except (OSError, OverflowError, UnicodeError) as error:
        raise SourceUnavailable(f"cannot listen on {host}:{port}: {error}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit both options
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setblocking(False)
    return listening


class RenewedCertificate:
    """A server's certificate and its key, which may be renewed while it listens with asyncio.

    The files are looked at as each client connects. While new ones cannot be used, as they are half written, or only
    one of the two is there, the last that could be used are: a warning tells so, once for each state of the files and
    reason. They are tried again with each client: the reason may be elsewhere, such as too many open files.

    Args:
        key: None or empty if it is in the certificate's file.

    Raises:
        OSError: As `transport.load_certificate`, of the first ones.
    """

    def __init__(self, certificate: Path | str, key: Path | str | None, log: FilteringBoundLogger) -> None:
        self._certificate, self._key, self._log = certificate, key, log
        self._reported: tuple[_State, str] | None = None
        self._used = self._state()  # before they are read: what is written meanwhile is another state
        self._newest = server_context(certificate, key)
        self.context: ssl.SSLContext = _Delegating(self._use_newest)
        """The context to listen with."""

    def _use_newest(self) -> ssl.SSLContext:
        state = self._state()
        if state != self._used:
            try:
                self._newest = server_context(self._certificate, self._key)
            except OSError as error:  # SSLError is an OSError
                self._warn(state, str(error))
            else:
                self._used = state
                self._log.info("certificate_renewed", file=str(self._certificate))
        return self._newest

    def _warn(self, state: _State, why: str) -> None:
        if (state, why) != self._reported:
            self._reported = state, why
            reason = f"{why} (the one before it is used until this one can be)"
            self._log.warning("certificate_not_renewed", file=str(self._certificate), reason=reason)

    def _state(self) -> _State:
        """Return what tells a changed file from one that is as it was; None for one that is not there."""
        states: _State = []
        for path in [self._certificate, *([self._key] if self._key else [])]:
            try:
                found = Path(path).stat()
            except OSError:
                states.append(None)
            else:
                states.append((found.st_ino, found.st_size, found.st_ctime_ns))
        return states


class _Delegating(ssl.SSLContext):
    """Has each connection wrapped by the context of its time.

    No callback of OpenSSL chooses it: before Python calls one, it decodes the name that the client sent. A name that is
    not ASCII refuses the client, and prints a traceback to stderr.
    """

    _choose: Callable[[], ssl.SSLContext]

    def __new__(cls, choose: Callable[[], ssl.SSLContext]) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._choose = choose
        return made

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`. asyncio calls it for each connection that it accepts."""
        return self._choose().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all remaining tasks and wait until they have ended."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
