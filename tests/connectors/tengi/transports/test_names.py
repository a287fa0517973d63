"""Names of transports, and the configuration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.tengi.client import Client, ClientTransports, ConfigurationBuilder, UnsupportedTransport
from silverfold.connectors.tengi.protocol import (
    Handshake,
    Identifier,
    Int,
    Marshallable,
    Marshaller,
    Packet,
    TypeRegistry,
    accepts_class,
)
from silverfold.connectors.tengi.protocol.events import Peer, Transport
from silverfold.connectors.tengi.server import Server, ServerTransports
from silverfold.connectors.tengi.transports.configuration import Tls
from silverfold.connectors.tengi.transports.names import REASONS, parse_transport
from tests.support.tengi.pairs import run


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("tcp", "tcp"),
        ("websocket", "websocket"),
        ("http", "http"),
        ("tengi::transport::tengi", "tcp"),
        ("tengi::transport::websocket/binary", "websocket"),
        ("tengi::transport::http/1.1", "http"),
    ],
)
def test_transports_have_a_short_name_and_javas(name: str, transport: str) -> None:
    assert parse_transport(name) == transport


@pytest.mark.parametrize("name", [*REASONS, "tengi::transport::http/2", "tengi::transport::udp", "UDP", "http/2.0"])
def test_transports_that_tengi_only_names_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedTransport, match=r"is not supported: .*; use tcp, websocket or http") as raised:
        ConfigurationBuilder().add_transport(name)
    assert (raised.value.error_class, raised.value.retryable) == ("UNSUPPORTED_TRANSPORT", False)
    assert (raised.value.file, raised.value.key) == ("configuration", "transport")
    assert raised.value.reason == REASONS[raised.value.transport]


def test_the_error_of_udp_is_written_out() -> None:
    with pytest.raises(UnsupportedTransport) as raised:
        parse_transport("udp", file="feed.toml", key="options.transport")
    assert str(raised.value) == (
        "feed.toml: options.transport: tengi transport 'udp' is not supported: the Java implementation has no working "
        "UDP transport and no description of one exists; use tcp, websocket or http"
    )


@pytest.mark.parametrize("name", ["", "TCP", "quic", "tengi::transport::tcp2"])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(ConfigError, match="allowed: tcp, websocket or http") as raised:
        parse_transport(name)
    assert not isinstance(raised.value, UnsupportedTransport)


@pytest.mark.parametrize("name", [["tcp", "http"], None, b"tcp"])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="allowed: names, one by one: tcp, websocket or http"):
        ConfigurationBuilder().add_transport(name)


async def answer_later(_connection_id: Identifier, _request: Handshake) -> None: ...


@pytest.mark.parametrize("handler", [answer_later, {"token": "t"}])
def test_a_handshake_handler_that_cannot_be_called_is_refused(handler: Any) -> None:
    with pytest.raises(ConfigError, match="handshake_handler"):
        ConfigurationBuilder().add_transport("tcp").set(handshake_handler=handler).build()


@pytest.mark.parametrize("host", [None, b"127.0.0.1"])
def test_a_host_that_is_no_text_is_refused(host: Any) -> None:
    client = Client(ConfigurationBuilder().add_transport("tcp").build())
    with pytest.raises(ConfigError, match="host"):
        asyncio.run(client.connect(host))


def test_the_builder_collects_transports_with_their_ports_and_types() -> None:
    class Point(Marshallable):
        type_id = 7

        def marshall(self, encoder: object) -> None: ...

        @classmethod
        def unmarshall(cls, decoder: object) -> Point:
            return cls()

    class Login(Packet):
        type_id = 8

    builder = ConfigurationBuilder().add_transport(ServerTransports.HTTP, ClientTransports.TCP)
    builder.add_transport("websocket", port=9000).add_class(Point, Login).add_enum(9, ["A", "B"]).add_enumerable(
        10, {"ONE": 1}
    )
    builder.add_marshaller(Marshaller(11, accepts_class(complex), lambda _: 1j, lambda *_: None))
    configuration = builder.set(poll_wait=1.5).ssl(verify=False).build()
    assert configuration.tls == Tls(verify=False)
    assert list(configuration.transports.items()) == [
        (Transport.HTTP, 8080),
        (Transport.TCP, 8080),
        (Transport.WEBSOCKET, 9000),
    ]
    assert configuration.types.packets[8] is Login
    assert configuration.types.marshallables[7] is Point
    assert set(configuration.types.enums) == {9}
    assert set(configuration.types.enumerables) == {10}
    assert set(configuration.types.marshallers) == {11}
    assert configuration.poll_wait == 1.5


def test_fields_that_are_set_are_those_of_the_configuration() -> None:
    types = TypeRegistry(marshallers=[Marshaller(7, accepts_class(complex), lambda _: 1j, lambda *_: None)])
    builder = ConfigurationBuilder().add_transport("tcp").set(types=types, peer="java")
    assert builder.build().types is types
    assert builder.build().peer is Peer.JAVA
    assert builder.set(transports={Transport.HTTP: 1}).build().transports == {"http": 1}
    with pytest.raises(ConfigError, match="types"):
        builder.add_enum(9, ["A"]).build()
    with pytest.raises(ConfigError, match="tengi or java"):
        builder.set(peer="jaba")


async def ports_of(builder: ConfigurationBuilder) -> dict[Transport, int]:
    """The ports of a server while it runs."""
    async with Server.create(builder.build()) as server:
        await server.start()
        return dict(server.ports)


@pytest.mark.parametrize("names", [["tcp", "websocket", "http"], ["http", "tcp", "tcp"]])
def test_each_call_has_a_free_port_of_its_own(names: list[str]) -> None:
    builder = ConfigurationBuilder()
    for name in names:
        builder.add_transport(name, port=0)
    assert len(set(run(ports_of(builder)).values())) == len(set(names))


def test_the_transports_of_one_call_share_a_free_port() -> None:
    ports = run(
        ports_of(ConfigurationBuilder().add_transport("tcp", "http", port=0).add_transport("websocket", port=0))
    )
    assert ports["tcp"] == ports["http"] != ports["websocket"]
    builder = ConfigurationBuilder().add_transport("tcp", port=0).set(transports={Transport.TCP: 0, Transport.HTTP: 0})
    assert len(set(run(ports_of(builder)).values())) == 1


def test_a_configuration_without_transport_or_with_a_bad_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="one transport at least"):
        ConfigurationBuilder().build()
    with pytest.raises(ConfigError, match="0 to 65535"):
        ConfigurationBuilder().add_transport("tcp", port=Int(65536))
    with pytest.raises(TypeError, match="nonsense"):
        ConfigurationBuilder().set(nonsense=1)
