"""A TCP connection to a source, in plain text or TLS, for asyncio: read what has arrived, write what is small.

What has arrived is kept until it is read, up to a bound; beyond it the socket is left alone, and the sender waits.
Nothing that has arrived is lost when a reader is cancelled: `Connection.arrived` hands it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, cast

from conf.errors import SourceUnavailable, UntrustedSource
from conf.files import check_files
from conf.text import check_host
from connectors.base import Feed, Problem

MOST_UNREAD: Final = 1 << 20
"""Bytes that may have arrived and not been read before the socket is left alone. One more chunk may be on its way."""

MOST_UNSENT: Final = 1 << 20
"""Bytes that may wait to be sent before the peer counts as one that does not read."""

# The peer is asked after half a minute of silence, and given up half a minute later: a quiet table is silent for long.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound by it


class Address(NamedTuple):
    """Where a source listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def meets(self, other: Address) -> bool:
        """Tell whether not both can be listened at: the port is one, and so is the host, or one stands for all."""
        hosts = {"127.0.0.1" if each.host == "localhost" else each.host for each in (self, other)}
        return self.port == other.port and (len(hosts) == 1 or not hosts.isdisjoint(_EVERYWHERE))


def parse_address(text: str) -> Address:
    """Return what ``host:port`` says; an IPv6 address stands in brackets. Raises ValueError that says what is wrong."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError("host:port, such as 127.0.0.1:7777")
    check_host(host)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError("a port from 1 to 65535 after the colon")
    if host.startswith("[") and host.endswith("]"):
        return Address(host[1:-1], int(port))
    if ":" in host:
        raise ValueError("an IPv6 address in brackets, such as [::1]:7777")
    return Address(host, int(port))


async def connect(
    address: Address,
    *,
    timeout: float,
    silent_after: float | None = None,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> Connection:
    """Return an open connection: keep-alive on, small writes not delayed.

    Args:
        timeout: Seconds, the TLS handshake included.
        silent_after: As of `Connection`.
        tls: How to encrypt, and whom to trust; None for plain text.
        server_name: The name that the certificate must have, with ``tls``; by default the address's host.

    Raises:
        SourceUnavailable: Nobody listens there, the name is not known, it takes too long, or it does not speak TLS.
        UntrustedSource: The certificate is not one to trust.
    """
    loop = asyncio.get_running_loop()
    name = (server_name or address.host) if tls else None
    try:
        async with asyncio.timeout(timeout):
            _, protocol = await loop.create_connection(
                lambda: Connection(silent_after), address.host, address.port, ssl=tls, server_hostname=name
            )
    except TimeoutError:
        raise SourceUnavailable(f"{address}: no connection within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise UntrustedSource(text=f"{address}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise SourceUnavailable(f"{address}: no TLS: {error.reason or error}") from error
    except OSError as error:
        raise SourceUnavailable(f"{address}: {error.strerror or error}") from error
    return protocol


def load_certificate(context: ssl.SSLContext, certificate: Path | str, key: Path | str | None) -> None:
    """Let a context show a certificate, with its key, which may be in the same file.

    Raises:
        OSError: A file cannot be used, which ``filename`` names where it is known; also a key with a pass phrase, which
            OpenSSL would ask the terminal for.
    """

    def refuse() -> str:
        raise OSError(errno.EINVAL, "A key with a pass phrase", str(key or certificate))

    check_files([certificate, key])
    context.load_cert_chain(certificate, key or None, password=refuse)


def address_problems(feed: Feed, parse: Callable[[str], object]) -> Iterator[Problem]:
    """Yield what is wrong with a feed's address: what ``parse`` says in a ValueError."""
    try:
        parse(feed.address)
    except ValueError as error:
        yield Problem("address", feed.address, str(error))


class Connection(asyncio.Protocol):
    """One connection, read by one task. Made by `connect`.

    Args:
        silent_after: Seconds without a byte after which it counts as broken, while somebody waits for one; None for
            never. A stopped process leaves its system to answer what keep-alive asks.
    """

    def __init__(self, silent_after: float | None = None) -> None:
        self._silent_after = silent_after
        self._chunks: list[bytes] = []
        self._unread = 0
        self._ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Is done once nothing more will arrive, which a connection that is not read may learn late."""
        self._closed = loop.create_future()
        self._room = asyncio.Event()
        self._room.set()

    async def read(self, timeout: float | None = None) -> bytes:
        """Return all that has arrived, as soon as there is any; empty when the peer has closed and all is read.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: Nothing arrived in time.
            SourceUnavailable: The connection broke, or is silent. What had arrived before was returned before.
        """
        if not self._chunks and not self._ended:
            await self._next(timeout)
        arrived = self.arrived()
        if not arrived and self._error is not None:
            raise SourceUnavailable(f"the connection broke: {self._error}") from self._error
        return arrived

    async def _next(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        silent = None if self._silent_after is None else self._heard + self._silent_after
        due = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(min((each for each in (silent, due) if each is not None), default=None)):
                await self._reader
        except TimeoutError:
            if silent is not None and loop.time() >= silent:
                raise SourceUnavailable(f"the peer sent nothing for {self._silent_after:g} s") from None
            raise

    def arrived(self) -> bytes:
        """Return what has arrived and not been read yet, without waiting."""
        arrived = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if self._unread > MOST_UNREAD and not self._ended:
            self._transport.resume_reading()
        self._chunks.clear()
        self._unread = 0
        return arrived

    def write(self, message: bytes) -> None:
        """Send bytes, without waiting.

        Raises:
            SourceUnavailable: The peer has not read what was sent before.
        """
        self._transport.write(message)
        if self._transport.get_write_buffer_size() > MOST_UNSENT:
            raise SourceUnavailable("the peer does not read what it is sent")

    async def send(self, message: bytes) -> None:
        """Send bytes of any number, and wait until there is room for more.

        A connection that ends meanwhile ends the wait: reading tells why.
        """
        self._transport.write(message)
        await self._room.wait()

    def abort(self) -> None:
        """End the connection without waiting for its end. What has arrived can still be read."""
        self._transport.abort()

    async def close(self) -> None:
        """End the connection, whatever is on its way. Safe to repeat."""
        self.abort()
        await asyncio.wait([self._closed])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            with contextlib.suppress(AttributeError, OSError):  # not every system knows every name
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._heard = asyncio.get_running_loop().time()
        self._chunks.append(data)
        self._unread += len(data)
        if self._unread > MOST_UNREAD:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`. The connection is ours to close; one half of TLS cannot stay open."""
        self._end()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._error = self._error or exc
        self._end()
        self._room.set()
        self._closed.set_result(None)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._room.set()

    def _end(self) -> None:
        self._ended = True
        self._wake()  # first: who reads knows more of how it ended
        if not self.ended.done():
            self.ended.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
