"""A notification that is read as typed says what it says when it is parsed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import astuple

from silverfold.conf.errors import WireError
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.landed.payload import TableUpdate, read_notification
from silverfold.connectors.sqlitecloud.protocol.landed.typed_notification import compile_readers
from silverfold.connectors.sqlitecloud.receiver.window import SnapshotWindow
from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import table_text as written
from tests.support.sqlitecloud.drawing import FOO, TABLES, notices
from tests.support.sqlitecloud.notices import vectors

HEAD = '{"sender":"s","channel":"foo","channel_type":"TABLE","sqlite_pk_name":["id"],"payload":'


def read(text: bytes, described: Description) -> list[tuple[Any, ...]] | None:
    """What is read as typed, if it is: of each entry its operation, its values and its old key."""
    entries = compile_readers(described)(text)(text)
    return None if entries is None else [(entry.op, *astuple(entry)) for entry in entries]


def parsed(text: bytes, described: Description) -> list[tuple[Any, ...]]:
    """The same, as it is parsed. The key of a delete is an old key."""
    update = read_notification(text)
    assert isinstance(update, TableUpdate)
    return [
        (op, *[columns.get(name, UNSET) for name in described.names], key if op == "delete" else old_key or UNSET)
        for op, key, old_key, columns in update.changes
    ]


def without_equal_old_keys(change: tuple[Any, ...], described: Description) -> tuple[Any, ...]:
    """Parsing leaves out an old key that is the new one, and that of an insert."""
    op, *cells, old_key = change
    key = tuple(cells[described.names.index(name)] for name in described.keys)
    is_left_out = op == "insert" or (op == "update" and old_key == key)
    return (op, *cells, UNSET if is_left_out else old_key)


def is_known(text: bytes, described: Description) -> bool:
    """Whether reading bears it out."""
    try:
        notification = read_notification(text)
    except WireError:
        return False
    window = SnapshotWindow(described, SqliteCloudTable(), SqliteCloudOptions())
    return (
        isinstance(notification, TableUpdate)
        and notification.channel == described.table
        and window.matches(notification)
    )


@pytest.mark.parametrize("words", [Vocabulary.OLD, Vocabulary.NEW])
def test_what_a_server_writes_is_read_as_typed_in_either_vocabulary(words: Vocabulary) -> None:
    changes = (
        RowChange("INSERT", {"id": 1, "a": 'say "é\\\u2028"', "b": None}, ()),
        RowChange("UPDATE", {"id": 2, "b": -1.5}, (1,), key_changed=True),
        RowChange("UPDATE", {"id": 2}, (2,)),
        RowChange("DELETE", {}, ("x",)),
    )
    text = written(Dialect(words=words), sender='"s"', changes=TableChanges("foo", ("id",), changes))
    assert read(text.encode(), FOO) == [
        ("insert", 1, 'say "é\\\u2028"', None, UNSET),
        ("update", 2, UNSET, -1.5, (1,)),
        ("update", 2, UNSET, UNSET, UNSET),
        ("delete", UNSET, UNSET, UNSET, ("x",)),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        '[{"sqlite_type":"INSERT","id":1,"c":2}]',
        '[{"sqlite_type":"INSERT","id":1,"a":1,"a":2}]',
        '[{"sqlite_type":"INSERT","id":1,"id":1}]',
        '[{"sqlite_type":"INSERT","id":null}]',
        '[{"sqlite_type":"INSERT","id":true}]',
        '[{"sqlite_type":"INSERT","a":1}]',
        '[{"sqlite_type":"UPDATE","id":1,"sqlite_pk_value":[1,2]}]',
        '[{"sqlite_type":"UPDATE","id":1,"sqlite_pk_value":[null]}]',
        '[{"sqlite_type":"DELETE","sqlite_pk_value":[]}]',
        '[{"sqlite_type":"DELETE"}]',
        '[{"sqlite_type":"UPSERT","id":1}]',
        '[{"sqlite_type":"INSERT","id":01}]',
        '[{"sqlite_type":"INSERT","id":1.}]',
        '[{"sqlite_type":"INSERT","id":1,"a":NaN}]',
        '[{"sqlite_type":"INSERT","id":1,"a":"\t"}]',
        '[{"sqlite_type":"INSERT","id":1,"a":"\\x"}]',
        '[{"sqlite_type":"INSERT","id":1,"a":"\\u00g0"}]',
        '[{"sqlite_type":"INSERT","id":1},]',
        '[,{"sqlite_type":"INSERT","id":1}]',
        '[{"sqlite_type":"INSERT","id":1}{"sqlite_type":"INSERT","id":1}]',
        '[{"sqlite_type":"INSERT","id":1}',
        "{}",
        pytest.param('[{"c":' + "[" * 100_000, id="deep"),
        f'[{{"sqlite_type":"INSERT","id":{"9" * 5000}}}]',
    ],
)
def test_what_must_be_told_is_not_read_as_typed(payload: str) -> None:
    text = f"{HEAD}{payload}}}".encode()
    assert (read(text, FOO), is_known(text, FOO)) == (None, False)


@pytest.mark.parametrize(
    ("value", "is_read"),
    [
        *[
            (each, True)
            for each in ("0", "-1", "-0.0", "1.0", "0.1", "1e300", "18446744073709551616", "9" * 400, '"é"', '"\\n"')
        ],
        *[(each, False) for each in ("-0", "1.50", "1e+300", "1E3", "1e999", '"\\u00e9"', '"\\/"', '"\\ud800"')],
        *[(each, False) for each in ("[1]", "{}", " 1")],
    ],
)
def test_a_value_is_read_as_typed_only_if_it_is_written_again_as_it_was(value: str, is_read: bool) -> None:
    text = f'{HEAD}[{{"sqlite_type":"INSERT","id":1,"a":{value}}}]}}'.encode()
    assert is_known(text, FOO)
    assert (read(text, FOO) is not None) == is_read


@pytest.mark.parametrize(
    "entry",
    [
        '{"sqlite_type":"INSERT","a":1,"id":1}',
        '{"id":1,"sqlite_type":"INSERT"}',
        '{"sqlite_type":"DELETE","id":1,"sqlite_pk_value":[1]}',
        '{"sqlite_type":"UPDATE","a":1,"sqlite_pk_value":[1]}',
        '{"type":"INSERT","id":1}',
        '{"sqlite_type":"INSERT", "id":1}',
    ],
)
def test_entries_of_another_form_are_left_to_the_parser(entry: str) -> None:
    text = f"{HEAD}[{entry}]}}".encode()
    assert (read(text, FOO), is_known(text, FOO)) == (None, True)


def test_bytes_that_are_no_utf_8_are_not_read_as_typed() -> None:
    whole = f'{HEAD}[{{"sqlite_type":"INSERT","id":1,"a":"é"}}]}}'.encode()
    assert read(whole, FOO)
    assert read(whole.replace(b"\xa9", b""), FOO) is None
    assert read(whole.replace(b"\xc3\xa9", b"\xed\xa0\x80"), FOO) is None


def test_another_table_and_another_key_are_not_read_as_typed() -> None:
    entry = '[{"sqlite_type":"INSERT","id":1}]}'
    assert read(f"{HEAD}{entry}".encode(), FOO)
    assert read(f"{HEAD}{entry}".replace("foo", "bar").encode(), FOO) is None
    assert read(f"{HEAD}{entry}".replace('["id"]', '["a"]').encode(), FOO) is None
    assert read(f"{HEAD}{entry}".replace('["id"]', '["id","a"]').encode(), FOO) is None


@pytest.mark.parametrize("name", ["sqlite_type", 'a"b', "a\\b", "\n", "\ud800"])
def test_a_table_with_a_column_called_like_a_word_or_one_that_json_escapes_is_left_to_the_parser(name: str) -> None:
    described = Description("foo", (TableColumn("id", pk=1), TableColumn(name)), ("id",))
    assert read(f"{HEAD}[]}}".encode(), described) is None
    assert is_known(f"{HEAD}[]}}".encode(), described)


@pytest.mark.parametrize("vector", [*vectors("payloads"), *vectors("malformed_payloads")], ids=lambda each: each["id"])
def test_a_vector_is_read_as_typed_only_if_it_says_nothing_new(vector: dict[str, str]) -> None:
    text = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    for described in TABLES:
        assert read(text, described) is None or is_known(text, described)


NOTICES = st.sampled_from(TABLES).flatmap(lambda table: st.tuples(notices(table), st.just(table)))


@given(NOTICES)
def test_whatever_is_read_as_typed_says_nothing_new_and_is_what_the_parser_reads(
    notice: tuple[bytes, Description],
) -> None:
    text, described = notice
    found = read(text, described)
    if found is None:
        return
    assert is_known(text, described)
    # repr: 1, 1.0 and true are equal, and so are 0.0 and -0.0
    assert repr([without_equal_old_keys(change, described) for change in found]) == repr(parsed(text, described))
