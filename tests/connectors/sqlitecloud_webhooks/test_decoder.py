"""Webhooks become change rows, by two ways that agree; one that cannot be read becomes an error, whatever its bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud_webhooks.decoder import ChangeReader
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import (
    MOST_COLUMNS,
    announcement,
    columns_of,
    read_context,
)
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import SourceTable, read_webhook
from silverfold.connectors.sqlitecloud_webhooks.reference import WebhookReferenceReader
from tests.support.sqlitecloud.webhooks import KNOWN_COLUMNS, STREAM, options, reader, table, vectors, webhook

GOOD, MALFORMED = vectors("webhooks"), vectors("malformed")


def named(found: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(each, id=each["name"]) for each in found]


def decoded(body: bytes, **settings: Any) -> list[dict[str, Any]]:
    """Return the change rows of one webhook at position 5."""
    return [row for batch in reader(**settings).read([5], [body]) for row in batch.to_pylist()]


def reference_reader(**settings: Any) -> WebhookReferenceReader:
    found = WebhookReferenceReader(STREAM, table(), options(**settings))
    found.control(ControlFrame(0, 1, None, announcement(STREAM, KNOWN_COLUMNS).body))
    return found


def typed(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an expected row as Arrow gives it."""
    return row and {**row, "Price": row["Price"] and Decimal(row["Price"])}


@pytest.mark.parametrize("vector", named(GOOD))
def test_a_webhook_becomes_its_change_rows(vector: dict[str, Any]) -> None:
    assert decoded(vector["body"]) == [
        {
            "frame_seq": 5,
            "ordinal": ordinal,
            "op": change["op"],
            "key": {"AlbumId": change["key"][0]},
            "row": typed(change["row"]),
            "present": change["present"],
            "error": None,
        }
        for ordinal, change in enumerate(vector["changes"])
    ]


@pytest.mark.parametrize("vector", named(GOOD))
def test_what_verifies_reads_the_same_by_other_means(vector: dict[str, Any]) -> None:
    found = list(reference_reader().changes(1, [(5, vector["body"])]))
    expected = [
        (
            change["op"],
            5,
            tuple(change["key"]),
            {name: typed(change["row"])[name] for name in change["present"] or change["row"] or ()},
        )
        for change in vector["changes"]
    ]
    assert [(each.op, each.position, each.key, dict(each.row)) for each in found] == expected


@pytest.mark.parametrize("vector", named(MALFORMED))
def test_what_cannot_be_read_is_one_error_row_with_its_reason(vector: dict[str, Any]) -> None:
    (row,) = decoded(vector["body"])
    assert row["error"]["error_class"] == "INVALID_VALUE"
    assert row["error"]["reason"].startswith(vector["reason"])
    assert [row[name] for name in ("frame_seq", "ordinal", "op", "key", "row", "present")] == [5, *[None] * 5]
    with pytest.raises(WireError):
        list(reference_reader().changes(1, [(5, vector["body"])]))


def test_webhooks_around_one_that_cannot_be_read_are_decoded() -> None:
    bodies = [webhook("delete", AlbumId=1), b"{", webhook("update", AlbumId=2, Live="x"), webhook("delete", AlbumId=4)]
    rows = [row for batch in reader().read([10, 11, 12, 13], bodies) for row in batch.to_pylist()]
    assert [(row["frame_seq"], row["key"]) for row in rows if row["error"] is None] == [
        (10, {"AlbumId": 1}),
        (13, {"AlbumId": 4}),
    ]
    assert sorted(row["frame_seq"] for row in rows if row["error"] is not None) == [11, 12]


@pytest.mark.parametrize(
    ("setting", "op", "present", "title"),
    [("null", "insert", None, None), ("keep", "update", ["AlbumId", "Price"], None)],
)
def test_what_an_insert_lacks_is_null_or_stays_by_setting(setting, op, present, title) -> None:
    body = webhook("insert", AlbumId=1, Price=2)
    (row,) = decoded(body, insert_absent=setting)
    assert (row["op"], row["present"], row["row"]["Title"], row["row"]["Price"]) == (
        op,
        present,
        title,
        Decimal("2.00"),
    )
    (expected,) = reference_reader(insert_absent=setting).changes(1, [(5, body)])
    assert expected.op == op
    assert ("Title" in expected.row) == (setting == "null")


def test_an_insert_that_lacks_a_column_is_an_error_by_setting() -> None:
    (row,) = decoded(webhook("insert", AlbumId=1, Price=2), insert_absent="error")
    assert row["error"]["reason"].startswith("absent_column: an insert lacks Cover, Live, Title")
    with pytest.raises(InvalidValue, match="absent_column"):
        list(reference_reader(insert_absent="error").changes(1, [(5, webhook("insert", AlbumId=1, Price=2))]))
    whole = webhook("insert", AlbumId=1, Title="", Price=2, Live=None, Cover=None)
    assert decoded(whole, insert_absent="error")[0]["op"] == "insert"


