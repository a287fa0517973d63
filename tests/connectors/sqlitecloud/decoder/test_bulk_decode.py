"""Notifications that are read column by column say what they say when they are read change by change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.sqlitecloud.decoder.bulk_decode import BulkDecoder
from silverfold.connectors.sqlitecloud.decoder.change_rows import ChangeRows
from silverfold.connectors.sqlitecloud.decoder.changes import ChangeReader
from silverfold.connectors.sqlitecloud.decoder.json_literals import read_all
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column, columns_of
from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import table_text as written
from tests.support.sqlitecloud.drawing import NUMBERS, TABLES, notices
from tests.support.sqlitecloud.notices import described

ORDERS = described(
    "orders", {"id": "INTEGER", "customer": "TEXT", "total": "REAL", "price": "NUMERIC", "photo": "BLOB"}, ["id"]
)
KINDS = ("bigint", "double", "string", "decimal(20, 4)", "binary", "boolean")


def columnwise(description: Description = ORDERS, **options: Any) -> BulkDecoder:
    settings = SqliteCloudOptions.model_validate(options)
    columns = columns_of(description, SqliteCloudTable(), settings)
    return BulkDecoder(ChangeRows(columns, description.keys), description, settings, snapshot_end=-1)


@pytest.mark.parametrize("words", [Vocabulary.OLD, Vocabulary.NEW])
def test_what_a_server_writes_is_read_without_parsing_it(words: Vocabulary) -> None:
    changes = (
        RowChange("INSERT", {"id": 1, "customer": "é,}", "total": 1.5, "price": 2, "photo": "ffd8"}, ()),
        RowChange("UPDATE", {"id": 2, "customer": None, "price": 0.99}, (1,), key_changed=True),
        RowChange("UPDATE", {"id": 2, "customer": 'say "no"'}, (2,)),
        RowChange("DELETE", {}, (2,)),
    )
    text = written(Dialect(words=words), sender='"s"', changes=TableChanges("orders", ("id",), changes))
    reading = columnwise(blob="hex")
    assert (reading.take(7, text.encode()), reading.take(9, text.encode()), reading.size) == (True, True, 8)
    batch, left = reading.batch()
    assert left == []
    assert reading.size == 0
    assert batch is not None
    first = {"frame_seq": 7, "error": None}
    assert batch.slice(0, 4).to_pylist() == [
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
    assert batch.column("frame_seq").to_pylist() == [7] * 4 + [9] * 4
    assert batch.column("ordinal").to_pylist() == [0, 1, 2, 3] * 2


def test_what_does_not_fit_is_left_to_be_read_otherwise_with_all_of_its_notification() -> None:
    reading = columnwise(insert_absent="error")
    texts = [
        '{"type":"UPDATE","id":1,"total":5}',
        '{"type":"UPDATE","id":2},{"type":"UPDATE","id":3,"total":"five"}',
        '{"type":"INSERT","id":4,"total":5}',
        '{"type":"DELETE","pv":["5"]}',
        '{"type":"UPDATE","id":5,"total":5,"pv":["x"]}',
    ]
    whole = [f'{{"sender":0,"channel":"orders","type":"TABLE","pk":["id"],"payload":[{text}]}}' for text in texts]
    assert [reading.take(at, text.encode()) for at, text in enumerate(whole)] == [True] * 5
    batch, left = reading.batch()
    assert left == [(at, whole[at].encode()) for at in (1, 2, 3, 4)]
    assert batch is not None
    assert batch.column("frame_seq").to_pylist() == [0]


def test_what_overlays_a_snapshot_and_what_has_a_key_of_another_type_are_not_taken() -> None:
    text = b'{"sender":0,"channel":"orders","type":"TABLE","pk":["id"],"payload":[]}'
    columns = columns_of(ORDERS, SqliteCloudTable(), SqliteCloudOptions())
    overlaid = BulkDecoder(ChangeRows(columns, ("id",)), ORDERS, SqliteCloudOptions(), snapshot_end=5)
    assert [overlaid.take(at, text) for at in (4, 5, 6)] == [False, False, True]
    exact = (Column("id", "decimal(20, 4)"), *columns[1:])
    assert not BulkDecoder(ChangeRows(exact, ("id",)), ORDERS, SqliteCloudOptions(), snapshot_end=-1).take(6, text)


@pytest.mark.parametrize(
    ("kind", "literals", "values", "unfit"),
    [
        ("bigint", ["1", "", "null", "-9223372036854775808"], [1, None, None, -(2**63)], []),
        ("bigint", ["1", "2.0", '"3"', "9223372036854775808", "4.5"], [1, 2, 3, None, None], [3, 4]),
        ("double", ["1", "0.1", "-0.0", "1e-7"], [1.0, 0.1, -0.0, 1e-7], []),
        ("double", ["1", "1e999", '"2"', "9007199254740993"], [1.0, float("inf"), None, 9007199254740992.0], [2]),
        ("string", ['""', '"null"', '"é"', "null", ""], ["", "null", "é", None, None], []),
        ("string", ['"a\\"b"', '"\\u00e9"', '"\\ud800"'], ['a"b', "é", None], [2]),
        (
            "string",
            ["1", "0.50", "1e2", "true", "123456789012345678"],
            ["1", "0.5", "100.0", "true", "123456789012345678"],
            [],
        ),
        ("boolean", ["1", "false", "2"], [True, False, None], [2]),
        ("binary", ['"ff"', "null", '"f"'], [b"\xff", None, None], [2]),
    ],
)
def test_values_are_what_they_spell(kind: str, literals: list[str], values: list[Any], unfit: list[int]) -> None:
    read, wrong = read_all(Column("c", kind, "hex"), pa.array(literals))
    assert (repr(read.to_pylist()), list(wrong.nonzero()[0])) == (repr(values), unfit)


def test_texts_of_a_nocase_column_are_in_lower_case_as_far_as_they_are_ascii() -> None:
    read, _ = read_all(Column("c", "string", nocase=True), pa.array(['"AÉ"', '"B\\"C"']))
    assert read.to_pylist() == ["aÉ", 'b"c']


@given(st.lists(st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False).map(repr), max_size=5))
def test_a_number_is_the_same_text_however_many_are_read_at_once(literals: list[str]) -> None:
    read, unfit = read_all(Column("c", "string"), pa.array(literals, pa.string()))
    as_they_are = ("9223372036854775807", "0", "7", "-12")
    expected = {"1E+999": "Infinity"} | {each: each for each in as_they_are}
    assert read.to_pylist() == [expected.get(each, repr(float(each))) for each in literals]
    assert not unfit.any()


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
def test_white_space_behind_a_text_which_then_is_not_foreseen_changes_nothing(
    drawn: tuple[ChangeReader, list[bytes]],
) -> None:
    of, texts = drawn
    assert all_rows(of, texts) == all_rows(of, [text + b" " for text in texts])


REALS = [("1", "[1.0]"), ("1.0", "[1]"), ("1e0", "[1]"), ("1.5", "[1.5]"), ("2.5", "[1.5]")]


@pytest.mark.parametrize(("key", "old_key"), REALS)
def test_reals_in_a_key_of_text_are_compared_as_numbers_by_every_reader(key: str, old_key: str) -> None:
    description = described("t", {"id": "TEXT", "s": "TEXT"}, ["id"])
    reader = ChangeReader(description, SqliteCloudTable(), SqliteCloudOptions())
    change = f'{{"sqlite_type":"UPDATE","id":{key},"s":"x","sqlite_pk_value":{old_key}}}'
    head = '{"sender":"u","channel":"t","channel_type":"TABLE",'
    read = []
    for space in ("", " "):
        text = f'{head}{space}"sqlite_pk_name":["id"],"payload":[{change}]}}'
        body = b"#%d %s" % (len(text), text.encode())
        read.append([row for batch in reader.read([1], ["data"], [body]) for row in batch.to_pylist()])
    assert read[0] == read[1]
