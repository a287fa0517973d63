"""Files as live tables."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.deephaven.server.sources import load_file


def parquet(path: Path, columns: dict[str, pa.Array]) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("arrow", "values", "kind", "expected"),
    [
        (pa.int8(), [1, None], "Byte", [1, None]),
        (pa.int16(), [1, None], "Short", [1, None]),
        (pa.int32(), [1, None], "Int", [1, None]),
        (pa.int64(), [2**62, None], "Long", [2**62, None]),
        (pa.uint8(), [255, None], "Short", [255, None]),
        (pa.uint16(), [65535, None], "Int", [65535, None]),
        (pa.uint32(), [2**32 - 1, None], "Long", [2**32 - 1, None]),
        (pa.uint64(), [2**64 - 1, None], "Decimal", [Decimal(2**64 - 1), None]),
        (pa.float16(), [np.float16(0.5), None], "Float", [0.5, None]),
        (pa.float32(), [0.5, None], "Float", [0.5, None]),
        (pa.float64(), [0.1, None], "Double", [0.1, None]),
        (pa.bool_(), [True, False, None], "Boolean", [True, False, None]),
        (pa.string(), ["é", "", None], "String", ["é", "", None]),
        (pa.large_string(), ["x", None], "String", ["x", None]),
        pytest.param(
            *(pa.string_view(), ["x", None], "String", ["x", None]),
            marks=pytest.mark.skipif(pa.__version__ < "20", reason="this pyarrow cannot write them"),
        ),
        (pa.null(), [None, None], "String", [None, None]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", "x", None], "String", ["x", "x", None]),
        (pa.timestamp("us", "Europe/Paris"), [datetime(2020, 1, 1, tzinfo=UTC)], "DateTime", [1577836800 * 10**9]),
        (pa.timestamp("s"), [datetime(2020, 1, 1)], "DateTime", [1577836800 * 10**9]),
        (pa.timestamp("ns"), [1, None], "DateTime", [1, None]),
        (pa.date32(), [date(1970, 1, 2), None], "DateTime", [86_400 * 10**9, None]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None], "Decimal", [Decimal("1.50"), None]),
        (pa.list_(pa.int64()), [[1, None], [], None], "LongArray", [[1, None], [], None]),
        (pa.list_(pa.string()), [["x", None], [], None], "StringArray", [["x", None], [], None]),
        (pa.large_list(pa.float32()), [[0.5], None], "FloatArray", [[0.5], None]),
        (pa.list_(pa.bool_()), [[True, None], None], "BooleanArray", [[True, None], None]),
        (pa.list_(pa.timestamp("ms")), [[1000, None], None], "DateTimeArray", [[10**9, None], None]),
    ],
)
def test_an_arrow_type_becomes_a_column_type(
    tmp_path: Path, arrow: pa.DataType, values: list[object], kind: str, expected: list[object]
) -> None:
    table = load_file(parquet(tmp_path / "t.parquet", {"c": pa.array(values, arrow)}))
    assert table.columns["c"].name == kind
    assert [row["c"] for row in table.rows().values()] == expected


def test_a_csv_file_has_its_types_inferred_and_empty_fields_null(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('n,x,s,t\n1,1.5,a,2020-01-01T00:00:00Z\n,,,\n3,2,"",\n')
    table = load_file(tmp_path / "t.csv")
    assert {name: kind.name for name, kind in table.columns.items()} == {
        "n": "Long",
        "x": "Double",
        "s": "String",
        "t": "DateTime",
    }
    assert table.rows() == {
        0: {"n": 1, "x": 1.5, "s": "a", "t": 1577836800 * 10**9},
        1: {"n": None, "x": None, "s": None, "t": None},
        2: {"n": 3, "x": 2.0, "s": "", "t": None},
    }


def test_a_type_without_counterpart_is_named_with_its_column(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", {"a": pa.array([1]), "blob": pa.array([b"x"])})
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    assert (caught.value.file, caught.value.key, caught.value.found) == (str(path), "blob", "binary")


def test_a_list_of_decimals_has_no_counterpart(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", {"a": pa.array([[Decimal(1)]])})
    with pytest.raises(ConfigError, match="a: found 'list<"):
        load_file(path)


def test_a_moment_beyond_nanoseconds_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", {"a": pa.array([datetime(3000, 1, 1, tzinfo=UTC)])})
    with pytest.raises(ConfigError, match="column a: not of type DateTime"):
        load_file(path)


@pytest.mark.parametrize("name", ["missing.parquet", "missing.csv", "table.xlsx"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_file(tmp_path / name)


def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ConfigError, match=r"t\.parquet: file"):
        load_file(tmp_path / "t.parquet")


def test_an_empty_file_of_rows_is_an_empty_table(tmp_path: Path) -> None:
    table = load_file(parquet(tmp_path / "t.parquet", {"a": pa.array([], pa.int64())}))
    assert (len(table), table.rows()) == (0, {})
