"""What a feed's settings connect to: its address and transport, and the configuration of its links."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from silverfold.conf.errors import ConfigError, WireError
from silverfold.conf.secrets import Secret, revealed
from silverfold.conf.validate import HIDDEN
from silverfold.connectors.base import Problem
from silverfold.connectors.common import transport
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol.connection import ClientConnection
from silverfold.connectors.tengi.protocol.events import Peer, Transport
from silverfold.connectors.tengi.protocol.values import Handshake, Identifier
from silverfold.connectors.tengi.transports.configuration import PORT, Configuration, HandshakeHandler, Tls, demand
from silverfold.connectors.tengi.transports.names import parse_transport

_SCHEME: Final = "tengi://"
_TLS_KEYS: Final = {"ca": "options.tls_ca", "certificate": "options.tls_certificate"}
_LEAST_REQUEST: Final = 30.0


def parse_address(text: str) -> Address:
    """Parse ``tengi://host:port``; without a port it is 8080. Raises ValueError with the expected form."""
    if not text.startswith(_SCHEME):
        raise ValueError("tengi://host:port, such as tengi://127.0.0.1:8080")
    rest = text.removeprefix(_SCHEME)
    has_port = ":" in rest.rpartition("]")[2]
    return transport.parse_address(rest if has_port else f"{rest}:{PORT}")


def feed_transport(feed: TengiFeed) -> Transport:
    """Return the transport of a feed. Raises UnsupportedTransport, or ConfigError for a name unknown to tengi."""
    return parse_transport(feed.options.transport, file=_file(feed), key="options.transport")


def link_settings(
    feed: TengiFeed, environ: Mapping[str, str] = os.environ, *, listening_tls: Tls | None = None
) -> Configuration:
    """Return the configuration of a feed's links, with secrets: do not log or store it.

    In listen mode secrets are read again for each handshake, and the certificate's files as they change.

    Args:
        listening_tls: In listen mode, that of earlier settings: it has the last certificate that could be used.

    Raises:
        ConfigError: A secret is missing or empty, the handshake is too large, or a file for TLS cannot be used.
    """
    options, address = feed.options, parse_address(feed.address)
    values = _handshake(feed, environ)
    listens = options.mode == "listen"
    return Configuration(
        transports={feed_transport(feed): address.port},
        tls=(listening_tls or _tls(feed)) if options.tls else None,
        peer=Peer(options.peer),
        max_packet=options.max_packet,
        max_answer=options.max_answer,
        connect_timeout=feed.reconnect.connect_timeout,
        handshake_timeout=options.handshake_timeout,
        request_timeout=max(options.dead_after, _LEAST_REQUEST),
        handshake={} if listens else values,
        host=address.host,
        handshake_handler=_admission(feed, environ),
        dead_after=options.dead_after,
        max_connections=1,
    )


def handshake_problems(feed: TengiFeed) -> Iterator[Problem]:
    """Yield a Problem if the handshake does not fit the transport. Reads no secret: each counts as empty."""
    handshake = feed.options.handshake
    return _misfits(feed, {name: "" if isinstance(text, Secret) else text for name, text in handshake.items()})


def _handshake(feed: TengiFeed, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the handshake. An empty secret, as of a file that is just being written, lets anybody in."""
    options = feed.options
    values = revealed(options.handshake, environ, "options.handshake")
    empty = [name for name, value in options.handshake.items() if isinstance(value, Secret) and not values[name]]
    found = [Problem(f"options.handshake.{name}", "an empty secret", "a secret") for name in empty]
    for key, shown, allowed in (*found, *_misfits(feed, values)):
        raise ConfigError(file=_file(feed), key=key, found=shown, allowed=allowed)
    return values


def _admission(feed: TengiFeed, environ: Mapping[str, str]) -> HandshakeHandler:
    """Return the handler of sources' handshakes. Secrets that cannot be used now admit nobody."""
    log = structlog.get_logger("tengi.receiver").bind(feed=feed.name)

    def answer(connection_id: Identifier, request: Handshake) -> Handshake | None:
        try:
            values = _handshake(feed, environ)
        except ConfigError as error:
            log.warning("secret_not_usable", reason=f"{error} (until it is right, sources are refused)")
            return None
        return demand(values)(connection_id, request)

    return answer


def _misfits(feed: TengiFeed, values: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a Problem if these texts cannot be sent, by us or in listen mode by a source."""
    transport, options = feed_transport(feed), feed.options
    peer = Peer(options.peer) if options.mode == "dial" else Peer.TENGI
    try:
        ClientConnection(transport, peer=peer).send_handshake(values)
    except WireError as error:
        java = " to Java" if peer is Peer.JAVA else ""
        yield Problem("options.handshake", HIDDEN, f"what fits a handshake over {transport}{java}: {error.detail}")


def _tls(feed: TengiFeed) -> Tls:
    options = feed.options
    given = Tls(
        ca=options.tls_ca or None,
        verify=options.tls_verify,
        certificate=options.tls_certificate or None,
        key=options.tls_key or None,
    )
    try:
        return Tls(context=given.server_context() if options.mode == "listen" else given.client_context())
    except ConfigError as error:
        key = _TLS_KEYS.get(error.key, error.key)
        raise ConfigError(file=_file(feed), key=key, found=error.found, allowed=error.allowed) from error


def _file(feed: TengiFeed) -> str:
    return f"feeds/{feed.name}.toml"
