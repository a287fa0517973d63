"""Rows of a silver table found by their keys, without Spark."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from silverfold.connectors.common.key_span import KeySpan
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import open_table

IO = Path("/proc/self/io")

KEYS = {
    "tinyint": (pa.int8(), [-128, 0, 127]),
    "bigint": (pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal(0), Decimal("12345678901234567890.0123456789")]),
    "string": (pa.string(), ["", "it's", "\U0001f600 a\x00b"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff" * 40]),
    "boolean": (pa.bool_(), [False, True, True]),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 15), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(y, 2, 3, 4, 5, 6, 7, UTC) for y in (1, 1900, 9999)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(y, 2, 3, 4, 5, 6, 7) for y in (1, 1900, 9999)]),
}


def table_at(folder: Path, rows: pa.Table) -> SilverRows:
    write_deltalake(folder, rows)
    return SilverRows(Place(str(folder)), DeltaTable(folder))


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_any_type_is_found(tmp_path, name):
    kind, values = KEYS[name]
    columns = {"K": pa.array(values, kind), "id": pa.array([1, 2, 3]), "_position": pa.array([10, 20, 30])}
    rows = table_at(tmp_path, pa.table(columns))
    assert rows.can_be_searched(["k", "ID"])
    wanted = pa.table({"k": pa.array(values[1:] * 2, kind), "id": pa.array([2, 3] * 2)})
    found = rows.at(wanted, ["_position"])
    assert found.schema.names == ["k", "id", "_position"]
    assert sorted(found["_position"].to_pylist()) == [20, 30]
    assert sorted(found["k"].to_pylist()) == sorted(values[1:])
    assert rows.at(wanted.slice(0, 0), ["_position"]).num_rows == 0


def test_a_table_is_searched_a_part_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("silverfold.pipelines.storage.silver_rows._AT_ONCE", 1)
    numbers = range(100_000)
    rows = table_at(tmp_path, pa.table({"k": pa.array(numbers), "_position": pa.array(numbers)}))
    wanted = [*range(0, 100_000, 17), 100_000, -1]
    found = rows.at(pa.table({"k": pa.array(wanted)}), ["_position"])
    assert sorted(found["k"].to_pylist()) == wanted[:-2]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.string(), pa.float64()])
def test_each_row_is_in_the_span_of_its_key(tmp_path, kind):
    keys = pa.array([None, None, -100, -1, *range(90), 100]).cast(kind)
    ends = [None, *pa.array([-1, 0, 50]).cast(kind).to_pylist(), None]
    ends[1:-1] = sorted(ends[1:-1])
    rows = table_at(tmp_path, pa.table({"Order Key": keys}))
    spans = [KeySpan(*((each,) if each is not None else None for each in two)) for two in pairwise(ends)]
    for span in spans:
        held = [key for key in keys.to_pylist() if span.holds((key,))]
        assert rows.table(["Order Key"], span)["Order Key"].to_pylist() == held
    assert sum(rows.table(["Order Key"], span).num_rows for span in spans) == len(keys)


@pytest.mark.parametrize("name", ["k", "Order Key", 'a"b.c`d', "SELECT"])
def test_bounds_leave_out_no_key_within_them(tmp_path, name):
    for first in (0, 1000, 1 << 62):
        numbers = pa.array(range(first, first + 1000))
        write_deltalake(tmp_path, pa.table({name: numbers, "_position": numbers}), mode="append")
    rows = SilverRows(Place(str(tmp_path)), DeltaTable(tmp_path))
    wanted = pa.table({name.upper(): pa.array([0, 999, 1000, 1 << 62, -5])})
    found = rows.at(wanted, ["_position"], bounds={name.upper(): (-5, 1000)})
    assert sorted(found["_position"].to_pylist()) == [0, 999, 1000]


@pytest.mark.skipif(not IO.exists(), reason="only Linux tells what a process has read")
def test_only_the_columns_wanted_are_read(tmp_path):
    parts = {"k": range(60_000), "_position": range(60_000)}
    rows = table_at(tmp_path, pa.table({**parts, "w": [os.urandom(200) for _ in parts["k"]]}))
    before = bytes_read()
    assert rows.at(pa.table({"k": pa.array([3])}), ["_position"]).num_rows == 1
    time.sleep(0.3)  # what is read ahead is read in the background
    assert bytes_read() - before < 4 << 20


def bytes_read() -> int:
    """Return how much this process has read so far."""
    return int(IO.read_text().split()[1])


def test_a_key_that_is_wider_than_the_column_is_found(tmp_path):
    rows = table_at(tmp_path, pa.table({"k": pa.array([1, 2], pa.int32()), "_position": pa.array([5, 6])}))
    found = rows.at(pa.table({"k": pa.array([2, 1 << 40])}), ["_position"])
    assert found.to_pylist() == [{"k": 2, "_position": 6}]


def test_what_is_too_large_or_lacks_a_column_is_not_searched(tmp_path, monkeypatch):
    rows = table_at(tmp_path, pa.table({"k": pa.array([1, 2, 3])}))
    assert rows.can_be_searched(["k"])
    assert not rows.can_be_searched(["k", "new"])
    monkeypatch.setattr("silverfold.pipelines.storage.silver_rows._SEARCHED", 2)
    assert not rows.can_be_searched(["k"])


@pytest.mark.spark
def test_rows_that_are_marked_as_deleted_are_not_found_and_columns_may_have_any_name(spark: SparkSession, tmp_path):
    path = str(tmp_path / "t")
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{path}` (`k y;` BIGINT, v VARIANT, _position BIGINT) USING DELTA "
              f"TBLPROPERTIES ({properties})").collect()  # fmt: skip
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, parse_json('[1]'), id FROM RANGE(0, 10, 1, 1)").collect()
    spark.sql(f"DELETE FROM delta.`{path}` WHERE _position % 2 = 0").collect()
    opened = open_table(Place(path))
    assert opened is not None
    rows = SilverRows(Place(path), opened)
    assert rows.can_be_searched(["k y;"])
    wanted = pa.table({"K y;": [1, 2, 3, 9, 11]})
    assert sorted(rows.at(wanted, ["_position"])["_position"].to_pylist()) == [1, 3, 9]
    bounded = rows.at(wanted, ["_position"], bounds={"k y;": (0, 3)})
    assert sorted(bounded["_position"].to_pylist()) == [1, 3]


@pytest.mark.spark
def test_a_table_with_what_only_spark_reads_is_left_to_it(spark: SparkSession, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT) USING DELTA "
              "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')").collect()  # fmt: skip
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)").collect()
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN k TYPE BIGINT").collect()
    opened = open_table(Place(path))
    assert opened is not None
    assert not SilverRows(Place(path), opened).can_be_searched(["k"])
