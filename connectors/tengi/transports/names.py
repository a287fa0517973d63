"""Names of transports: the supported ones, Java's long names for them, and why tengi's others are not supported."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from silverfold.conf.errors import ConfigError
from silverfold.connectors.tengi.protocol.events import Transport

_SUPPORTED: Final = "tcp, websocket or http"
_JAVA_PREFIX: Final = "tengi::transport::"
_JAVA_NAMES: Final = {"tengi": "tcp", "websocket/binary": "websocket", "http/1.1": "http", "http/2": "http2"}

REASONS: Final = {
    "http2": "the Java implementation has no client for it, and its server's use of streams is not valid HTTP/2",
    "udp": "the Java implementation has no working UDP transport and no description of one exists",
    "rdp": "the Java implementation has no working RDP transport, only an unfinished one",
    "sctp": "the Java implementation has no SCTP transport and no description of one exists",
    "udt": "the Java implementation has no client for it, and its server needs a native library",
}
"""Reasons why other transports that tengi names are refused, by their short name."""


class ClientTransports(StrEnum):
    """All transports that tengi names. Client and server support the first three."""

    TCP = "tcp"
    WEBSOCKET = "websocket"
    HTTP = "http"
    HTTP2 = "http2"
    UDP = "udp"
    RDP = "rdp"
    SCTP = "sctp"
    UDT = "udt"


ServerTransports: Final = ClientTransports


class UnsupportedTransport(ConfigError):
    """A transport that tengi names but that is not supported. Raised before any socket exists.

    Args:
        transport: Its short name.
    """

    error_class = "UNSUPPORTED_TRANSPORT"

    def __init__(self, transport: str, *, file: str, key: str) -> None:
        self.transport, self.reason = transport, REASONS[transport]
        super().__init__(file=file, key=key, found=transport, allowed=_SUPPORTED)
        text = f"tengi transport {transport!r} is not supported: {self.reason}; use {_SUPPORTED}"
        self.args = (f"{file}: {key}: {text}",)


def parse_transport(name: str, *, file: str = "configuration", key: str = "transport") -> Transport:
    """Return the transport with a name, short or Java's long one.

    Args:
        file: Where the setting is, for the error, with ``key``.

    Raises:
        UnsupportedTransport: tengi names the transport, but it is not supported.
        ConfigError: The transport is unknown.
    """
    if not isinstance(name, str):
        raise ConfigError(file=file, key=key, found=name, allowed=f"names, one by one: {_SUPPORTED}")
    short = name.removeprefix(_JAVA_PREFIX)
    if short != name:
        short = _JAVA_NAMES.get(short, short)
    if (written := short.lower().removesuffix(".0").replace("/", "")) in REASONS:
        raise UnsupportedTransport(written, file=file, key=key)
    try:
        return Transport(short)
    except ValueError:
        raise ConfigError(file=file, key=key, found=name, allowed=_SUPPORTED) from None
