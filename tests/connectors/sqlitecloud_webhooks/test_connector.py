"""A feed's settings say where it listens, how requests are signed, what names a row, of what types columns are."""

from __future__ import annotations

from typing import Any

import pytest

from silverfold.conf.errors import ConfigError, SourceRefused
from silverfold.connectors.base import Problem, TableKind
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR
from tests.support.sqlitecloud.webhooks import feed, options, table


def test_a_table_is_a_state_without_snapshots_fed_by_the_stream_of_its_database() -> None:
    shop = feed(tables={"albums": table(), "mine": table(source="Order")})
    assert [CONNECTOR.stream(shop, name) for name in shop.tables] == ["chinook.sqlite/albums", "chinook.sqlite/Order"]
    assert not CONNECTOR.has_snapshots(shop.tables["albums"])
    assert CONNECTOR.table_kind(shop.tables["albums"]) is TableKind.STATE


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"keys": []}, "no webhook tells which columns name a row"),
        ({"types": {"Title": "string"}}, "AlbumId has none"),
        ({"types": {"AlbumId": "int"}}, "one of bigint, double"),
        ({"types": {"AlbumId": "bigint", "albumid": "string"}}, "in one spelling"),
        ({"keys": ["AlbumId", "AlbumId"]}, "names of columns, each once"),
    ],
    ids=str,
)
def test_a_table_whose_rows_nothing_names_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        table(**settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"insecure": False}, "secret, or insecure = true"),
        ({"secret": {"env": "S"}, "header": "X", "insecure": True}, "not both"),
        ({"secret": {"env": "S"}}, "secret and header together"),
        ({"header": "X"}, "secret and header together"),
        ({"secret": {"env": "S"}, "header": "X: 1"}, "the name of a header"),
        ({"secret": "sesame", "header": "X"}, "a reference to a secret"),
        ({"path": "hook"}, "a path: / first"),
        ({"certificate_key": "k.pem"}, "certificate_key with certificate"),
        ({"max_body_bytes": 1 << 40}, "less than or equal"),
        ({"database": "a\0"}, "database: .*: a name without control characters"),
        ({"prefix": "sha256=\r\n"}, "prefix: .*: text without control characters"),
        ({"certificate": "a\0"}, "certificate: .*: a path without control characters"),
        ({"certificate": "c", "certificate_key": "a\n"}, "certificate_key: .*: a path without control characters"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_together_are_refused_and_no_secret_is_shown(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        options(**settings)
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize(("address", "found"), [("", []), ("[::1]:8090", []), ("8090", ["8090"]), ("a:0", ["a:0"])])
def test_an_address_that_cannot_be_listened_on_is_told(address: str, found: list[str]) -> None:
    problems: list[Problem] = list(CONNECTOR.problems(feed(address)))
    assert [(problem.key, problem.found) for problem in problems] == [("address", each) for each in found]


def test_nobody_can_be_asked_for_what_there_is() -> None:
    with pytest.raises(SourceRefused, match="no-snapshot"):
        CONNECTOR.subscribe(feed(), "albums")
