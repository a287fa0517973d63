"""Every wrong setting of a feed is one clear line."""

from __future__ import annotations

from typing import Any

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import FeedSettings, Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.common.transport import Address
from silverfold.connectors.registry import open_feed
from silverfold.connectors.tengi.address import link_settings, parse_address
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.protocol.values import Handshake, Identifier
from silverfold.connectors.tengi.transports.names import UnsupportedTransport

TABLE = {"keys": ["id"], "columns": {"id": "bigint", "total": "DECIMAL(10, 2)", "tags": "array<string>"}}


def opened(address: str = "tengi://h:8080", table: dict[str, Any] | None = None, **options: Any) -> Feed:
    options = {"transport": "tcp", **options}
    feed = FeedSettings(connector="tengi", address=address, options=options, tables={"orders": table or {}})
    return open_feed("shop", Settings(warehouse="w", feeds={"shop": feed}))[1]


def problem(**given: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        opened(**given)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_feed_needs_a_transport() -> None:
    feed = opened(table=TABLE)
    assert feed.options.reorder_wait == 5.0
    assert feed.tables["orders"].columns["total"] == "decimal(10,2)"
    assert CONNECTOR.stream(feed, "orders") == "orders"
    with pytest.raises(ConfigError, match="transport"):
        open_feed(
            "shop",
            Settings(
                warehouse="w",
                feeds={"shop": FeedSettings(connector="tengi", address="tengi://h", tables={"orders": {}})},
            ),
        )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"address": "h:8080"}, "tengi://host:port"),
        ({"address": "tengi://h:0"}, "a port from 1 to 65535"),
        ({"address": "tengi://"}, "host"),
        ({"transport": "carrier"}, "tcp, websocket or http"),
        ({"mode": "both"}, "'dial' or 'listen'"),
        ({"tls_ca": "ca.pem"}, "tls = true with tls_verify"),
        ({"tls_verify": False}, "tls = true with tls_verify"),
        ({"tls": True, "tls_ca": "ca.pem", "tls_verify": False}, "tls_ca or tls_verify = false"),
        ({"handshake": {"token": {"env": "T"}}}, "tls = true with secrets in handshake"),
        ({"tls": True, "mode": "listen"}, "tls_certificate with tls"),
        ({"tls": True, "tls_certificate": "c.pem"}, 'with mode = "listen"'),
        ({"tls": True, "tls_ca": "c.pem", "tls_certificate": "c.pem", "mode": "listen"}, 'with mode = "dial"'),
        ({"ping_interval": 45}, "dead_after longer than ping_interval"),
        ({"ping_interval": 46, "dead_after": 300}, "less than or equal to 45"),
        ({"reorder_packets": 0}, "greater than or equal to 1"),
        ({"max_packet": 1}, "greater than or equal to 1024"),
        ({"reorderwait": 1}, "did you mean reorder_wait"),
        ({"table": {"columns": {"id": "bigint"}, "keys": ["no"]}}, "columns with all keys: no is missing"),
        ({"table": {"columns": {"id": "number"}, "keys": ["id"]}}, "a type in Spark's DDL"),
        ({"table": {"columns": {"id": "char(3)"}, "keys": ["id"]}}, "and string for varchar and char"),
        ({"table": {"columns": {"id": "double"}, "keys": ["id"]}}, "keys of types with one form"),
        ({"table": {"columns": {"id": "bigint", "ID": "int"}, "keys": ["id"]}}, "names each column once"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(given: dict[str, Any], line: str) -> None:
    assert line in problem(**given)


@pytest.mark.parametrize("name", ["http2", "udp", "rdp", "sctp", "udt", "tengi::transport::http/2"])
def test_a_transport_that_is_not_supported_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(UnsupportedTransport) as raised:
        opened(transport=name)
    assert raised.value.error_class == "UNSUPPORTED_TRANSPORT"
    assert raised.value.reason in str(raised.value)
    assert (raised.value.file, raised.value.key) == ("feeds/shop.toml", "options.transport")


def test_javas_names_mean_the_same() -> None:
    feed = opened(transport="tengi::transport::http/1.1", address="tengi://h")
    assert dict(link_settings(feed).transports) == {Transport.HTTP: 8080}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tengi://h", Address("h", 8080)),
        ("tengi://h:1", Address("h", 1)),
        ("tengi://[::1]", Address("::1", 8080)),
        ("tengi://[::1]:7", Address("::1", 7)),
    ],
)
def test_an_address_has_port_8080_unless_it_says_otherwise(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_a_handshake_has_secrets_and_a_receiver_that_listens_demands_them() -> None:
    options = {"tls": True, "tls_verify": False, "handshake": {"token": {"env": "TOKEN"}, "who": "shop"}}
    assert link_settings(opened(**options), {"TOKEN": "t"}).handshake == {"token": "t", "who": "shop"}
    with pytest.raises(ConfigError, match="TOKEN"):
        link_settings(opened(**options), {})
    handler = link_settings(opened(mode="listen", handshake={"token": "t"})).handshake_handler
    connection = Identifier(bytes(16))
    assert handler(connection, Handshake({"token": "t", "more": 1})) == Handshake()
    assert handler(connection, Handshake({"token": "x"})) is None
    assert handler(connection, Handshake({"token": 1})) is None
    assert handler(connection, Handshake()) is None


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({}, "over tcp: a handshake of 70063 bytes, 65536 are allowed"),
        ({"mode": "listen", "transport": "http"}, "over http: a handshake of 70063 bytes"),
        ({"peer": "java", "transport": "websocket"}, "over websocket to Java: a handshake of 70063 bytes"),
    ],
)
def test_a_handshake_that_does_not_fit_its_transport_is_a_mistake_and_is_not_repeated(
    given: dict[str, Any], detail: str
) -> None:
    found = problem(handshake={"token": "x" * 70_000}, **given)
    assert detail in found
    assert "options.handshake: found a value that is not shown" in found


