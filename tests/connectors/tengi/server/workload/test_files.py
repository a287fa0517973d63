"""Files as tables of a source: every type of Arrow that has a counterpart, nested ones too."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.tengi.server.feed.tables import SourceTable
from silverfold.connectors.tengi.server.workload.files import load_table

MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
LOCAL = MOMENT.replace(tzinfo=None)


with_maps = pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 21, reason="this pyarrow cannot read maps so")


def load(path: Path, keys: tuple[str, ...] = ()) -> SourceTable:
    return load_table(path, "t", keys, epoch="0" * 20, history=10)


def parquet(path: Path, **columns: pa.Array) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("arrow", "values", "ddl", "expected"),
    [
        (pa.int8(), [1, None], "tinyint", [1, None]),
        (pa.int16(), [1], "smallint", [1]),
        (pa.int32(), [1], "int", [1]),
        (pa.int64(), [1 << 62], "bigint", [1 << 62]),
        (pa.uint8(), [255], "smallint", [255]),
        (pa.uint16(), [65535], "int", [65535]),
        (pa.uint32(), [1 << 31], "bigint", [1 << 31]),
        (pa.uint64(), [(1 << 64) - 1, None], "decimal(20,0)", [Decimal((1 << 64) - 1), None]),
        (pa.float16(), [np.float16(0.5), None], "float", [0.5, None]),
        (pa.float32(), [0.5], "float", [0.5]),
        (pa.float64(), [0.1], "double", [0.1]),
        (pa.bool_(), [True, False, None], "boolean", [True, False, None]),
        (pa.string(), ["é", "", None], "string", ["é", "", None]),
        (pa.large_string(), ["x"], "string", ["x"]),
        (pa.null(), [None], "string", [None]),
        (pa.binary(), [b"\0", None], "binary", [b"\0", None]),
        (pa.binary(2), [b"ab"], "binary", [b"ab"]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", "x", None], "string", ["x", "x", None]),
        (pa.timestamp("us", "Europe/Paris"), [MOMENT, None], "timestamp", [MOMENT, None]),
        (pa.timestamp("s"), [LOCAL], "timestamp_ntz", [LOCAL]),
        (pa.timestamp("ns"), [1_999, None], "timestamp_ntz", [datetime(1970, 1, 1, microsecond=1), None]),
        (pa.date32(), [date(1969, 12, 31), None], "date", [date(1969, 12, 31), None]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None], "decimal(10,2)", [Decimal("1.50"), None]),
        (
            pa.list_(pa.timestamp("ms")),
            [[LOCAL, None], [], None],
            "array<timestamp_ntz>",
            [[LOCAL, None], [], None],
        ),
        (pa.large_list(pa.int8()), [[1], None, [2, 3]], "array<tinyint>", [[1], None, [2, 3]]),
        (pa.list_(pa.int8(), 2), [[1, 2], [3, None]], "array<tinyint>", [[1, 2], [3, None]]),
        (
            pa.struct([("a b", pa.date32()), ("c", pa.list_(pa.uint64()))]),
            [{"a b": date(1970, 1, 2), "c": [7]}, {"a b": None, "c": None}, None],
            "struct<`a b`:date,c:array<decimal(20,0)>>",
            [{"a b": date(1970, 1, 2), "c": [Decimal(7)]}, {"a b": None, "c": None}, None],
        ),
        pytest.param(
            pa.map_(pa.string(), pa.struct([("d", pa.date32())])),
            [[("k", {"d": date(1970, 1, 2)})], [], None],
            "map<string,struct<d:date>>",
            [{"k": {"d": date(1970, 1, 2)}}, {}, None],
            marks=with_maps,
        ),
    ],
)
def test_an_arrow_type_becomes_a_type_of_spark(
    tmp_path: Path, arrow: pa.DataType, values: list[object], ddl: str, expected: list[object]
) -> None:
    table = load(parquet(tmp_path / "t.parquet", c=pa.array(values, arrow)))
    assert {name: str(kind) for name, kind in table.columns.items()} == {"c": ddl}
    assert [row["c"] for row in table.rows.values()] == expected


@with_maps
def test_parts_of_nested_values_stay_with_their_rows_across_row_groups(tmp_path: Path) -> None:
    values = [[{"m": [("k", number)]}] * (number % 3) for number in range(50)]
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))
    pyarrow.parquet.write_table(pa.table({"c": pa.array(values, kind)}), tmp_path / "t.parquet", row_group_size=7)
    found = [row["c"] for row in load(tmp_path / "t.parquet").rows.values()]
    assert found == [[{"m": {"k": number}}] * (number % 3) for number in range(50)]


def test_types_of_a_csv_file_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,name,price\n1,ann,1.5\n2,,\n3,"",2\n')
    table = load(tmp_path / "t.csv", ("id",))
    assert {name: str(kind) for name, kind in table.columns.items()} == {
        "id": "bigint",
        "name": "string",
        "price": "double",
    }
    assert table.rows == {
        (1,): {"id": 1, "name": "ann", "price": 1.5},
        (2,): {"id": 2, "name": None, "price": None},
        (3,): {"id": 3, "name": "", "price": 2.0},
    }


@pytest.mark.parametrize(
    ("column", "keys", "complaint"),
    [
        (pa.array([1], pa.duration("s")), (), "columns"),
        (pa.array([1], pa.time64("us")), (), "columns"),
        (pa.array([[(1, 1)]], pa.map_(pa.int32(), pa.int32())), (), "columns"),
        pytest.param(pa.array([[("k", None)]], pa.map_(pa.string(), pa.int32())), (), "values", marks=with_maps),
        (pa.array(["x" * (17 << 20)]), (), "values"),
        (pa.array([1]), ("d",), "keys"),
        (pa.array([1]), ("c", "c"), "keys"),
        (pa.array([1, 1]), ("c",), "keys"),
        (pa.array([1, None]), ("c",), "keys"),
        (pa.array([1.5]), ("c",), "keys"),
        (pa.array([[1]]), ("c",), "keys"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, column: pa.Array, keys: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError) as found:
        load(parquet(tmp_path / "t.parquet", c=column), keys)
    assert found.value.key == complaint


@pytest.mark.parametrize(("name", "text"), [("t.csv", None), ("t.parquet", "no parquet"), ("t.txt", "a\n1\n")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as found:
        load(tmp_path / name)
    assert (found.value.key, found.value.file) == ("file", str(tmp_path / name))


def test_maps_are_refused_where_pyarrow_cannot_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silverfold.connectors.tengi.server.workload.files._MAPS", {})
    maps = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))
    pyarrow.parquet.write_table(pa.table({"c": maps}), tmp_path / "t.parquet")

    with pytest.raises(ConfigError, match=r"pyarrow: version: found .*, allowed: 21 or newer, for a file with maps"):
        load(tmp_path / "t.parquet")
