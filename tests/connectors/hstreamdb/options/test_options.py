"""Every wrong setting of a feed is one clear line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import FeedSettings, Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.hstreamdb.client.address import connection_settings
from silverfold.connectors.hstreamdb.client.client import open_feed_client
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.registry import open_feed
from silverfold.pipelines.storage.row_settings import differing

TABLE = {"keys": ["id"], "columns": {"id": "bigint", "total": "decimal(10, 2)", "name": "string"}}
OPTIONS = {"stream": "orders", "subscription": "shop"}


def opened(address: str = "hstream://h:6570", table: dict[str, Any] = TABLE, **options: Any) -> Feed:
    feed = FeedSettings(connector="hstreamdb", address=address, options=OPTIONS | options, tables={"orders": table})
    return open_feed("shop", Settings(warehouse="w", feeds={"shop": feed}))[1]


def problem(**given: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        opened(**given)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_feed_needs_a_stream_a_subscription_and_columns() -> None:
    feed = opened()
    assert (feed.options.stream, feed.options.subscription) == ("orders", "shop")
    assert feed.options.max_unacked_records == 100_000
    assert feed.options.offset == "earliest"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"address": "localhost:6570"}, "hstream://host"),
        ({"address": "hstream://h:0"}, "a port from 1 to 65535"),
        ({"address": "hstream://h", "ca": "ca.pem"}, "hstreams://"),
        ({"token": {"env": "T"}}, "token"),
        ({"token_without_tls": True}, "token_without_tls with token"),
        ({"certificate": "c.pem"}, "certificate and certificate_key together"),
        ({"stream": "1orders"}, "a name: a letter, then"),
        ({"subscription": ""}, "a name: a letter, then"),
        ({"ack_timeout_seconds": 9}, "greater than or equal to 10"),
        ({"max_unacked_records": 0}, "greater than or equal to 1"),
        ({"consumers": 0}, "greater than or equal to 1"),
        ({"advertised": {"x": "y:1"}}, "options.advertised"),
        ({"table": {**TABLE, "keys": []}}, "keys: no record tells"),
        ({"table": {**TABLE, "keys": ["no"]}}, "columns with all keys: no is missing"),
        ({"table": {"keys": ["id"]}}, "columns: records do not tell"),
        ({"table": {**TABLE, "columns": {"id": "double"}}}, "keys of any type but float and double"),
        ({"table": {**TABLE, "columns": {"id": "integer"}}}, "one of tinyint"),
        ({"table": {**TABLE, "columns": {"id": "int", "ID": "int"}}}, "each column once"),
        ({"table": {**TABLE, "encodings": {"no": "base64"}}}, "encodings of columns: no is none"),
        ({"table": {**TABLE, "encodings": {"id": "base64"}}}, "for id, of type bigint, none"),
        ({"table": {**TABLE, "encodings": {"total": "base64"}}}, "text_decimal, base64_decimal"),
        ({"table": {**TABLE, "layout": "other"}}, "layout"),
        ({"table": {**TABLE, "operation_form": "flat", "operation_member": "name"}}, "columns beside name"),
        ({"table": {**TABLE, "source": "others"}}, "orders, the stream of the feed"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(given: dict[str, Any], line: str) -> None:
    assert line in problem(**given)


def test_settings_that_determine_rows_show_their_defaults() -> None:
    settings = opened().tables["orders"].row_settings
    assert settings["columns"] == ["id", "name", "total (text_decimal)"]
    assert settings["layout"] == "auto"


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({"columns": {**TABLE["columns"], "id": "int"}}, []),
        ({"columns": {**TABLE["columns"], "at": "timestamp"}}, ["columns"]),
        ({"encodings": {"total": "base64_decimal"}}, ["columns"]),
        ({"layout": "row"}, ["layout"]),
    ],
)
def test_what_landed_has_values_of_other_columns_too(changes: dict[str, Any], differ: list[str]) -> None:
    then, now = opened(), opened(table={**TABLE, **changes})
    assert differing(then.tables["orders"].row_settings, now.tables["orders"].row_settings) == differ


def test_secrets_and_files_go_to_the_client_and_a_wrong_token_is_named_without_being_shown() -> None:
    feed = opened(
        "hstreams://h", token={"env": "TOKEN"}, ca="ca.pem", certificate="c.pem", certificate_key="k.pem",
        advertised={"n1:6570": "h:1"},
    )  # fmt: skip
    found = connection_settings(feed, {"TOKEN": "dTpw"})
    assert found.token is not None
    assert found.token.get_secret_value() == "dTpw"
    assert found.tls is not None
    assert (found.tls.root_certificate, found.tls.client_certificate_key) == ("ca.pem", "k.pem")
    assert found.advertised == {"n1:6570": "h:1"}
    with pytest.raises(ConfigError) as raised:
        connection_settings(feed, {"TOKEN": "not base64!"})
    assert "not base64!" not in str(raised.value)
    assert "options.token" in str(raised.value)


def test_a_file_that_cannot_be_used_is_named_by_the_setting_of_the_feed() -> None:
    feed = opened("hstreams://127.0.0.1:1", ca="none.pem")
    with pytest.raises(ConfigError, match=r"shop.toml: options.ca: found 'none.pem'"):
        asyncio.run(open_feed_client(feed, {}))


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("hstream://h1:6570,h2", True),
        ("hstream://h2,h1", True),
        ("HSTREAMS://H1, h2:6570/", True),
        ("hstream://h3,h1", True),
        ("hstream://127.0.0.1:7000", True),
        ("hstream://[::1]:7000", True),
        ("hstream://[0:0:0:0:0:0:0:1]:7000", True),
        ("hstream://h1.", True),
        ("hstream://h3", False),
        ("hstream://h1:6571,h2:6571", False),
    ],
)
def test_a_subscription_is_the_same_at_every_spelling_of_one_of_its_addresses(address: str, same: bool) -> None:
    here, there = (CONNECTOR.exclusive(opened(each))[1] for each in ("hstream://h1,h2,localhost:7000", address))
    assert bool({*here} & {*there}) is same
