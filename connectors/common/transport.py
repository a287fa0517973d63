"""A TCP connection to a source, in plain text or TLS, for asyncio: buffered reads, and writes without waiting.

Received bytes are buffered up to a bound, `MOST_UNREAD`; beyond it reading pauses, and the sender waits. Cancelling a
reader loses no received bytes: `Connection.arrived` returns them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple, cast

from silverfold.conf.errors import SourceUnavailable, UntrustedSource
from silverfold.conf.files import check_files
from silverfold.conf.text import check_host

MOST_UNREAD: Final = 1 << 20
"""Bytes that may arrive unread before reading from the socket pauses. One more chunk may already be on its way."""

MOST_UNSENT: Final = 1 << 20
"""Bytes that may be buffered for sending before the peer counts as not reading."""

MOST_DROPPED: Final = 64 << 20
"""Bytes that are read and dropped of a connection that ends; then the peer has to wait."""

# The first probe after 30 s of silence, the peer given up 30 s later: a quiet table is silent for long.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound by it


class Address(NamedTuple):
    """Where a source listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def meets(self, other: Address) -> bool:
        """Return whether the two addresses conflict: same port, and the same host or one of them means all hosts."""
        hosts = {"127.0.0.1" if each.host == "localhost" else each.host for each in (self, other)}
        return self.port == other.port and (len(hosts) == 1 or not hosts.isdisjoint(_ANY_HOST))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its loopback addresses."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


async def listening_error(address: Address) -> str | None:
    """Return why nothing can listen on an address now; None if something can."""
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, address.host, address.port)
    except OSError as error:
        return error.strerror or str(error)
    server.close()
    return None


