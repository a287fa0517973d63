"""Nothing is foreseen of a notification that reading it would not bear out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import WireError
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.landed.notification_pattern import (
    MOST_COLUMNS,
    compile_matcher,
    compile_splitter,
)
from silverfold.connectors.sqlitecloud.protocol.landed.payload import TableUpdate, read_notification
from silverfold.connectors.sqlitecloud.receiver.window import SnapshotWindow
from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import table_text as written
from tests.support.sqlitecloud.drawing import FOO, TABLES, notices
from tests.support.sqlitecloud.notices import vectors

HEAD = '{"sender":"s","channel":"foo","channel_type":"TABLE","sqlite_pk_name":["id"],"payload":'


def matches_pattern(text: bytes, described: Description) -> bool:
    return bool(compile_matcher(described)(text.decode(errors="surrogateescape")))


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
def test_what_a_server_writes_is_foreseen_in_either_vocabulary(words: Vocabulary) -> None:
    changes = (
        RowChange("INSERT", {"id": 1, "a": 'say "é\\\u2028"', "b": None}, ()),
        RowChange("UPDATE", {"id": 2, "b": -1.5e300}, (1,), key_changed=True),
        RowChange("UPDATE", {"id": 2}, (2,)),
        RowChange("DELETE", {}, ("x",)),
    )
    text = written(Dialect(words=words), sender='"s"', changes=TableChanges("foo", ("id",), changes))
    assert matches_pattern(text.encode(), FOO)


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
        f'[{{"sqlite_type":"INSERT","id":{"9" * 5000}}}]',
    ],
)
def test_what_must_be_told_is_not_foreseen(payload: str) -> None:
    text = f"{HEAD}{payload}}}".encode()
    assert (matches_pattern(text, FOO), is_known(text, FOO)) == (False, False)


def test_minus_zero_whose_spelling_is_not_its_value_is_not_foreseen() -> None:
    texts = [f'{HEAD}[{{"sqlite_type":"INSERT","id":1,"a":{value}}}]}}'.encode() for value in ("-0", "-0.0", "-1", "0")]
    assert [matches_pattern(text, FOO) for text in texts] == [False, True, True, True]


def test_bytes_that_are_no_utf_8_are_not_foreseen() -> None:
    whole = f'{HEAD}[{{"sqlite_type":"INSERT","id":1,"a":"é"}}]}}'.encode()
    assert matches_pattern(whole, FOO)
    assert not matches_pattern(whole.replace(b"\xa9", b""), FOO)
    assert not matches_pattern(whole.replace(b"\xc3\xa9", b"\xed\xa0\x80"), FOO)


def test_another_table_and_another_key_are_not_foreseen() -> None:
    entry = '[{"sqlite_type":"INSERT","id":1}]}'
    assert matches_pattern(f"{HEAD}{entry}".encode(), FOO)
    assert not matches_pattern(f"{HEAD}{entry}".replace("foo", "bar").encode(), FOO)
    assert not matches_pattern(f"{HEAD}{entry}".replace('["id"]', '["a"]').encode(), FOO)
    assert not matches_pattern(f"{HEAD}{entry}".replace('["id"]', '["id","a"]').encode(), FOO)


def test_of_a_table_whose_columns_are_called_like_all_words_and_of_a_very_wide_one_nothing_is_foreseen() -> None:
    words = Description("foo", (TableColumn("id", pk=1), TableColumn("sqlite_type")), ("id",))
    wide = Description("foo", tuple(TableColumn(f"c{at}") for at in range(MOST_COLUMNS + 1)), ("c0",))
    assert not matches_pattern(f'{HEAD}[{{"sqlite_type":"INSERT","id":1,"sqlite_type":1}}]}}'.encode(), words)
    assert not matches_pattern(f"{HEAD}[]}}".replace('"id"', '"c0"').encode(), wide)


@pytest.mark.parametrize("vector", [*vectors("payloads"), *vectors("malformed_payloads")], ids=lambda each: each["id"])
def test_no_vector_is_foreseen_that_says_something_new(vector: dict[str, str]) -> None:
    text = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    for described in TABLES:
        assert is_known(text, described) or not matches_pattern(text, described)


NOTICES = st.sampled_from(TABLES).flatmap(lambda table: st.tuples(notices(table), st.just(table)))


@given(NOTICES)
def test_whatever_is_foreseen_is_borne_out_by_reading_it(notice: tuple[bytes, Description]) -> None:
    assert is_known(*notice) or not matches_pattern(*notice)


def test_what_is_foreseen_is_taken_apart_into_what_it_spells() -> None:
    entries = (
        '{"sqlite_type":"INSERT","id":1,"a":"say \\"}{\\", é","b":null}',
        '{"sqlite_type":"UPDATE","id":-2.5e3,"b":true,"sqlite_pk_value":["]"]}',
        '{"sqlite_type":"UPDATE","id":""}',
        '{"sqlite_type":"DELETE","sqlite_pk_value":[7]}',
    )
    text = f"{HEAD}[{','.join(entries)}]}}"
    assert matches_pattern(text.encode(), FOO)
    assert compile_splitter(FOO)(text) == [
        ("INSERT", "1", '"say \\"}{\\", é"', "null", ""),
        ("UPDATE", "-2.5e3", "", "true", '"]"'),
        ("UPDATE", '""', "", "", ""),
        ("DELETE", "", "", "", "7"),
    ]


@given(NOTICES)
def test_the_parts_are_the_values_that_reading_finds(notice: tuple[bytes, Description]) -> None:
    text, described = notice
    if not matches_pattern(text, described):
        return
    entries = json.loads(text)["payload"]
    found = compile_splitter(described)(text.decode())
    assert len(found) == len(entries)
    for (op, *parts), entry in zip(found, entries, strict=True):
        cells, old_key = parts[: len(described.names)], parts[len(described.names) :]
        was = entry.get("sqlite_pk_value", entry.get("pv", []))
        assert op == (entry["sqlite_type"] if "sqlite_type" in entry else entry["type"])
        assert [json.loads(part) for part in old_key if part] == was
        assert {name: json.loads(part) for name, part in zip(described.names, cells, strict=True) if part} == {
            name: entry[name] for name in described.names if name in entry
        }