def test_columns_are_keys_then_those_with_a_type_then_others_as_they_were_told() -> None:
    control = [
        ControlFrame(1, 1, None, announcement(STREAM, ["Cover", "AlbumId"]).body),
        ControlFrame(2, 1, None, announcement("chinook.sqlite/artists", ["Name"]).body),
        ControlFrame(4, 2, None, announcement(STREAM, ["AlbumId", "COVER", "Label"]).body),
        ControlFrame(5, 2, None, b"{"),
        ControlFrame(6, 2, STREAM, b'{"columns": ["Label", "Old"]}'),
    ]
    columns = columns_of(
        read_context(control).stream_columns(STREAM), table(types={"Title": "string", "AlbumId": "bigint"}), options()
    )
    assert [(column.name, column.kind, at) for column, at in columns] == [
        ("AlbumId", "bigint", -1),
        ("Title", "string", -1),
        ("Cover", "string", 1),
        ("Label", "string", 4),
        ("Old", "string", 6),
    ]
    assert MOST_COLUMNS == 2_000


def test_a_webhook_is_read_with_the_columns_told_before_it() -> None:
    reading = ChangeReader(
        SourceTable("chinook.sqlite", "albums"),
        columns_of({"AlbumId": 1, "Cover": 1, "Label": 7}, table(types={"AlbumId": "bigint"}), options()),
        ("AlbumId",),
        "error",
    )
    early, late = webhook("insert", AlbumId=1, Cover="a"), webhook("insert", AlbumId=2, Cover="b", Label="l")
    partial, soon = webhook("update", AlbumId=3, Cover="c"), webhook("update", AlbumId=4, Label="m")

    batches = reading.read([5, 6, 8, 9, 4], [early, partial, late, partial, soon])

    rows = {row["frame_seq"]: row for batch in batches for row in batch.to_pylist()}
    assert [rows[at]["present"] for at in (5, 6, 8, 9)] == [None, partly := ["AlbumId", "Cover"], None, partly]
    assert rows[5]["row"] == {"AlbumId": 1, "Cover": "a", "Label": None}
    assert rows[4]["error"]["reason"].startswith("unknown_column: column 'Label' was not told before")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_webhook_or_an_invalid_value(body: bytes) -> None:
    with suppress(InvalidValue):
        read_webhook(body)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAME = st.sampled_from(["AlbumId", "albumid", "Title", "Price", "Live", "Cover", "Label", "type", ""])
ROWS = st.lists(NESTED, max_size=4) | st.lists(st.lists(NESTED, max_size=3), max_size=3)
FIELDS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["insert", "update", "delete", "INSERT", None]),
        "database": st.sampled_from(["chinook.sqlite", "chinook.sqlite", "other"]),
        "table": st.just("albums"),
        "column": st.lists(NAME, max_size=3).map(lambda names: ["AlbumId", *names]) | NESTED,
        "data": st.builds(lambda key, rest: [key, *rest], st.integers(0, 3) | NESTED, ROWS) | ROWS | NESTED,
    }
)


@given(FIELDS, st.sampled_from(["null", "keep", "error"]))
def test_both_ways_of_reading_agree_on_anything_that_is_nearly_a_webhook(fields: dict[str, Any], absent: str) -> None:
    body = json.dumps(fields).encode()
    rows = decoded(body, insert_absent=absent)
    try:
        expected = list(reference_reader(insert_absent=absent).changes(1, [(5, body)]))
    except WireError:
        assert [row["error"] is None for row in rows] == [False]
        return
    assert [
        (row["op"], (row["key"]["AlbumId"],), {name: row["row"][name] for name in row["present"] or row["row"] or ()})
        for row in rows
    ] == [(each.op, each.key, dict(each.row)) for each in expected]


@pytest.mark.parametrize("key", ["01", "-0"])
def test_a_key_that_another_one_would_be_too_is_told(key: str) -> None:
    body = json.dumps(
        {"type": "delete", "database": "chinook.sqlite", "table": "albums", "column": ["AlbumId"], "data": [key]}
    ).encode()
    (row,) = decoded(body)
    assert "another key would be the same" in row["error"]["reason"]
    with pytest.raises(InvalidValue):
        list(reference_reader().changes(1, [(5, body)]))


@pytest.mark.parametrize(("depth", "fits"), [(64, True), (65, False), (500, False), (9_900, False)])
@pytest.mark.parametrize("ends", ["[]", ('{"a":', "}")])
def test_a_value_nested_too_deep_is_an_error_row_by_either_way(depth: int, fits: bool, ends: Any) -> None:
    value = ends[0] * (depth - 1) + "[1]" + ends[1] * (depth - 1)
    where = '"database":"chinook.sqlite","table":"albums"'
    body = f'{{{where},"type":"insert","column":["AlbumId","Title"],"data":[[1,{value}]]}}'
    (row,) = decoded(body.encode())
    is_readable = False
    with suppress(WireError):
        is_readable = bool(list(reference_reader().changes(1, [(5, body.encode())])))

    assert (row["error"] is None, is_readable) == (fits, fits)
    assert fits or row["error"]["reason"].startswith("too_deep: ")
