"""Turns Parquet and CSV files into live tables, so that any file can be served.

=================================  ===========================================================
Arrow type                         column type
=================================  ===========================================================
int8, int16, int32, int64          Byte, Short, Int, Long
uint8, uint16, uint32, uint64      Short, Int, Long, Decimal: the next that holds every value
float, double (half too)           Float, Double (Float)
bool; string of any kind           Boolean; String
date, timestamp                    DateTime: nanoseconds since 1970 UTC; without a zone read as UTC
decimal                            Decimal
dictionary                         as its values
list of any of these but Decimal   the array type
null (no value in the column)      String
=================================  ===========================================================

Row keys are the row numbers in the file, from 0. A value that equals Deephaven's null sentinel of its type is null.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from silverfold.conf.errors import ConfigError, InvalidValue
from silverfold.connectors.common.simulation import read_table_file
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

_NAMES = {
    pa.int8(): "Byte",
    pa.int16(): "Short",
    pa.int32(): "Int",
    pa.int64(): "Long",
    pa.uint8(): "Short",
    pa.uint16(): "Int",
    pa.uint32(): "Long",
    pa.uint64(): "Decimal",
    pa.float16(): "Float",
    pa.float32(): "Float",
    pa.float64(): "Double",
    pa.bool_(): "Boolean",
    pa.string(): "String",
    pa.large_string(): "String",
    pa.string_view(): "String",
    pa.null(): "String",
    pa.date32(): "DateTime",
    pa.date64(): "DateTime",
}
_ALLOWED = "integers, floats, booleans, strings, dates, timestamps, decimals, and lists of these but decimals"


def load_file(path: Path) -> LiveTable:
    """Return a table with the rows of a file; see `connectors.common.simulation`.

    Raises:
        ConfigError: The file cannot be read, or a column's type has no counterpart. Names file and column.
    """
    rows = read_table_file(path)
    columns = {}
    for field in rows.schema:
        kind = column_type_of(field.type)
        if kind is None:
            raise ConfigError(file=str(path), key=field.name, found=str(field.type), allowed=f"one of each: {_ALLOWED}")
        columns[field.name] = kind
    return _fill(path, LiveTable(columns), rows)


def column_type_of(arrow: pa.DataType) -> str | None:
    """Return the name of the column type for an Arrow type; None when there is no counterpart."""
    if pa.types.is_dictionary(arrow):
        return column_type_of(arrow.value_type)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        name = f"{column_type_of(arrow.value_type)}Array"
        return name if name in TYPES else None
    if pa.types.is_timestamp(arrow):
        return "DateTime"
    if pa.types.is_decimal(arrow):
        return "Decimal"
    return _NAMES.get(arrow)


def _fill(path: Path, table: LiveTable, rows: pa.Table) -> LiveTable:
    with table.update() as update:
        try:
            update.add_columns(rows)
        except InvalidValue as error:
            allowed = "values of their types"
            raise ConfigError(file=str(path), key="values", found=error.detail, allowed=allowed) from error
    return table
