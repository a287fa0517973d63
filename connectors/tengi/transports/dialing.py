"""Opens a client's link: connects, upgrades to WebSocket for that transport, and exchanges handshakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceUnavailable, WireError
from silverfold.connectors.common.transport import Address, Connection, connect
from silverfold.connectors.tengi.protocol.connection import ClientConnection
from silverfold.connectors.tengi.protocol.events import Peer, Transport
from silverfold.connectors.tengi.transports.client_polling import ClientPollingLink
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.exchanges import ask_for_upgrade
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.streams import StreamLink

_T = TypeVar("_T")


async def open_first_link(host: str, settings: Configuration, log: FilteringBoundLogger | None = None) -> Link:
    """Return a link over the first transport that connects, in the order of the settings.

    Raises:
        SourceUnavailable: No transport connects. Of several, the message has the reason of each.
        UntrustedSource: The certificate is not trusted; no other transport is tried.
        WireError: Our handshake cannot be written, or is too large for every transport.
        RemoteProtocolError: As `open_link`, if there is a single transport.
    """
    errors: list[SilverfoldError] = []
    for transport, port in settings.transports.items():
        try:
            return await open_link(Address(host, port), transport, settings, log)
        except (SourceUnavailable, RemoteProtocolError, WireError) as error:  # WireError: too large for this transport
            errors.append(error)
    if len(errors) == 1 or (errors and all(isinstance(each, WireError) for each in errors)):
        raise errors[-1]
    reasons = zip(settings.transports, errors, strict=True)
    raise SourceUnavailable("; ".join(f"{transport}: {error}" for transport, error in reasons))


async def open_link(
    address: Address, transport: Transport, settings: Configuration, log: FilteringBoundLogger | None = None
) -> Link:
    """Return an open link.

    Raises:
        SourceUnavailable: Nobody listens, the server closed the connection without a handshake, the connection broke,
            or a timeout expired.
        UntrustedSource: The certificate is not trusted.
        RemoteProtocolError: The answer is no handshake, or not all of one.
        WireError: A value of our handshake cannot be written, or is too large.
        ConfigError: The authorities' file cannot be used.
    """
    log = (log or structlog.get_logger("tengi.client")).bind(server=str(address), transport=transport.value)
    if settings.peer is Peer.JAVA and transport is not Transport.HTTP:
        log.warning("java_transport", reason="packets are cut at 256 bytes and change their order; http has neither")
    tls = settings.tls.client_context() if settings.tls else None
    protocol = ClientConnection(
        transport,
        types=settings.types,
        peer=settings.peer,
        max_packet=settings.max_packet,
        max_answer=settings.max_answer,
    )
    handshake = protocol.send_handshake(settings.handshake)
    if transport is Transport.HTTP:
        polling = ClientPollingLink(address, tls, protocol, settings, log=log)
        opening_polls = polling.shake_hands(handshake)
        await _answered(opening_polls, address, settings.handshake_timeout + settings.connect_timeout)
        polling.start()
        return polling
    socket = await connect(address, timeout=settings.connect_timeout, tls=tls)
    try:
        opening = _open_stream(socket, address, protocol, settings, handshake, log=log)
        link = await _answered(opening, address, settings.handshake_timeout)
    except BaseException:
        await socket.close()
        raise
    link.start()
    return link


async def _answered(opening: Awaitable[_T], address: Address, seconds: float) -> _T:
    """Await the answer to a handshake. What cannot be read as one is the peer's fault: it may be a proxy's.

    Errors name the address: it is what a mark and a message can tell of a peer that has no connection.
    """
    try:
        async with asyncio.timeout(seconds):
            return await opening
    except TimeoutError:
        raise SourceUnavailable(f"{address}: no handshake within {seconds:g} s") from None
    except WireError as error:
        detail = f"{address} answers with something else than a handshake of tengi: {error}"
        raise RemoteProtocolError(detail, reason="no_handshake") from error
    except RemoteProtocolError as error:
        if str(address) in error.detail:
            raise
        raise RemoteProtocolError(f"{address}: {error.detail}", reason=error.reason) from error


async def _open_stream(
    socket: Connection,
    address: Address,
    protocol: ClientConnection,
    settings: Configuration,
    handshake: bytes,
    *,
    log: FilteringBoundLogger,
) -> StreamLink:
    first = await ask_for_upgrade(socket, str(address)) if protocol.transport is Transport.WEBSOCKET else b""
    link = StreamLink(socket, protocol, settings, peer_address=str(address), log=log, first=first)
    await link.write(handshake)
    await link.shake_hands()
    return link
