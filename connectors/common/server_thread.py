"""Runs a connector's server: an event loop in its own thread, from a listening socket until it is closed.

Subclasses define what to start once the loop runs, and what to end before it stops.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Final, Self, TypeVar

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.closeable import Closeable

_PENDING_CONNECTIONS: Final = 128

_T = TypeVar("_T")


class Server(Closeable):
    """A running server. All public methods may be called from any thread. A context manager that closes on exit.

    Args:
        listening: Sockets on which clients connect, all at one port; closed with the server.
        name: Name of the thread.
    """

    def __init__(self, *listening: socket.socket, name: str) -> None:
        self._listening = listening
        self.port: int = listening[0].getsockname()[1]
        """The TCP port it listens on."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    @abstractmethod
    def client_count(self) -> int:
        """Number of client connections."""

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
        for each in self._listening:
            each.close()
        self._loop.close()


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


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all remaining tasks and wait until they have ended."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
