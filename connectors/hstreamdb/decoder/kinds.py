"""Kinds of columns: for each type and encoding of `options.ENCODINGS`, how every path of the decoder reads its values.

The paths are: records one by one, HRecords by columns (`struct_columns`) and raw records by columns (`text_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import COLUMN_TYPES
from silverfold.connectors.hstreamdb.decoder import struct_values, values
from silverfold.connectors.hstreamdb.decoder.struct_members import Members, StructBuffer
from silverfold.connectors.hstreamdb.options import INTEGERS, Encoding, HStreamTable

_SHOWN: Final = 200
"""Most characters of a value in an error."""


class ColumnKind(NamedTuple):
    """How the values of one type in one encoding are read.

    Args:
        arrow: Type of the column. The digits of a decimal are the column's own.
        convert: Returns Python's form of the Arrow value of a JSON value that is not null; of a timestamp microseconds.
            Raises InvalidValue. The other paths read as it does, or leave the record to it.
        structs: Reads the values of many HRecords. None if they are texts that `convert` takes one by one.
        text: Type for msgspec, if Arrow converts or refuses all its values as `convert` does. None if `convert` takes
            them one by one.
    """

    arrow: pa.DataType
    convert: Callable[..., Any]
    structs: Callable[[StructBuffer, Members], pa.Array] | None
    text: Any


def _integer_kind(name: str, bits: int) -> ColumnKind:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    convert = partial(values.integer, bits=bits)
    return ColumnKind(COLUMN_TYPES[name], convert, partial(struct_values.integers, least=least, most=most), int)


_BOOLEAN, _DATE, _TIME = COLUMN_TYPES["boolean"], COLUMN_TYPES["date"], COLUMN_TYPES["timestamp"]
_STRING, _DECIMAL = COLUMN_TYPES["string"], pa.decimal128(38)

KINDS: Final[Mapping[tuple[str, Encoding | None], ColumnKind]] = {
    **{(name, None): _integer_kind(name, bits) for name, bits in INTEGERS.items()},
    ("float", None): ColumnKind(COLUMN_TYPES["float"], values.single, struct_values.floats, float),
    ("double", None): ColumnKind(COLUMN_TYPES["double"], values.double, struct_values.doubles, float),
    ("boolean", None): ColumnKind(_BOOLEAN, values.boolean, struct_values.booleans, bool),
    ("boolean", "zero_one"): ColumnKind(
        _BOOLEAN, values.zero_one, partial(struct_values.booleans, has_numbers=True), None
    ),
    ("decimal", "text_decimal"): ColumnKind(_DECIMAL, values.text_decimal, None, None),
    ("decimal", "base64_decimal"): ColumnKind(_DECIMAL, values.base64_decimal, None, None),
    ("date", "iso8601"): ColumnKind(_DATE, values.iso_date, None, None),
    ("date", "epoch_days"): ColumnKind(_DATE, values.epoch_days, struct_values.epoch_days, None),
    ("timestamp", "iso8601"): ColumnKind(_TIME, values.iso8601, None, None),
    ("timestamp", "epoch_millis"): ColumnKind(_TIME, values.epoch_millis, struct_values.epoch_millis, None),
    ("timestamp", "epoch_micros"): ColumnKind(_TIME, values.epoch_micros, struct_values.epoch_micros, None),
    ("string", None): ColumnKind(_STRING, values.string, struct_values.texts, str),
    ("string", "json_text"): ColumnKind(_STRING, values.json_text, None, None),
    ("binary", "base64"): ColumnKind(COLUMN_TYPES["binary"], values.base64_bytes, None, None),
}
"""By the name of the type, of a decimal without digits, and the encoding."""


@dataclass(frozen=True)
class DeclaredColumn:
    """A declared column. Picklable.

    Args:
        type: An `options.TypeName`.
        encoding: `options.HStreamTable.encoding`.
    """

    name: str
    type: str
    encoding: Encoding | None

    @cached_property
    def kind(self) -> ColumnKind:
        """Its kind; of a decimal with its digits."""
        name, _, digits = self.type.partition("(")
        kind = KINDS[name, self.encoding]
        if not digits:
            return kind
        precision, scale = map(int, digits.removesuffix(")").split(","))
        convert = partial(kind.convert, precision=precision, scale=scale)
        return kind._replace(arrow=pa.decimal128(precision, scale), convert=convert)

    @property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return self.kind.arrow

    def value(self, found: Any) -> Any:
        """Return a JSON value as Python's form of the column's Arrow value; a timestamp as microseconds.

        Raises:
            InvalidValue: It does not fit. ``element`` is the column, ``reason`` one of ``wrong_type``,
                ``value_out_of_range``, ``integer_not_integral``, ``integer_not_exact`` (a double that may have been
                rounded) and ``decimal_not_exact`` (more digits than the column has).
        """
        if found is None:
            return None
        try:
            return self.kind.convert(found)
        except InvalidValue as error:
            shown = "a number beyond all decimals" if found is ... else f"{found!r:.{_SHOWN}}"
            detail = f"{shown} does not fit {self.type}"
            raise InvalidValue(detail, reason=error.reason, element=self.name) from error


def columns_of(table: HStreamTable) -> tuple[DeclaredColumn, ...]:
    """Return the columns of a table, in the order declared."""
    return tuple(DeclaredColumn(name, kind, table.encoding(name)) for name, kind in table.columns.items())
