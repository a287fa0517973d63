"""A feed's settings say where its database is, what its tables are of, and how the source is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from silverfold.conf.errors import ConfigError, SchemaDrift
from silverfold.connectors.base import Cut, Feed, Problem, TableKind
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.address import connection_settings
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.decoder.decoder import read_context
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from tests.support.sqlitecloud.notices import control, described

ADDRESS = "sqlitecloud://db.example:1234/chinook.sqlite"


def feed(
    address: str = ADDRESS, tables: dict[str, dict[str, Any]] | None = None, options: dict[str, Any] | None = None
) -> Feed:
    named = {name: SqliteCloudTable.model_validate(each) for name, each in (tables or {"foo": {}}).items()}
    given = SqliteCloudOptions.model_validate({"apikey": {"env": "KEY"}} if options is None else options)
    return Feed("shop", "sqlitecloud", address, given, named)


def test_a_table_is_a_state_and_a_channel_a_log_of_what_was_said() -> None:
    shop = feed(tables={"foo": {}, "orders": {"source": "Order"}, "said": {"channel": "foo"}})
    streams = {name: CONNECTOR.stream(shop, name) for name in shop.tables}
    assert streams == {"foo": "foo", "orders": "Order", "said": "notify:foo"}
    table, channel = shop.tables["orders"], shop.tables["said"]
    assert (CONNECTOR.has_snapshots(table), CONNECTOR.table_kind(table)) == (True, TableKind.STATE)
    assert (CONNECTOR.has_snapshots(channel), CONNECTOR.table_kind(channel)) == (False, TableKind.APPEND)


@pytest.mark.parametrize(
    "table",
    [
        {"channel": "c", "source": "t"},
        {"channel": "c", "keys": ["id"]},
        {"channel": "c", "types": {"payload": "binary"}},
        {"channel": "c", "stored_as_scd_type": 2},
        {"channel": "c", "on_unexplained": "error"},
        {"channel": "c", "expect": {"said": {"condition": "payload IS NOT NULL", "action": "warn"}}},
        {"key_collation": "rtrim"},
        {"keys": ["id", "ID"]},
        {"keys": ["id"], "types": {"id": "double"}},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_together_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SqliteCloudTable.model_validate(table)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "u"},
        {"password": {"env": "P"}},
        {"apikey": {"env": "K"}, "token": {"env": "T"}},
        {"connection": {"env": "C"}, "token": {"env": "T"}},
        {"apikey": "in the open"},
        {"blob": "base32"},
        {"settle_seconds": 0},
        {"canary_seconds": -1},
        {"unknown": 1},
    ],
    ids=str,
)
def test_options_that_are_wrong_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SqliteCloudOptions.model_validate(options)


def test_a_feed_that_is_right_has_no_problems() -> None:
    assert list(CONNECTOR.problems(feed())) == []
    assert list(CONNECTOR.problems(feed("", options={"connection": {"env": "URL"}}))) == []


@pytest.mark.parametrize(
    ("shop", "key"),
    [
        (feed(""), "address"),
        (feed("sqlitecloud://db.example"), "address"),
        (feed(options={}), "address"),
        (feed("sqlitecloud://u:p@db.example/x?apikey=hidden"), "address"),
        (feed(options={"connection": {"env": "URL"}}), "address"),
        (feed(f"{ADDRESS}?apikey=hidden&noblob=1", options={}), "address"),
        (feed(f"{ADDRESS}?apikey=hidden&maxdata=9", options={}), "address"),
        (feed(tables={"foo": {}, "bar": {"source": "foo", "keys": ["id"]}}), "tables.bar.keys"),
    ],
)
def test_what_is_wrong_beyond_the_models_is_told_without_secrets(shop: Feed, key: str) -> None:
    (problem,) = CONNECTOR.problems(shop)
    assert isinstance(problem, Problem)
    assert problem.key == key
    assert "hidden" not in str(problem)
    assert "u:p" not in str(problem)


def test_credentials_are_read_where_the_options_say(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pass\n")
    shop = feed(options={"user": "me", "password": {"file": str(tmp_path / "secret")}, "max_rows": 7})
    found = connection_settings(shop, {})
    assert (found.host, found.port, found.database, found.max_rows) == ("db.example", 1234, "chinook.sqlite", 7)
    assert found.login.text.startswith("AUTH USER me PASSWORD pass;USE DATABASE chinook.sqlite;")


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [("", {}, 5000), ("&maxrows=9", {}, 9), ("&maxrows=9", {"max_rows": 5000}, 5000), ("", {"max_rows": 0}, 0)],
)
def test_the_rows_of_a_frame_are_those_of_the_options_or_else_of_the_address(
    query: str, options: dict[str, Any], expected: int
) -> None:
    found = connection_settings(feed(f"{ADDRESS}?apikey=any{query}", options=options), {})
    assert found.max_rows == expected


def test_a_whole_connection_string_may_be_the_secret() -> None:
    shop = feed("", options={"connection": {"env": "URL"}})
    found = connection_settings(shop, {"URL": f"{ADDRESS}?token=abc"})
    assert found.login.text.startswith("AUTH TOKEN abc;USE DATABASE chinook.sqlite;")


@pytest.mark.parametrize("options", [{"connection": {"env": "URL"}}, {"apikey": {"env": "URL"}}])
def test_a_secret_that_cannot_be_used_is_told_but_not_shown(options: dict[str, Any]) -> None:
    shop = feed("" if "connection" in options else ADDRESS, options=options)
    with pytest.raises(ConfigError) as caught:
        connection_settings(shop, {"URL": "very secret; DROP"})
    assert "very" not in str(caught.value)
    with pytest.raises(ConfigError, match="URL"):
        connection_settings(shop, {})


def cut(last: int, snapshot_end: int | None = None, epoch: int = 2) -> Cut:
    return Cut("foo", epoch, -1, last, ((0, last),), (0,), (last,), snapshot_end is not None, snapshot_end)


def test_a_cut_has_the_columns_of_the_snapshot_it_stands_on() -> None:
    first, second, other = (described("foo", {"id": "INT", name: ""}, ["id"]) for name in ("a", "b", "c"))
    context = read_context(
        [control(other, at=1, epoch=1), control(first, at=5, epoch=2), control(second, at=50, epoch=2)]
    )
    assert context.description(cut(last=40)) == first
    assert context.description(cut(last=60)) == second
    assert context.description(cut(last=60, snapshot_end=45)) == first


def test_an_epoch_that_does_not_tell_its_columns_is_a_drift() -> None:
    context = read_context(
        [control(described("foo", {"id": ""}, ["id"]), at=1, epoch=1), ControlFrame(2, 2, "foo", b"{}")]
    )
    with pytest.raises(SchemaDrift):
        context.description(cut(last=10))


def test_columns_described_twice_by_one_name_are_why_a_table_holds_whatever_was_described_before() -> None:
    good = described("foo", {"id": ""}, ["id"])
    doubled = replace(good, columns=good.columns * 2)
    context = read_context([control(good, at=5, epoch=2), control(doubled, at=50, epoch=2)])
    assert context.description(cut(last=40)) == good
    with pytest.raises(SchemaDrift, match=r"foo: .*epoch 2: bad_control: two columns have one name"):
        context.description(cut(last=60))
