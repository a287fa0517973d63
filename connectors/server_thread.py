"""Runs a connector's server: an event loop in a thread of its own, from a listening socket until it is closed.

What a server serves is its own business: it says what to do once the loop runs, and what to end before it stops.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Final, Self, TypeVar

from conf.errors import SourceUnavailable
from connectors.closeable import Closeable

_PENDING_CONNECTIONS: Final = 128

_Found = TypeVar("_Found")


class Server(Closeable):
    """A running server. All public methods may be called from any thread. Closes itself as a context manager.

    Args:
        listening: Where clients connect, at one port; closed with the server.
        name: Of the thread.
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
        """How many connections of clients there are."""

    @abstractmethod
    async def _open(self) -> None:
        """Begin to serve. Called once, in the loop."""

    @abstractmethod
    async def _shut(self) -> None:
        """End all connections, and return when they have ended. Called once, in the loop."""

    def close(self) -> None:
        """End all connections and the server. May be repeated."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _start(self) -> Self:
        """Begin, in the thread of the server; return when clients are served."""
        self._thread.start()
        self._wait_for(self._open())
        return self

    def _wait_for(self, work: Coroutine[Any, Any, _Found]) -> _Found:
        """Do work in the loop and return what it finds. Only while the server runs, and not in the loop itself."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        self._loop.run_forever()  # until `close`
        self._loop.run_until_complete(self._shut())
        self._loop.run_until_complete(_ended(self._loop))
        for each in self._listening:
            each.close()
        self._loop.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that clients can connect to: keep-alive on, small writes not delayed, not blocking.

    Args:
        port: 0 for any free one.

    Raises:
        SourceUnavailable: The address or port cannot be listened on.
    """
    if not host:  # the system takes it for all addresses
        raise SourceUnavailable(f"cannot listen on port {port} of no host: 127.0.0.1, or 0.0.0.0 for all")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_PENDING_CONNECTIONS)
    except (OSError, OverflowError) as error:
        raise SourceUnavailable(f"cannot listen on {host}:{port}: {error}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections take both over
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setblocking(False)
    return listening


async def _ended(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until all tasks have ended; what goes on by itself is cancelled."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
