"""Notifications are read as the vectors say, whatever their dialect; what cannot be read has its reason."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.landed.payload import (
    Change,
    ChannelMessage,
    TableUpdate,
    json_text,
    parse_streams,
    read_notification,
)
from tests.support.sqlitecloud.notices import table_text, vectors

PAYLOADS = vectors("payloads")
MALFORMED = vectors("malformed_payloads")
TABLES = [pytest.param(vector, id=vector["id"]) for vector in PAYLOADS if vector["expect"]["kind"] == "TABLE"]
MESSAGES = [pytest.param(vector, id=vector["id"]) for vector in PAYLOADS if vector["expect"]["kind"] == "MESSAGE"]


def tagged(value: Any) -> dict[str, Any] | None:
    """Return a value as the vectors have it; a real as its double."""
    match value:
        case None:
            return None
        case bool():
            return {"bool": json_text(value)}
        case int():
            return {"int": str(value)}
        case float():
            return {"real": value}
        case str():
            return {"text": value}
    return {"json": json_text(value)}


def with_doubles(value: Any) -> Any:
    return {"real": float(value["real"])} if isinstance(value, dict) and "real" in value else value


@pytest.mark.parametrize("vector", TABLES)
def test_a_tables_notification_says_which_rows_were_changed_how(vector: dict[str, Any]) -> None:
    update = read_notification(vector["text"].encode())
    assert isinstance(update, TableUpdate)
    expected = vector["expect"]
    assert (update.channel, update.sender, list(update.keys)) == (
        expected["channel"],
        expected["sender"],
        expected["keys"],
    )
    found = [
        (
            number,
            change.op,
            [tagged(v) for v in change.key],
            change.old_key and [tagged(v) for v in change.old_key],
            [[name, tagged(value)] for name, value in change.columns.items()],
        )
        for number, change in enumerate(update.changes)
    ]
    assert found == [
        (c["ordinal"], c["op"], c["key"], c.get("old_key"), [[name, with_doubles(value)] for name, value in c["row"]])
        for c in expected["changes"]
    ]


@pytest.mark.parametrize("vector", MESSAGES)
def test_a_message_says_what_was_said(vector: dict[str, Any]) -> None:
    expected = vector["expect"]
    payload = expected["payload"]["text"] if isinstance(expected["payload"], dict) else None
    message = ChannelMessage(expected["channel"], expected["sender"], payload)
    assert read_notification(vector["text"].encode()) == message
    assert parse_streams(vector["text"].encode()) == [f"notify:{expected['channel']}"]


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in MALFORMED])
def test_what_cannot_be_read_has_its_reason(vector: dict[str, Any]) -> None:
    text = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    with pytest.raises(InvalidValue) as caught:
        read_notification(text)
    assert caught.value.reason == vector["reason"]


HEAD = b'{"channel":"t","type":"TABLE","pk":["id"],"payload":['


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b'{"type":"UPDATE","id":1,"a":2 ,"a" :3}', "duplicate_column"),
        (b'{"type":"UPDATE","id":1,"a":"\\":","a" :3,"a":4}', "duplicate_column"),
        (b'{"type":"UPDATE","id":1,"\\u0061":2,"a":3}', "duplicate_column"),
        (b'{"type":"UPDATE","id":1,"a":{"b":1},"a":2}', "duplicate_column"),
        (b'{"type":"UPDATE","id":true}', "no_key"),
        (b'{"type":"DELETE","pv":[[1]]}', "no_key"),
        (b'{"type":"INSERT","id":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
        (b'{"type":"INSERT","id":1,"a":' + b"9" * 5_000 + b"}", "invalid_json"),
        (b'{"type":{},"id":1}', "unknown_op"),
        (b'{"type":"UPDATE","id":6,"sqlite_type":"DELETE","a":"moved","pv":[5]}', "unknown_op"),
        (b'{"sqlite_type":"DELETE","type":"x","type":"INSERT","pv":[5]}', "unknown_op"),
        (b"[]", "entry_not_an_object"),
        (b'"x"', "entry_not_an_object"),
    ],
)
def test_a_column_is_never_lost_among_others_of_its_name(entry: bytes, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_notification(HEAD + entry + b"]}")
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"channel":"\\ud800","type":"TABLE"}', "no_channel"),
        (b'{"channel":5,"type":"MESSAGE"}', "no_channel"),
        (b'{"type":"MESSAGE"}', "no_channel"),
        (b"\xff", "invalid_utf8"),
        (b"", "invalid_json"),
    ],
)
def test_a_notification_whose_stream_cannot_be_told_says_why(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_streams(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize("text", [b'{"channel":"c"}', b'{"channel":"c","type":"STATS","payload":[]}'])
def test_a_notification_of_an_unknown_kind_names_a_table_and_a_channel(text: bytes) -> None:
    assert parse_streams(text) == ["c", "notify:c"]


def test_of_two_members_of_one_name_the_envelope_has_the_first() -> None:
    text = b'{"channel":"a","channel":"b","type":"MESSAGE","payload":"x","payload":"y"}'
    assert read_notification(text) == ChannelMessage("a", None, "x")


def test_white_space_around_a_notification_means_nothing() -> None:
    assert read_notification(b' \n{ "channel" : "a", "type" : "MESSAGE" } \t') == ChannelMessage("a", None, None)


def test_a_sender_or_a_saying_that_is_no_text_is_its_json() -> None:
    text = b'{"sender":{"a":[1,null,true,1.50,1e999]},"channel":"c","type":"MESSAGE","payload":"\\ud800"}'
    assert read_notification(text) == ChannelMessage("c", '{"a":[1,null,true,1.5,9.0e+999]}', '"\\ud800"')


NAMES = st.sampled_from(["a", "b", "type", "pv", "pk", "channel", "payload", "é", '":', " "])
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(['":', '" ', '"\n', "\\", "1"]),
)
KEYS = st.tuples(st.integers(), st.sampled_from(["x", "y", ""]))


@st.composite
def entries(draw: st.DrawFn) -> tuple[str, tuple[Any, ...] | None, dict[str, Any]]:
    """Draw an operation, an old key, and columns."""
    op = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
    if op == "DELETE":
        return op, draw(KEYS), {}
    key = dict(zip(("k", "l"), draw(KEYS), strict=True))
    return (
        op,
        draw(st.none() | KEYS) if op == "UPDATE" else None,
        key | draw(st.dictionaries(NAMES, VALUES, max_size=5)),
    )


def change(op: str, old: tuple[Any, ...] | None, columns: dict[str, Any]) -> Change:
    if op == "DELETE":
        assert old is not None
        return Change("delete", old, None, {})
    key = (columns["k"], columns["l"])
    return Change("insert" if op == "INSERT" else "update", key, None if old == key else old, columns)


@given(st.lists(entries(), max_size=4), st.sampled_from(["old", "new"]))
def test_what_was_written_in_either_dialect_is_read(
    written: list[tuple[str, tuple[Any, ...] | None, dict[str, Any]]], dialect: str
) -> None:
    # In the old dialect the operation is written first, and a column of its name second: both are read.
    update = read_notification(table_text("t", ("k", "l"), written, dialect).encode())
    assert update == TableUpdate("t", "s", ("k", "l"), [change(*entry) for entry in written])


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,ab1 \\', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with suppress(InvalidValue):
        read_notification(text)


def test_a_number_too_large_for_a_double_is_infinite() -> None:
    update = read_notification(HEAD + b'{"type":"INSERT","id":1,"a":-9.0e+999}]}')
    assert isinstance(update, TableUpdate)
    assert update.changes[0].columns == {"id": 1, "a": -math.inf}


@pytest.mark.parametrize("depth", [65, 500, 900])
def test_what_is_said_on_a_channel_may_not_be_nested_too_deep(depth: int) -> None:
    text = b'{"channel":"c","type":"MESSAGE","payload":' + b"[" * depth + b"]" * depth + b"}"

    with pytest.raises(InvalidValue, match="too_deep"):
        read_notification(text)
    assert parse_streams(text) == ["notify:c"]
