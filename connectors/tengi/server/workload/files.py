"""Parquet and CSV files as tables of a source.

==========================================  ===========================================================
Arrow type                                  type of the column
==========================================  ===========================================================
int8, int16, int32, int64                   tinyint, smallint, int, bigint
uint8, uint16, uint32, uint64               smallint, int, bigint, decimal(20,0)
half, float; double                         float; double
bool; string and binary of any kind; null   boolean; string; binary; string
date; timestamp with a zone, without        date; timestamp; timestamp_ntz, in whole microseconds
decimal of up to 38 digits                  decimal(p,s)
list of any kind, struct, map with texts    array<…>, struct<…>, map<string,…>
dictionary                                  as its values
==========================================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from silverfold.conf.errors import ConfigError, InvalidValue, LocalProtocolError
from silverfold.connectors.tengi.server.feed.tables import SourceTable
from silverfold.connectors.tengi.server.feed.types import ColumnType, parse_type, quoted

_CSV_BLOCK: Final = 1 << 30
_NAMES: Final = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.null(): "string",
    pa.date32(): "date",
    pa.date64(): "date",
}
_ALLOWED: Final = "a type of Spark's without intervals; maps with texts as keys; names that are no longer empty"


def load_table(file: Path, name: str, keys: Sequence[str], *, epoch: str, history: int) -> SourceTable:
    """Return a table with the rows of a Parquet (``.parquet``, ``.pq``) or CSV (``.csv``, ``.csv.gz``) file.

    Types of a CSV file are inferred; an unquoted empty field is NULL.

    Raises:
        ConfigError: The file cannot be read, a column has no type here, or the keys do not identify its rows.
    """
    read = _read(file)
    columns = {}
    for field in read.schema:
        kind = ddl_of(field.type)
        if kind is None or not field.name or field.name in columns:
            found = f"{field.name} {field.type}"
            raise ConfigError(
                file=str(file), key="columns", found=found, allowed="names that differ, and types of Spark"
            )
        columns[field.name] = kind
    for key in keys:
        _check_key(file, key, columns)
    try:
        values = [_values(each, parse_type(columns[field.name])) for field, each in zip(read.schema, read, strict=True)]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
        return SourceTable(name, columns, keys, rows, epoch=epoch, history=history)
    except (pa.ArrowException, InvalidValue) as error:
        raise ConfigError(file=str(file), key="values", found=str(error), allowed="values of their types") from error
    except LocalProtocolError as error:
        allowed = "keys that identify the rows"
        raise ConfigError(file=str(file), key="keys", found=str(error), allowed=allowed) from error


def ddl_of(arrow: pa.DataType) -> str | None:
    """Return the type of a column for an Arrow type; None if there is none."""
    types = pa.types
    if arrow in _NAMES:
        return _NAMES[arrow]
    if types.is_dictionary(arrow):
        return ddl_of(arrow.value_type)
    if types.is_fixed_size_binary(arrow):
        return "binary"
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})" if 0 <= arrow.scale <= arrow.precision <= 38 else None  # noqa: PLR2004 - Spark's most digits
    if types.is_struct(arrow):
        parts = [(each.name, ddl_of(each.type)) for each in arrow]
        is_whole = parts and all(name and kind for name, kind in parts)
        return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in parts)}>" if is_whole else None
    if types.is_map(arrow):
        kind = ddl_of(arrow.item_type)
        return f"map<string,{kind}>" if kind and ddl_of(arrow.key_type) == "string" else None
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        kind = ddl_of(arrow.value_type)
        return kind and f"array<{kind}>"
    return None


def _check_key(file: Path, key: str, columns: dict[str, str]) -> None:
    if key not in columns:
        raise ConfigError(file=str(file), key="keys", found=key, allowed=", ".join(columns))
    if columns[key].startswith(("float", "double", "array", "struct", "map")):
        found = f"{key} {columns[key]}"
        raise ConfigError(file=str(file), key="keys", found=found, allowed="columns whose values have one form each")


def _read(file: Path) -> pa.Table:
    try:
        if file.suffix in {".parquet", ".pq"}:
            return pyarrow.parquet.read_table(file)
        if file.name.endswith((".csv", ".csv.gz")):
            return pyarrow.csv.read_csv(
                file,
                read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK),  # types are inferred from the first block
                convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
            )
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(file=str(file), key="file", found=str(error), allowed="a readable file") from error
    raise ConfigError(file=str(file), key="file", found=file.suffix, allowed=".parquet, .pq, .csv or .csv.gz")


def _values(column: pa.ChunkedArray, kind: ColumnType) -> list[Any]:
    """Return a column's values as `feed.types` has them."""
    return [value for chunk in column.chunks for value in _array_values(chunk, kind)]


def _array_values(array: pa.Array, kind: ColumnType) -> list[Any]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match kind.name:
        case "timestamp" | "timestamp_ntz":
            return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64()).to_pylist()
        case "date":
            return array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        case "decimal":
            return array.cast(pa.decimal128(kind.precision, kind.scale)).to_pylist()
        case "float" if pa.types.is_float16(array.type):
            return array.cast(pa.float32()).to_pylist()
        case "struct":
            parts = {name: _array_values(array.field(at), each) for at, (name, each) in enumerate(kind.fields.items())}
            return [
                {name: part[at] for name, part in parts.items()} if is_valid else None
                for at, is_valid in enumerate(array.is_valid().to_pylist())
            ]
        case "map":
            keys, items = array.keys.to_pylist(), _array_values(array.items, _element(kind))
            return _sliced(array, lambda start, end: dict(zip(keys[start:end], items[start:end], strict=True)))
        case "array":
            if pa.types.is_fixed_size_list(array.type):
                array = array.cast(pa.list_(array.type.value_type))
            items = _array_values(array.values, _element(kind))
            return _sliced(array, lambda start, end: items[start:end])
    return array.to_pylist()


def _element(kind: ColumnType) -> ColumnType:
    if kind.element is None:
        raise AssertionError(kind)
    return kind.element


def _sliced(array: pa.ListArray, cut: Callable[[int, int], object]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [cut(start, end) if ok else None for ok, start, end in zip(valid, offsets, offsets[1:], strict=True)]
