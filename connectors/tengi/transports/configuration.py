"""Settings of a client or a server, and their builder, with the names of tengi's own Java API."""

from __future__ import annotations

import hmac
import inspect
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import structlog

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.server_thread import RenewedCertificate
from silverfold.connectors.common.transport import client_context, usable_file
from silverfold.connectors.tengi.protocol.events import Peer, Transport
from silverfold.connectors.tengi.protocol.limits import MAX_ANSWER, MAX_PACKET
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, Marshaller, TypeRegistry
from silverfold.connectors.tengi.protocol.values import Handshake, Identifier, Marshallable, Packet
from silverfold.connectors.tengi.transports.names import ClientTransports, parse_transport

PORT: Final = 8080
_FILE: Final = "configuration"
_T = TypeVar("_T")

HandshakeHandler: TypeAlias = Callable[[Identifier, Handshake], Handshake | None]
"""Answers a client's handshake, given the new connection's id; None refuses it."""


def accept_all(_connection_id: Identifier, _request: Handshake) -> Handshake:
    """Answer every handshake with an empty one."""
    return Handshake()


def demand(values: Mapping[str, str]) -> HandshakeHandler:
    """Return a handler that refuses handshakes without these values. It compares them in constant time."""

    def answer(_connection_id: Identifier, request: Handshake) -> Handshake | None:
        given = {name: request.get_value(name) for name in values}
        right = [
            isinstance(found, str) and hmac.compare_digest(found.encode(errors="replace"), values[name].encode())
            for name, found in given.items()
        ]
        return Handshake() if all(right) else None

    return answer


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Faults of the Java implementation that a server can imitate, for tests."""

    cut: int | None = None
    """Cut packets on TCP and WebSocket after so many bytes; Java does at 256."""
    one_packet_per_read: bool = False
    """Take only the first packet of each read from a TCP connection, and close it if that packet is incomplete."""
    shuffle: bool = False
    """Write queued packets in random order."""
    close_on_ping: bool = False
    """Close a WebSocket connection on a ping."""
    seed: int = 0
    """Seed of the random order."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Encryption, with verification unless it is switched off by name.

    Args:
        context: Used as it is; all other settings are then ignored.
        ca: PEM file of the authorities that a client trusts; None for the system's.
        verify: Whether a client checks certificate and name.
        certificate: PEM file of a server's certificate.
        key: PEM file of its key; None if it is in the same file.
    """

    context: ssl.SSLContext | None = None
    ca: Path | str | None = None
    verify: bool = True
    certificate: Path | str | None = None
    key: Path | str | None = None

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a client. Raises ConfigError if the file cannot be used."""
        if self.context is not None:
            return self.context
        try:
            return client_context(self.ca, verify=self.verify)
        except OSError as error:
            raise _unusable("ca", self.ca, error) from error

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server, which follows its files as they are renewed (`RenewedCertificate`).

        Raises:
            ConfigError: There is no certificate, or a file cannot be used.
        """
        if self.context is not None:
            return self.context
        if self.certificate is None:
            raise ConfigError(file=_FILE, key="certificate", found=None, allowed="a server's certificate, with TLS")
        try:
            return RenewedCertificate(self.certificate, self.key, structlog.get_logger("tengi.server")).context
        except OSError as error:  # SSLError is an OSError
            raise _unusable("certificate", self.certificate, error) from error


def _unusable(key: str, path: Path | str | None, error: OSError) -> ConfigError:
    found = None if path is None else str(path)
    return ConfigError(file=_FILE, key=key, found=found, allowed=usable_file(error))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Settings of a client or a server. Each ignores those that are marked as the other's."""

    transports: Mapping[Transport, int] = field(default_factory=dict)
    """Ports by transport. A client tries them in this order."""
    free_ports: Mapping[Transport, int] = field(default_factory=dict)
    """Server: of the transports with port 0, those with equal numbers here share a free port; so do those without."""
    tls: Tls | None = None
    types: TypeRegistry = BUILT_IN
    peer: Peer = Peer.TENGI
    """`Peer.JAVA` heeds the limits of the Java implementation."""
    max_packet: int = MAX_PACKET
    """Most bytes of a packet."""
    queue_bytes: int = 8 << 20
    """Most bytes that a connection queues for sending; beyond it, writing waits."""
    handshake_timeout: float = 10.0
    """Seconds for the peer's handshake; at a server also for each request of HTTP."""
    close_timeout: float = 5.0
    """Seconds that a close takes at most to send what is queued, and again to wait for the peer's close."""
    write_gap: float = 0.05
    """Seconds between packets on TCP to a Java peer: if it gets two in one read, it loses the second."""

    handshake: Mapping[str, object] = field(default_factory=dict)
    """Client: values of its handshake."""
    connect_timeout: float = 10.0
    """Client: seconds to connect."""
    request_timeout: float = 30.0
    """Seconds between bytes of the answer to a poll, and at a server for a request's body; Java takes 5 s for all."""
    max_answer: int = MAX_ANSWER
    """Client: most bytes of an answer to a poll."""
    presence_interval: float = 15.0
    """Client: seconds between requests over HTTP that show that it is there while it does not poll, as its listeners
    are busy. The server's ``expire_after`` has to be longer, by what such a request may take."""

    host: str = "127.0.0.1"
    """Server: address to listen on."""
    handshake_handler: HandshakeHandler = accept_all
    """Server: answers handshakes."""
    poll_wait: float = 5.0
    """Server: seconds after which a poll is answered without a message."""
    max_poll_answer: int = 1 << 20
    """Server: most bytes of an answer to a poll; a single larger message is sent alone."""
    expire_after: float = 60.0
    """Server: seconds without a request after which a connection over HTTP has ended, unless one is being served."""
    dead_after: float | None = None
    """Server: seconds without a packet after which a connection over TCP or WebSocket has ended; None for never."""
    max_connections: int = 1000
    """Server: connections that are open at one time. Over http one counts until it has been silent for too long: its
    end is not on the wire."""
    faults: Faults = Faults()
    """Server: for tests."""


