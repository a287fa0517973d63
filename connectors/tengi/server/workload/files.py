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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from silverfold.conf.errors import ConfigError, InvalidValue, LocalProtocolError, OversizedMessage
from silverfold.connectors.common.simulation import read_table_file
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType
from silverfold.connectors.tengi.server.feed.tables import SourceTable

_MOST_DIGITS: Final = 38
_FIRST_WITH_MAPS: Final = 21
"""First known version of pyarrow that reads maps as dictionaries; 19 does not."""
_MAPS: Final = {"maps_as_pydicts": "strict"} if int(pa.__version__.split(".")[0]) >= _FIRST_WITH_MAPS else {}
_SIMPLE: Final[Mapping[pa.DataType, tuple[str, pa.DataType]]] = {
    pa.int8(): ("tinyint", pa.int8()),
    pa.int16(): ("smallint", pa.int16()),
    pa.int32(): ("int", pa.int32()),
    pa.int64(): ("bigint", pa.int64()),
    pa.uint8(): ("smallint", pa.int16()),
    pa.uint16(): ("int", pa.int32()),
    pa.uint32(): ("bigint", pa.int64()),
    pa.float16(): ("float", pa.float32()),
    pa.float32(): ("float", pa.float32()),
    pa.float64(): ("double", pa.float64()),
    pa.bool_(): ("boolean", pa.bool_()),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), pa.null()), ("string", pa.string())),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), ("binary", pa.binary())),
    **dict.fromkeys((pa.date32(), pa.date64()), ("date", pa.date32())),
}


def load_table(
    file: Path, name: str, keys: Sequence[str] | None, *, epoch: str, history: int, version: int = 1
) -> SourceTable:
    """Return a table with the rows of a file; see `connectors.common.simulation.read_table_file`.

    Args:
        keys: None for the first column; empty for a table that takes inserts only.

    Raises:
        ConfigError: The file cannot be read, a column has no type here, a value cannot be sent, such as a NULL in a
            map, a row fits no packet, or the keys do not identify the rows.
    """
    read = read_table_file(file)
    columns, targets = dict[str, ColumnType](), list[pa.Field]()
    for field in read.schema:
        counterpart = counterpart_of(field.type)
        if counterpart is None or not field.name or field.name in columns:
            found, allowed = f"{field.name} {field.type}", "names that differ, and types that Spark has"
            raise ConfigError(file=str(file), key="columns", found=found, allowed=allowed)
        columns[field.name] = counterpart[0]
        targets.append(pa.field(field.name, counterpart[1]))
    keys = list(columns)[:1] if keys is None else keys
    for key in keys:
        _check_key(file, key, columns)
    try:
        rows = read.cast(pa.schema(targets), safe=False).to_pylist(**_MAPS)
        texts = {name: str(kind) for name, kind in columns.items()}
        return SourceTable(name, texts, keys, rows, epoch=epoch, history=history, version=version)
    except (pa.ArrowException, ValueError, OverflowError, InvalidValue) as error:
        raise ConfigError(file=str(file), key="values", found=str(error), allowed="values of their types") from error
    except OversizedMessage as error:
        allowed = "rows that fit a packet"
        raise ConfigError(file=str(file), key="values", found=str(error), allowed=allowed) from error
    except LocalProtocolError as error:
        allowed = "keys that identify the rows"
        raise ConfigError(file=str(file), key="keys", found=str(error), allowed=allowed) from error


def counterpart_of(arrow: pa.DataType) -> tuple[ColumnType, pa.DataType] | None:
    """Return the column type for an Arrow type, and the Arrow type to cast to; None for an unsupported type."""
    types = pa.types
    if types.is_dictionary(arrow):
        return counterpart_of(arrow.value_type)
    if arrow in _SIMPLE:
        name, target = _SIMPLE[arrow]
        return ColumnType(name), target
    if types.is_fixed_size_binary(arrow):
        return ColumnType("binary"), pa.binary()
    if types.is_timestamp(arrow):
        kind = ColumnType("timestamp" if arrow.tz else "timestamp_ntz")
        return kind, pa.timestamp("us", arrow.tz and "UTC")
    if arrow == pa.uint64() or types.is_decimal(arrow):
        precision, scale = (20, 0) if arrow == pa.uint64() else (arrow.precision, arrow.scale)
        fits = 0 <= scale <= precision <= _MOST_DIGITS
        return (ColumnType("decimal", precision, scale), pa.decimal128(precision, scale)) if fits else None
    return _nested_counterpart(arrow)


def _nested_counterpart(arrow: pa.DataType) -> tuple[ColumnType, pa.DataType] | None:
    types = pa.types
    if types.is_struct(arrow):
        parts = {each.name: counterpart_of(each.type) for each in arrow}
        known = {name: each for name, each in parts.items() if name and each}
        if not parts or len(known) < arrow.num_fields:
            return None
        fields = tuple((name, kind) for name, (kind, _) in known.items())
        return ColumnType("struct", fields=fields), pa.struct([(name, target) for name, (_, target) in known.items()])
    is_list = types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow)
    if is_list and (element := counterpart_of(arrow.value_type)):
        return ColumnType("array", fields=(("", element[0]),)), pa.list_(element[1])
    if types.is_map(arrow) and arrow.key_type in (pa.string(), pa.large_string(), pa.string_view()):
        if not _MAPS:
            allowed = f"{_FIRST_WITH_MAPS} or newer, for a file with maps"
            raise ConfigError(file="pyarrow", key="version", found=pa.__version__, allowed=allowed)
        value = counterpart_of(arrow.item_type)
        return value and (ColumnType("map", fields=(("", value[0]),)), pa.map_(pa.string(), value[1]))
    return None


def _check_key(file: Path, key: str, columns: Mapping[str, ColumnType]) -> None:
    if key not in columns:
        raise ConfigError(file=str(file), key="keys", found=key, allowed=", ".join(columns))
    if columns[key].name in ("float", "double", "array", "struct", "map"):
        found = f"{key} {columns[key]}"
        raise ConfigError(file=str(file), key="keys", found=found, allowed="columns whose values have one form each")