def parse_address(text: str) -> Address:
    """Parse ``host:port``, with an IPv6 host in brackets. Raises ValueError with the expected form."""
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
    """Return an open connection, with keep-alive and TCP_NODELAY.

    Args:
        timeout: Seconds, including the TLS handshake.
        silent_after: See `Connection`.
        tls: Context for encryption and trust; None for plain text.
        server_name: Name that the certificate must have, with ``tls``; by default the address's host.

    Raises:
        SourceUnavailable: Nobody listens there, the name is unknown, the timeout expired, or the peer speaks no TLS.
        UntrustedSource: The certificate is not trusted.
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
        reason = error.strerror or str(error) or "the peer closed the connection during the handshake of TLS"
        raise SourceUnavailable(f"{address}: {reason}") from error
    except ValueError as error:  # of the lookup: a label that is empty or too long, a zero byte
        raise SourceUnavailable(f"{address}: no host name: {error}") from error
    return protocol


def client_context(ca: Path | str | None, *, verify: bool = True) -> ssl.SSLContext:
    """Return the TLS context of a client.

    Args:
        ca: PEM file of the trusted authorities; None or empty for the system's.
        verify: Check certificate and host name.

    Raises:
        OSError: The file cannot be used.
    """
    check_files([ca])
    context = ssl.create_default_context(cafile=ca or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def server_context(certificate: Path | str, key: Path | str | None) -> ssl.SSLContext:
    """Return the TLS context of a server, with a certificate and its key. Raises as `load_certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path | str, key: Path | str | None) -> None:
    """Load a certificate and its key, which may be in the same file, into a context.

    Raises:
        OSError: A file cannot be used; ``filename`` names it, or both where OpenSSL does not say which. Also for a key
            with a pass phrase, which OpenSSL would prompt for on the terminal.
    """

    def refuse() -> str:
        raise OSError(errno.EINVAL, "A key with a pass phrase", str(key or certificate))

    check_files([certificate, key])
    if b"PRIVATE KEY-" not in Path(key or certificate).read_bytes():
        found = "No private key in it" + ("" if key else ", and no other file for it")
        raise OSError(errno.EINVAL, found, str(key or certificate))
    try:
        context.load_cert_chain(certificate, key or None, password=refuse)
    except ssl.SSLError as error:
        files = f"{certificate} with its key {key}" if key else str(certificate)
        raise OSError(errno.EINVAL, str(error), files) from error


def usable_file(error: OSError) -> str:
    """Return what is allowed in place of a file of TLS that raised the error: it names the file, if the error does."""
    why = error if error.filename is None else f"{error.filename}: {error.strerror}"
    return f"a PEM file that can be used: {why}"


class Connection(asyncio.Protocol):
    """One connection, read by one task. Made by `connect`.

    Args:
        silent_after: Seconds without a byte after which a waiting reader takes it for broken; None for never.
            Keep-alive is not enough: the system of a stopped process still answers its probes.
    """

    def __init__(self, silent_after: float | None = None) -> None:
        self._silent_after = silent_after
        self._chunks: list[bytes] = []
        self._unread = 0
        self._ended = False
        self._is_ending = False
        self._dropped = 0
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._last_received = loop.time()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done once nothing more will arrive. While reading is paused, the end may be noticed late."""
        self._closed = loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()

    async def read(self, timeout: float | None = None) -> bytes:
        """Return all buffered bytes, waiting for the first; empty once the peer has closed and all is read.

        Args:
            timeout: Seconds; None waits forever.

        Raises:
            TimeoutError: Nothing arrived in time.
            SourceUnavailable: The connection broke, or is silent. All bytes received before were returned first.
        """
        if not self._chunks and not self._ended:
            await self._wait_for_bytes(timeout)
        arrived = self.arrived()
        if not arrived and self._error is not None:
            raise SourceUnavailable(f"the connection broke: {self._error}") from self._error
        return arrived

    async def _wait_for_bytes(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        silent = None if self._silent_after is None else self._last_received + self._silent_after
        due = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(min((each for each in (silent, due) if each is not None), default=None)):
                await self._reader
        except TimeoutError:
            if silent is not None and loop.time() >= silent:
                raise SourceUnavailable(f"the peer sent nothing for {self._silent_after:g} s") from None
            raise

    def arrived(self) -> bytes:
        """Return the bytes that have arrived but were not read yet, without waiting."""
        arrived = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._resume_reading()
        return arrived

    def write(self, message: bytes) -> None:
        """Send bytes without waiting.

        Raises:
            SourceUnavailable: The peer does not read: more than `MOST_UNSENT` bytes are buffered.
        """
        self._write(message)
        if self._transport.get_write_buffer_size() > MOST_UNSENT:
            raise SourceUnavailable("the peer does not read what it is sent")

    async def send(self, message: bytes) -> None:
        """Send any number of bytes, and wait until there is room for more.

        The wait also ends with the connection; `read` then reports why it ended.
        """
        self._write(message)
        await self._writable.wait()

    def abort(self) -> None:
        """End the connection without waiting for its end. Received bytes can still be read."""
        if not self.is_closed:  # asyncio's transport would fail
            self._transport.abort()

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended in both directions: nothing can be sent."""
        return self._closed.done()

    @property
    def is_closing(self) -> bool:
        """Whether the connection is about to end, or has ended. So it is at once when the system refuses a write."""
        return self._transport.is_closing()

    async def end_writing(self, timeout: float) -> bool:
        """Send what is unsent, and that nothing follows. What arrives from then on is dropped. Safe to repeat.

        Over TLS, which has no half-closed state, the connection is closed as well.

        Args:
            timeout: Seconds.

        Returns:
            Whether all was handed to the system in time.
        """
        self._is_ending = True
        self._resume_reading()
        if not self._transport.can_write_eof():
            self._transport.close()
            closed, _ = await asyncio.wait([self._closed], timeout=timeout)
            return bool(closed) and self._error is None
        if not self.is_closed:
            self._transport.set_write_buffer_limits(0)  # writable again means that all is handed over
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        is_sent = self._writable.is_set() and not self.is_closing
        if is_sent:
            with contextlib.suppress(OSError):  # the peer has reset the connection
                self._transport.write_eof()
        return is_sent

    async def finish(self, timeout: float) -> None:
        """Send what is unsent, wait until the peer has ended as well, and close the connection. Safe to repeat.

        A close with unread bytes would reset the connection, and the peer lose what it has not read yet. Over TLS that
        may still happen.

        Args:
            timeout: Seconds, after which the rest is dropped.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if await self.end_writing(timeout):
                    await asyncio.wait([self.ended])
        await self.close()

    async def close(self) -> None:
        """End the connection, dropping what is unsent. Safe to repeat."""
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
        self._last_received = asyncio.get_running_loop().time()
        if self._is_ending:
            self._drop(len(data))
            return
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
        self._writable.set()
        self._closed.set_result(None)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.set()

    def _write(self, message: bytes) -> None:
        if not self._is_ending and not self.is_closed:
            self._transport.write(message)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > MOST_DROPPED:
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._unread > MOST_UNREAD and not self._ended:
            self._transport.resume_reading()
            self._last_received = asyncio.get_running_loop().time()  # until now, the silence was ours
        self._unread = 0

    def _end(self) -> None:
        self._ended = True
        self._wake()  # first: the reader knows more about how it ended
        if not self.ended.done():
            self.ended.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