def test_java_takes_400_bytes_over_tcp_alone() -> None:
    token = {"token": "x" * 500}
    assert "over tcp to Java: a packet of 560 bytes, 400 are allowed" in problem(handshake=token, peer="java")
    assert opened(handshake=token, peer="java", transport="http").options.handshake == token
    assert opened(handshake=token, peer="java", mode="listen").options.handshake == token
    assert opened(handshake=token, max_packet=1024).options.handshake == token


@pytest.mark.parametrize(
    ("text", "found"),
    [("x" * 70_000, "what fits a handshake"), ("", "token: found 'an empty")],
    ids=["too long", "empty"],
)
def test_a_secret_of_a_handshake_is_looked_at_when_it_is_read(text: str, found: str) -> None:
    for mode in ({"tls_verify": False}, {"mode": "listen", "tls_certificate": "server.pem"}):
        shop = opened(tls=True, handshake={"token": {"env": "TOKEN"}}, **mode)
        with pytest.raises(ConfigError, match=f"feeds/shop.toml: options.handshake.*{found}"):
            link_settings(shop, {"TOKEN": text})


def test_a_file_of_tls_that_cannot_be_used_is_named_by_its_setting() -> None:
    with pytest.raises(ConfigError) as raised:
        link_settings(opened(tls=True, tls_ca="/nowhere/ca.pem"))
    assert raised.value.key == "options.tls_ca"
    listening = opened(tls=True, mode="listen", tls_certificate="/nowhere/c.pem")
    with pytest.raises(ConfigError) as raised:
        link_settings(listening)
    assert raised.value.key == "options.tls_certificate"


def test_only_a_receiver_that_listens_has_an_address_of_its_own() -> None:
    assert CONNECTOR.listens_at(opened()) is None
    assert CONNECTOR.listens_at(opened(mode="listen")) == Address("h", 8080)