class ConfigurationBuilder:
    """Makes a `Configuration` step by step. Every method returns the builder."""

    def __init__(self) -> None:
        self._settings = Configuration()
        self._classes: list[type[Packet | Marshallable]] = []
        self._enums: dict[int, Iterable[str] | type[Enum]] = {}
        self._enumerables: dict[int, Mapping[str, int] | type[Enum]] = {}
        self._marshallers: list[Marshaller[Any]] = []

    def add_transport(self, *transports: ClientTransports | str, port: int = PORT) -> Self:
        """Add transports by name, short or Java's long one. Transports of a server may share a port.

        Args:
            port: 0 at a server for any free one, which the transports of this call share: another call has another.

        Raises:
            UnsupportedTransport: tengi names the transport, but it is not supported.
            ConfigError: The transport is unknown, or the port out of range.
        """
        if not 0 <= port < 1 << 16:
            raise ConfigError(file=_FILE, key="port", found=port, allowed="0 to 65535")
        added = {parse_transport(each, file=_FILE): port for each in transports}
        before = self._settings.free_ports
        free_ports = {**before, **dict.fromkeys(added, max(before.values(), default=0) + 1)}
        return self.set(transports={**self._settings.transports, **added}, free_ports=free_ports)

    def ssl(self, **settings: Any) -> Self:
        """Encrypt all transports. The settings are those of `Tls`."""
        return self.set(tls=Tls(**settings))

    def add_class(self, *classes: type[Packet | Marshallable]) -> Self:
        """Add subclasses of `Packet` and `Marshallable`."""
        self._classes += classes
        return self

    def add_enum(self, type_id: int, constants: Iterable[str] | type[Enum]) -> Self:
        """Add an enum by the names of its constants. Raises ValueError if another one has its id."""
        _add_once(self._enums, type_id, constants)
        return self

    def add_enumerable(self, type_id: int, constants: Mapping[str, int] | type[Enum]) -> Self:
        """Add an Enumerable by names and numbers. Raises ValueError if another one has its id."""
        _add_once(self._enumerables, type_id, constants)
        return self

    def add_marshaller(self, *marshallers: Marshaller[Any]) -> Self:
        """Add marshallers. They are tried in this order."""
        self._marshallers += marshallers
        return self

    def set(self, **settings: Any) -> Self:
        """Set fields of `Configuration`. ``types`` excludes the methods that add types.

        Raises:
            TypeError: A field is unknown.
            ConfigError: ``peer`` has another value than those of `Peer`.
        """
        if settings.get("peer", Peer.TENGI) not in list(Peer):
            raise ConfigError(file=_FILE, key="peer", found=settings["peer"], allowed="tengi or java")
        if "transports" in settings:
            settings.setdefault("free_ports", {})
        self._settings = replace(self._settings, **settings)
        self._settings = replace(self._settings, peer=Peer(self._settings.peer))
        return self

    def build(self) -> Configuration:
        """Return the configuration.

        Raises:
            ConfigError: It has no transport, types were both set and added, or ``handshake_handler`` cannot be called.
            ValueError: A type cannot be registered: see `protocol.registry.TypeRegistry`.
        """
        if not self._settings.transports:
            raise ConfigError(file=_FILE, key="transport", found=None, allowed="one transport at least")
        handler: object = self._settings.handshake_handler
        if not callable(handler) or inspect.iscoroutinefunction(handler):
            allowed = "a function, which is no coroutine function, that returns a Handshake or None"
            raise ConfigError(file=_FILE, key="handshake_handler", found=handler, allowed=allowed)
        if not (self._classes or self._enums or self._enumerables or self._marshallers):
            return self._settings
        if self._settings.types is not BUILT_IN:
            raise ConfigError(file=_FILE, key="types", found="a registry, and types beside it", allowed="one of them")
        types = TypeRegistry(
            *self._classes, enums=self._enums, enumerables=self._enumerables, marshallers=self._marshallers
        )
        return replace(self._settings, types=types)


def _add_once(added: dict[int, _T], type_id: int, constants: _T) -> None:
    if type_id in added:
        raise ValueError(f"the id {type_id} names two types: {added[type_id]!r} and {constants!r}")
    added[type_id] = constants
