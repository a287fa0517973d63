"""Notifications become the same change rows, whether they are read as typed or parsed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.sqlitecloud.decoder.changes import ChangeReader
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.typed_notification import compile_readers
from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import table_text as written
from tests.support.sqlitecloud.drawing import NUMBERS, TABLES, notices
from tests.support.sqlitecloud.notices import described

ORDERS = described(
    "orders", {"id": "INTEGER", "customer": "TEXT", "total": "REAL", "price": "NUMERIC", "photo": "BLOB"}, ["id"]
)
KINDS = ("bigint", "double", "string", "decimal(20, 4)", "binary", "boolean")


HEAD = '{"sender":0,"channel":"%s","channel_type":"TABLE","sqlite_pk_name":["id"],"payload":'


def reader(description: Description = ORDERS, table: dict[str, Any] | None = None, **options: Any) -> ChangeReader:
    return ChangeReader(
        description, SqliteCloudTable.model_validate(table or {}), SqliteCloudOptions.model_validate(options)
    )


def rows_of(of: ChangeReader, *texts: str) -> list[dict[str, Any]]:
    """The change rows of notifications that land at 0, 1, and so on."""
    bodies = [b"#%d %s" % (len(text.encode()), text.encode()) for text in texts]
    return [row for batch in of.read(range(len(texts)), ["data"] * len(texts), bodies) for row in batch.to_pylist()]


@pytest.mark.parametrize("words", [Vocabulary.OLD, Vocabulary.NEW])
def test_what_a_server_writes_is_read_as_typed(words: Vocabulary) -> None:
    changes = (
        RowChange("INSERT", {"id": 1, "customer": "é,}", "total": 1.5, "price": 2, "photo": "ffd8"}, ()),
        RowChange("UPDATE", {"id": 2, "customer": None, "price": 0.99}, (1,), key_changed=True),
        RowChange("UPDATE", {"id": 2, "customer": 'say "no"'}, (2,)),
        RowChange("DELETE", {}, (2,)),
    )
    text = written(Dialect(words=words), sender='"s"', changes=TableChanges("orders", ("id",), changes))
    assert compile_readers(ORDERS)(text.encode())(text.encode()) is not None
    found = rows_of(reader(blob="hex"), text, text)
    first = {"frame_seq": 0, "error": None}
    assert found[:4] == [
        {
            **first,
            "ordinal": 0,
            "op": "insert",
            "key": {"id": 1},
            "old_key": None,
            "row": {"id": 1, "customer": "é,}", "total": 1.5, "price": "2", "photo": b"\xff\xd8"},
            "present": None,
        },
        {
            **first,
            "ordinal": 1,
            "op": "update",
            "key": {"id": 2},
            "old_key": {"id": 1},
            "row": {"id": 2, "customer": None, "total": None, "price": "0.99", "photo": None},
            "present": ["id", "customer", "price"],
        },
        {
            **first,
            "ordinal": 2,
            "op": "update",
            "key": {"id": 2},
            "old_key": None,
            "row": {"id": 2, "customer": 'say "no"', "total": None, "price": None, "photo": None},
            "present": ["id", "customer"],
        },
        {**first, "ordinal": 3, "op": "delete", "key": {"id": 2}, "old_key": None, "row": None, "present": None},
    ]
    assert found[4:] == [row | {"frame_seq": 1} for row in found[:4]]


def test_a_change_that_cannot_be_decoded_takes_all_of_its_notification_with_it_and_no_other() -> None:
    entries = [
        '{"sqlite_type":"UPDATE","id":1,"total":5}',
        '{"sqlite_type":"UPDATE","id":2},{"sqlite_type":"UPDATE","id":3,"total":"five"}',
        '{"sqlite_type":"INSERT","id":4,"total":5}',
        '{"sqlite_type":"DELETE","sqlite_pk_value":["x"]}',
        '{"sqlite_type":"UPDATE","id":5,"total":5,"sqlite_pk_value":["x"]}',
    ]
    found = rows_of(reader(insert_absent="error"), *[f"{HEAD % 'orders'}[{entry}]}}" for entry in entries])
    errors = {row["frame_seq"]: row["error"]["reason"] for row in found if row["error"]}
    assert [row["key"] for row in found if not row["error"]] == [{"id": 1}]
    assert {at: reason.partition(":")[0] for at, reason in errors.items()} == {
        1: "unfit_value in total",
        2: "absent_column",
        3: "unfit_value in id",
        4: "unfit_value in id",
    }


def one_value(kind: str, literal: str, **table: Any) -> Any:
    """The value of a column, as an update sends it; "absent" if it is not known then, and "unfit" for an error."""
    sent = f',"c":{literal}' if literal else ""
    of = reader(described("t", {"id": "INTEGER", "c": "TEXT"}, ["id"]), {"types": {"c": kind}, **table}, blob="hex")
    (row,) = rows_of(of, f'{HEAD % "t"}[{{"sqlite_type":"UPDATE","id":1{sent}}}]}}')
    if row["error"]:
        return "unfit"
    return "absent" if row["present"] == ["id"] else row["row"]["c"]


@pytest.mark.parametrize(
    ("kind", "literals", "values"),
    [
        ("bigint", ["1", "", "null", "-9223372036854775808"], [1, "absent", None, -(2**63)]),
        ("bigint", ["2.0", '"3"', "9223372036854775808", "4.5"], [2, 3, "unfit", "unfit"]),
        ("double", ["1", "0.1", "-0.0", "1e-7"], [1.0, 0.1, -0.0, 1e-7]),
        ("double", ["1e999", '"2"', "9007199254740993"], [float("inf"), "unfit", 9007199254740992.0]),
        ("string", ['""', '"null"', '"é"', "null", ""], ["", "null", "é", None, "absent"]),
        ("string", ['"a\\"b"', '"\\u00e9"', '"\\ud800"'], ['a"b', "é", "unfit"]),
        (
            "string",
            ["1", "0.50", "1e2", "true", "123456789012345678"],
            ["1", "0.5", "100.0", "true", "123456789012345678"],
        ),
        ("boolean", ["1", "false", "2"], [True, False, "unfit"]),
        ("binary", ['"ff"', "null", '"f"'], [b"\xff", None, "unfit"]),
    ],
)
def test_values_are_what_they_spell(kind: str, literals: list[str], values: list[Any]) -> None:
    assert repr([one_value(kind, literal) for literal in literals]) == repr(values)


def test_keys_of_a_nocase_table_are_in_lower_case_as_far_as_they_are_ascii() -> None:
    of = reader(described("t", {"id": "TEXT"}, ["id"]), {"key_collation": "nocase"})
    entries = [f'{{"sqlite_type":"INSERT","id":{literal}}}' for literal in ('"AÉ"', '"B\\"C"')]
    assert [row["key"]["id"] for row in rows_of(of, f"{HEAD % 't'}[{','.join(entries)}]}}")] == ["aÉ", 'b"c']


@given(st.lists(st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False).map(repr), max_size=5))
def test_a_number_is_the_same_text_however_many_are_read_at_once(literals: list[str]) -> None:
    of = reader(described("t", {"id": "INTEGER", "c": "TEXT"}, ["id"]))
    entries = [f'{{"sqlite_type":"INSERT","id":1,"c":{literal}}}' for literal in literals]
    as_they_are = ("9223372036854775807", "0", "7", "-12")
    expected = {"1E+999": "Infinity"} | {each: each for each in as_they_are}
    assert [row["row"]["c"] for row in rows_of(of, f"{HEAD % 't'}[{','.join(entries)}]}}")] == [
        expected.get(each, repr(float(each))) for each in literals
    ]


@st.composite
def readers(draw: st.DrawFn) -> ChangeReader:
    """Draw settings under which a table may be read."""
    table = draw(st.sampled_from(TABLES))
    kinds = {name: draw(st.sampled_from(KINDS)) for name in table.names if name not in table.keys}
    kinds |= {name: draw(st.sampled_from(["bigint", "string", "double"])) for name in table.keys}
    settings = {"types": kinds, "key_collation": draw(st.sampled_from(["binary", "nocase"]))}
    options = {
        "update_columns": draw(st.sampled_from(["partial", "full"])),
        "insert_absent": draw(st.sampled_from(["null", "error"])),
        "blob": draw(st.sampled_from(["error", "text", "hex"])),
    }
    of = SqliteCloudTable.model_validate(settings), SqliteCloudOptions.model_validate(options)
    return ChangeReader(table, *of, snapshot_end=draw(st.sampled_from([None, None, None, 0])))


def all_rows(of: ChangeReader, texts: list[bytes]) -> list[str]:
    bodies = [b"#%d %s" % (len(text), text) for text in texts]
    batches = of.read(range(len(texts)), ["data"] * len(texts), bodies)
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


@given(readers().flatmap(lambda of: st.tuples(st.just(of), st.lists(notices(of.described), max_size=3))))
def test_white_space_behind_a_text_which_then_is_parsed_changes_nothing(
    drawn: tuple[ChangeReader, list[bytes]],
) -> None:
    of, texts = drawn
    assert all_rows(of, texts) == all_rows(of, [text + b" " for text in texts])


REALS = [("1", "[1.0]"), ("1.0", "[1]"), ("1e0", "[1]"), ("1.5", "[1.5]"), ("2.5", "[1.5]")]


@pytest.mark.parametrize(("key", "old_key"), REALS)
def test_reals_in_a_key_of_text_are_compared_as_numbers_by_every_reader(key: str, old_key: str) -> None:
    description = described("t", {"id": "TEXT", "s": "TEXT"}, ["id"])
    change = f'{{"sqlite_type":"UPDATE","id":{key},"s":"x","sqlite_pk_value":{old_key}}}'
    head = '{"sender":"u","channel":"t","channel_type":"TABLE",'
    read = []
    for space in ("", " "):
        text = f'{head}{space}"sqlite_pk_name":["id"],"payload":[{change}]}}'
        body = b"#%d %s" % (len(text), text.encode())
        read.append([row for batch in reader(description).read([1], ["data"], [body]) for row in batch.to_pylist()])
    assert read[0] == read[1]
