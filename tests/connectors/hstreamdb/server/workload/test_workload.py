"""Tables that change, and the records of their changes: folded, they give the table."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.hstreamdb.protocol.frames import decode_batch
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType, ReceivedRecord
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.streams import KeyRange, even_ranges
from silverfold.connectors.hstreamdb.server.workload.layouts import RecordLayout, RowChange, change_record
from silverfold.connectors.hstreamdb.server.workload.producer import TableProducer
from silverfold.connectors.hstreamdb.server.workload.tables import ChangingTable, load_rows

ROWS = [{"id": number, "name": f"n{number}", "price": number / 4, "active": number % 2 == 0} for number in range(20)]


class Appended:
    """The records that a producer appended, by shard, in their order."""

    def __init__(self) -> None:
        self.objects: dict[int, list[Any]] = {}
        self.batches: list[BatchedRecord] = []

    def append(self, shard: int, batch: BatchedRecord) -> None:
        ids = [RecordId(shard, 1, index).to_message() for index in range(batch.batch_size)]
        self.batches.append(batch)
        for each in decode_batch(ReceivedRecord(record_ids=ids, record=batch)).records:
            assert isinstance(each.record, HRecord | RawRecord)
            is_raw = isinstance(each.record, RawRecord)
            fields = json.loads(each.record.payload) if is_raw else each.record.fields  # type: ignore[union-attr]  # an HRecord
            self.objects.setdefault(shard, []).append(fields)


def produced(
    layout: RecordLayout, seed: int = 1, shards: int = 1, updates: int = 200
) -> tuple[ChangingTable, Appended]:
    table, appended = ChangingTable(ROWS, seed, can_delete=layout is not RecordLayout.ROW), Appended()
    ranges = [KeyRange(*ends, shard) for shard, ends in enumerate(even_ranges(shards), start=1)]
    producer = TableProducer(table, ranges, appended.append, layout=layout, compression=CompressionType.GZIP)
    assert producer.load() == len(ROWS)
    made = sum(producer.change() for _ in range(updates))
    assert sum(map(len, appended.objects.values())) == made + len(ROWS)
    return table, appended


def folded(layout: RecordLayout, objects: list[Any]) -> dict[Any, Any]:
    """The rows after the records, by a reading of each layout of its own."""
    rows: dict[Any, Any] = {}
    for found in objects:
        match layout:
            case RecordLayout.UNWRAPPED:
                key, row = found["key"]["id"], found["value"]
            case RecordLayout.ENVELOPE:
                key, row = (found["before"] if found["op"] == "d" else found["after"])["id"], found["after"]
                assert found["op"] in ("c" if key not in rows else "ud") or found["op"] == "r"
                assert found["before"] == rows.get(key)
            case RecordLayout.OPERATION:
                key, row = found["key"]["id"], found.get("row")
                assert found["op"] == ("DELETE" if row is None else "UPDATE" if key in rows else "INSERT")
            case RecordLayout.ROW:
                key, row = found["id"], found
        if row is None:
            del rows[key]
        else:
            rows[key] = row
    return rows


@pytest.mark.parametrize("layout", list(RecordLayout))
@pytest.mark.parametrize("shards", [1, 3])
def test_the_records_folded_give_the_table(layout: RecordLayout, shards: int) -> None:
    table, appended = produced(layout, shards=shards)
    rows: dict[Any, Any] = {}
    for objects in appended.objects.values():
        of_a_shard = folded(layout, objects)
        assert not rows.keys() & of_a_shard.keys()  # a key has one shard
        rows |= of_a_shard
    assert rows == table.rows
    assert len(appended.objects) == shards
    assert {each.compression_type for each in appended.batches} == {CompressionType.GZIP}


def test_the_same_seed_makes_the_same_changes() -> None:
    first, second, other = (produced(RecordLayout.UNWRAPPED, seed)[1].objects for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_rows_are_inserted_updated_deleted_and_moved() -> None:
    table, changes = ChangingTable(ROWS, 5), list[RowChange]()
    for _ in range(100):
        changes += table.change()
    assert {(each.before is None, each.after is None) for each in changes} == {
        (True, False),
        (False, False),
        (False, True),
    }
    moved = [
        (old.before, new.after)
        for old, new in pairwise(changes)
        if old.before and new.after and old.after is None and {**old.before, "id": new.after["id"]} == new.after
    ]
    assert moved
    assert any(value is None for row in table.rows.values() for value in row.values())


def test_integers_that_a_double_changes_travel_as_text() -> None:
    appended = Appended()
    table = ChangingTable([{"id": 2**53 + 1}], 0)
    TableProducer(
        table,
        [KeyRange(*even_ranges(1)[0], 1)],
        appended.append,
        layout=RecordLayout.ROW,
        compression=CompressionType.NONE,
    ).load()
    assert appended.objects == {1: [{"id": 2**53 + 1}]}


def test_the_rows_of_a_snapshot_are_read_in_the_envelope() -> None:
    change = RowChange(None, ROWS[0], is_snapshot=True)
    assert change_record(change, ["id"], RecordLayout.ENVELOPE, 7) == {
        "before": None,
        "after": ROWS[0],
        "op": "r",
        "source": {"ts_ms": 7},
        "ts_ms": 7,
    }


def test_a_csv_file_gives_rows_with_numbers_and_texts(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    text = "id,price,day,ok,name,at\n1,1.5,2024-02-01,true,ä,2024-02-01 10:00:00\n2,,,,,\n"
    file.write_text(text, encoding="utf-8")
    assert load_rows(file) == [
        {"id": 1, "price": 1.5, "day": "2024-02-01", "ok": True, "name": "ä", "at": "2024-02-01T10:00:00Z"},
        {"id": 2, "price": None, "day": None, "ok": None, "name": None, "at": None},
    ]


def test_values_that_json_has_not_are_sent_as_the_types_read_them(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    rows = [{"id": Decimal("1.5"), "raw": b"abc", "parts": [1, None], "point": {"x": 1.5, "at": date(2024, 2, 1)}}]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file)
    assert load_rows(file) == [
        {"id": "1.5", "raw": "YWJj", "parts": [1, None], "point": {"x": 1.5, "at": "2024-02-01"}}
    ]


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (pa.array([1 << 62], pa.timestamp("us")), "times of the years 1 to 9999"),
        (pa.array([b"abc"]), "a number, text, date or time"),
        (pa.array([{"a": 1}]), "a number, text, date or time"),
        (pa.array([[1]]), "a number, text, date or time"),
    ],
    ids=["far time", "bytes", "struct", "list"],
)
def test_columns_that_json_cannot_have_are_refused(tmp_path: Path, column: pa.Array, complaint: str) -> None:
    file = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"id": column}), file)
    with pytest.raises(ConfigError, match=complaint):
        load_rows(file)


def test_rows_of_more_than_a_mebibyte_go_in_several_batches() -> None:
    rows = [{"id": number, "text": "x" * 100_000} for number in range(30)]
    appended, (start, end) = Appended(), even_ranges(1)[0]
    producer = TableProducer(
        ChangingTable(rows, 1),
        [KeyRange(start, end, 1)],
        appended.append,
        layout=RecordLayout.UNWRAPPED,
        compression=CompressionType.NONE,
    )
    assert producer.load() == 30
    assert [each.batch_size for each in appended.batches] == [9, 9, 9, 3]


@pytest.mark.parametrize(
    ("keys", "new"),
    [
        ([1.5, 2.5], 3.0),
        (["1.50", "2.75"], "3"),
        (["a", "1e99999999"], "new-1"),
        ([4, 9], 10),
        (["2024-02-28", "2023-12-31"], "2024-02-29"),
        (["2024-02-28T23:59:59Z", "2023-12-31T00:00:00Z"], "2024-02-29T00:00:00+00:00"),
        (["2024-02-28", "7"], "new-8"),
    ],
)
def test_new_keys_are_of_the_kind_that_there_is(keys: list[Any], new: Any) -> None:
    table = ChangingTable([{"id": key} for key in keys], 1)
    inserted = next(
        change.after["id"] for _ in range(100) for change in table.change() if change.after and not change.before
    )
    assert inserted == new


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id\n", "0 rows"),
        ("id\n1\n1\n", "a value of its own in the first column, id"),
        ("id,b\n,1\n", "a value of its own"),
        ("", "a readable file"),
        ("a,b\n1\n", "a readable file"),
        ("id,b\ntrue,1\nfalse,2\n", "date or time, no boolean"),
        ("id,b\n1,0.5\n2,inf\n", "b: found 'NaN or an infinite number', allowed: numbers that JSON has"),
        (f"id,b\n1,{'x' * 400_000}\n", "rows that are too large"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_rows(file)
    with pytest.raises(ConfigError, match="a readable file"):
        load_rows(tmp_path / "none.csv")
