"""The control frame of a snapshot says again what it was made of; anything else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.landed.control import (
    MAX_BYTES,
    Description,
    TableColumn,
    read_description,
)

ID = TableColumn("id", "INTEGER", not_null=True, pk=1)
BODY: dict[str, Any] = {
    "table": "foo",
    "columns": [
        {"name": "id", "type": "INTEGER", "not_null": True, "pk": 1, "hidden": 0},
        {"name": "é \"'", "type": "", "not_null": False, "pk": 0, "hidden": 0},
        {"name": "twice", "type": "INT", "not_null": False, "pk": 0, "hidden": 2},
    ],
    "keys": ["id"],
}


def test_a_control_frame_describes_the_table() -> None:
    described = Description("foo", (ID, TableColumn("é \"'"), TableColumn("twice", "INT", hidden=2)), ("id",))
    assert json.loads(described.to_json()) == BODY
    assert read_description(json.dumps(BODY).encode()) == described
    assert described.names == ("id", "é \"'")


@pytest.mark.parametrize(
    "change",
    [
        {"table": 5},
        {"columns": []},
        {"columns": [{**BODY["columns"][0], "pk": "1"}]},
        {"columns": [{**BODY["columns"][0], "more": 1}]},
        {"columns": [BODY["columns"][0], BODY["columns"][0]]},
        {"columns": ["id"]},
        {"keys": []},
        {"keys": ["id", "id"]},
        {"keys": ["twice"]},
        {"keys": [1]},
        {"keys": "id"},
        {"more": 1},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_a_control_frame_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_description(json.dumps(BODY | change).encode())
    assert caught.value.reason == "bad_control"


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{}", b"[" * 100_000, b" " * (MAX_BYTES + 1)], ids=len)
def test_what_is_no_control_frame_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_description(body)
    assert caught.value.reason == "bad_control"
