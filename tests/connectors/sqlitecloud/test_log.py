"""A table's log: each change that is notified of it, with who wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import ConfigError, WireError
from silverfold.conf.validate import validated
from silverfold.connectors.frames import Kind
from silverfold.connectors.sqlitecloud.decoder.channel_messages import LOG
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_json
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from tests.connectors.sqlitecloud.receiver.test_receiver import WHOLE, run
from tests.support.sqlitecloud.notices import framed, vectors
from tests.support.sqlitecloud.receiving import database

SETTINGS = SqliteCloudTable(log=True)
PAYLOADS = [*vectors("payloads"), *vectors("malformed_payloads")]


def logged(*bodies: bytes) -> list[dict[str, Any]]:
    return [row for batch in LOG.changes(list(range(len(bodies))), list(bodies)) for row in batch.to_pylist()]


def reference_rows(body: bytes) -> list[tuple[Any, ...]] | None:
    reader = SqliteCloudReferenceReader("log:foo", SETTINGS, SqliteCloudOptions())
    try:
        return [(change.op, change.key, change.row) for change in reader.changes(1, [(0, body)])]
    except WireError:
        return None


def assert_as_reference(body: bytes) -> None:
    found, expected = logged(body), reference_rows(body)
    if expected is None:
        assert [row["row"] for row in found] == [None]
        assert found[0]["error"]["error_class"]
        return
    assert [(row["op"], tuple(row["key"].values()), row["row"]) for row in found] == expected


def test_a_change_is_a_row_with_its_sender_and_what_was_sent_in_json() -> None:
    entries = [
        {"type": "INSERT", "id": 12, "col1": "value1", "col2": 3.14},
        {"type": "DELETE", "pv": [13]},
        {"type": "UPDATE", "id": 15, "col1": None, "pv": [14]},
        {"type": "UPDATE", "id": 15, "col1": {"a": [1, {}]}, "pv": [15]},
    ]
    notification = {"sender": "b7a9", "channel": "foo", "type": "TABLE", "pk": ["id"], "payload": entries}

    found = logged(framed(json.dumps(notification)))

    names = ("sender", "op", "key", "old_key", "columns")
    assert [row["row"] for row in found] == [
        dict(zip(names, row, strict=True))
        for row in [
            ("b7a9", "insert", '{"id":12}', None, '{"id":12,"col1":"value1","col2":3.14}'),
            ("b7a9", "delete", '{"id":13}', None, None),
            ("b7a9", "update", '{"id":15}', '{"id":14}', '{"id":15,"col1":null}'),
            ("b7a9", "update", '{"id":15}', None, '{"id":15,"col1":{"a":[1,{}]}}'),
        ]
    ]
    assert [row["ordinal"] for row in found] == [0, 1, 2, 3]
    assert_as_reference(framed(json.dumps(notification)))


def test_texts_that_utf8_cannot_encode_are_escaped_and_a_negative_zero_is_zero() -> None:
    entry = r'{"type":"INSERT","id":"\ud800","é":"é\udc00","n":-0,"l":["\ud83d\ude00",{"\ud800":-0}]}'
    body = framed(f'{{"sender":0,"channel":"foo","type":"TABLE","pk":["id"],"payload":[{entry}]}}')

    (row,) = logged(body)

    assert row["row"]["key"] == r'{"id":"\ud800"}'
    columns = r'{"id":"\ud800","é":"\u00e9\udc00","n":0,"l":["😀",{"\ud800":0}]}'
    assert row["row"]["columns"] == columns
    assert_as_reference(body)


@pytest.mark.parametrize("vector", PAYLOADS, ids=[vector["id"] for vector in PAYLOADS])
def test_every_payload_is_logged_as_it_is_read_plainly(vector: dict[str, Any]) -> None:
    text = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    assert_as_reference(b"#%d %s" % (len(text), text))


VALUES = st.sampled_from([None, True, 0, 1, 1.0, -0.0, 2**53 + 1, 1e300, "x", "1", "é\ud800", [1], {"a": 1}])
NAMES = st.sampled_from(["id", "k", "type", "pv", "sqlite_type"])
ENTRIES = st.fixed_dictionaries(
    {"type": st.sampled_from(["INSERT", "UPDATE", "DELETE", "X"])},
    optional={"id": VALUES, "k": VALUES, "pv": st.lists(VALUES, max_size=3), "col": VALUES, "sqlite_pk_value": VALUES},
)


@given(st.lists(ENTRIES, max_size=3), st.lists(NAMES, max_size=2), VALUES)
def test_any_notification_is_logged_as_it_is_read_plainly(
    entries: list[dict[str, Any]], keys: list[str], sender: object
) -> None:
    notification = {"sender": sender, "channel": "foo", "type": "TABLE", "pk": keys, "payload": entries}
    assert_as_reference(encode_json(json.dumps(notification)))


def test_a_log_is_of_no_rows_of_the_table() -> None:
    for wrong in ({"keys": ["a"]}, {"channel": "c"}, {"types": {"a": "string"}}, {"stored_as_scd_type": 2}):
        with pytest.raises(ConfigError, match=r"alone|without"):
            validated(SqliteCloudTable, {"log": True, **wrong}, file="shop.toml")


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("all_tables", [False, True])
def test_notifications_land_once_more_for_the_log_also_of_a_table_of_which_there_is_nothing_else(
    tmp_path: Any, only: bool, all_tables: bool
) -> None:
    path = database(tmp_path)
    tables = {"history": SqliteCloudTable(source="foo", log=True)} | ({} if only else {"foo": SqliteCloudTable()})

    async def use(at: Any) -> Any:
        if not only or all_tables:
            await at.complete()
        else:
            await at.until(lambda: at.sink.marks("listening"), "listening")
        await at.db.exec("INSERT INTO foo VALUES (1, 'x', NULL)")
        await at.await_notifications("log:foo", 1)
        return at.sink

    sink = run(use, path, tables, all_tables=all_tables)
    assert sink.outline("foo") == (["data, whole"] if only and not all_tables else [*WHOLE, "data, whole"])
    ours, copy = (
        [frame.body for frame in sink.frames if frame.stream == each and frame.kind is Kind.DATA]
        for each in ("foo", "log:foo")
    )
    assert ours == copy
