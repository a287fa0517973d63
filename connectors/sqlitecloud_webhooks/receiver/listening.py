"""HTTP listener that limits what connections may consume before they prove knowledge of the secret.

===========================  ===============================================================================
connections                  `MOST_CONNECTIONS`, half of them from one address; further ones are cut off
a connection's first head    `HEAD_WITHIN` seconds, 8 KiB a line, 128 headers
input that is not HTTP       400, and the connection is closed; counts are logged, at most once a minute
===========================  ===============================================================================

Responses do not name the server software.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import ssl
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler
from structlog.typing import FilteringBoundLogger

from silverfold.connectors.common.transport import Address

MOST_CONNECTIONS: Final = 512
"""Maximum concurrent connections; fewer if the process may open fewer than twice as many files."""

HEAD_WITHIN: Final = 10.0
"""Seconds from the start of a connection to the end of its first request's head."""

_IDLE: Final = 90.0
"""Seconds from a response to the end of the next request's head: longer than proxies keep their connections."""

_LINGERING: Final = 2.0
"""Seconds for which the rest of a refused body is still read, so that its sender gets to read the reason."""

_QUIET: Final = 60.0


class Listening:
    """An application's listening sockets and connections, from `start` to `stop`."""

    def __init__(self, app: web.Application, log: FilteringBoundLogger, *, patience: float) -> None:
        app.middlewares.append(_head_received)
        app.on_response_prepare.append(_hide_server_name)
        self._runner = web.AppRunner(app, shutdown_timeout=patience)
        self._log = log
        self._server: asyncio.Server | None = None
        self._before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._open: Counter[str] = Counter()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(MOST_CONNECTIONS, max(2, files // 2))
        self._noted: Counter[str] = Counter()
        self._noted_at: dict[str, float] = {}

    async def start(self, address: Address, tls: ssl.SSLContext | None) -> None:
        """Start listening. Raise OSError."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._before = loop.get_exception_handler()
        loop.set_exception_handler(self._on_error)
        handshake = None if tls is None else HEAD_WITHIN
        self._server = await loop.create_server(
            self._connection, address.host, address.port, ssl=tls, ssl_handshake_timeout=handshake
        )

    async def stop(self) -> None:
        """Stop listening, and end connections; those answering a request end after it."""
        asyncio.get_running_loop().set_exception_handler(self._before)
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def admit(self, peer: str) -> bool:
        """Count a connection; return whether it may stay."""
        self._open[peer] += 1
        if self._open.total() > self._most:
            self.note("too many connections", at_once=self._most)
            return False
        if self._open[peer] > self._most // 2:
            self.note("too many connections from one address", at_once=self._most // 2)
            return False
        return True

    def release(self, peer: str) -> None:
        """Remove a connection from the count."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]

    def note(self, what: str, **details: object) -> None:
        """Log a peer's error with its count since last logged, at most once a minute."""
        self._noted[what] += 1
        now = asyncio.get_running_loop().time()
        if now - self._noted_at.get(what, -_QUIET) >= _QUIET:
            self._noted_at[what] = now
            self._log.warning(what, count=self._noted.pop(what), **details)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an exhausted file limit, for which asyncio logs a hundred tracebacks at once; log all else normally."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            self.note("connections wait: no more files can be opened")
        else:
            loop.default_exception_handler(context)

    def _connection(self) -> web.RequestHandler:
        server = self._runner.server
        assert server is not None
        return _Connection(
            server,
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=_IDLE,
            lingering_time=_LINGERING,
            access_log=None,
            auto_decompress=False,
        )


class _Connection(web.RequestHandler):
    def __init__(self, server: web.Server, listening: Listening, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._listening = listening
        self._peer: str | None = None
        self._patience: asyncio.TimerHandle | None = None

    def head_received(self) -> None:
        """Handle a complete request head: cancel its timeout."""
        if self._patience is not None:
            self._patience.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        self._peer = str(name[0]) if name else ""
        super().connection_made(transport)
        self._patience = asyncio.get_running_loop().call_later(HEAD_WITHIN, self.force_close)
        if not self._listening.admit(self._peer):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.head_received()
        if self._peer is not None:
            self._listening.release(self._peer)
            self._peer = None
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status != HTTPStatus.BAD_REQUEST:
            return super().handle_error(request, status, exc, message)
        self._listening.note("a request is no HTTP")
        if self.transport is not None:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.force_close()
        return web.Response(status=status)  # discarded: sent this way, it would name the server


@web.middleware
async def _head_received(request: web.Request, handler: Handler) -> web.StreamResponse:
    assert isinstance(request.protocol, _Connection)
    request.protocol.head_received()
    return await handler(request)


async def _hide_server_name(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)
