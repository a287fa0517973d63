"""Silver types of Deephaven's columns: the Arrow type of each, and the conversion of its values.

Every value is preserved exactly, except that a snapshot leaves -0.0 where 0.0 comes: to SQL they are equal. One choice
is left to the user: a DateTime counts nanoseconds, a Spark timestamp microseconds. ``date_times = "timestamp"`` drops
the last three digits and counts the values that lost something; ``"nanoseconds"`` stores the number as a long. Decimals
are text (every digit and the scale) unless the table's ``decimals`` gives the column a scale. Then they are decimal(38,
scale), and a value that does not fit is an error, never rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, UnknownTemplate
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.deephaven.protocol.types import Shape

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_DATE_TIME = "DateTime"
_NANOSECONDS = 1000  # per microsecond
_EXACT: Final = Context(prec=38, traps=[Inexact, InvalidOperation])
"""Raises for a number of more than 38 digits, and for one that a scale would round."""


@dataclass(frozen=True)
class SilverColumn:
    """One column of a silver table."""

    info: ColumnInfo
    arrow: pa.DataType

    @property
    def field(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.info.name, self.arrow)

    @property
    def drops_nanoseconds(self) -> bool:
        """Whether the silver type counts microseconds."""
        return self.arrow in (_TIMESTAMP, pa.list_(_TIMESTAMP))

    def convert(self, values: pa.Array) -> tuple[pa.Array, int]:
        """Return decoded values in the silver type, and how many of them lost nanoseconds.

        Raises:
            InvalidValue: reason ``decimal-scale``: a decimal does not fit decimal(38, scale).
        """
        if values.type == self.arrow:
            return values, 0
        if pa.types.is_list(self.arrow):
            return _convert_elements(self, values)
        if pa.types.is_timestamp(self.arrow):
            return _to_timestamps(values)
        return _to_decimals(values, self.arrow, self.info.name), 0


def silver_columns(
    columns: Sequence[ColumnInfo], options: DeephavenOptions, table: DeephavenTable
) -> tuple[SilverColumn, ...]:
    """Return the silver form of a subscription's columns, in server order.

    Raises:
        UnknownTemplate: The schema lacks a column's message, so the table cannot be read.
    """
    return tuple(SilverColumn(info, _arrow_type(info, options, table)) for info in columns)


def _arrow_type(info: ColumnInfo, options: DeephavenOptions, table: DeephavenTable) -> pa.DataType:
    if info.type is None:
        raise UnknownTemplate(
            f"column {info.name} is sent as template {info.template_id}, no column message of the schema",
            reason="unknown-template",
        )
    timestamps = options.date_times == "timestamp"
    if info.type.name == _DATE_TIME and timestamps:
        return _TIMESTAMP
    if info.type.element is not None and info.type.element.name == _DATE_TIME and timestamps:
        return pa.list_(_TIMESTAMP)
    if info.type.shape is Shape.DECIMAL and info.name in table.decimals:
        return pa.decimal128(38, table.decimals[info.name])
    return info.type.arrow


def _to_decimals(texts: pa.StringArray, kind: pa.Decimal128Type, column: str) -> pa.Array:
    """Return decimals of a scale. Arrow's own cast from text wraps numbers that are too large for it (pyarrow 26)."""
    unit, numbers = Decimal(1).scaleb(-kind.scale), list[Decimal | None]()
    for text in texts.to_pylist():
        try:
            numbers.append(None if text is None else Decimal(text).quantize(unit, context=_EXACT))
        except ArithmeticError as error:
            reason = f"{column}: {text[:80]} does not fit decimal({kind.precision}, {kind.scale})"
            raise InvalidValue(reason, reason="decimal-scale") from error
    return pa.array(numbers, kind)


def _to_timestamps(nanoseconds: pa.Array) -> tuple[pa.Array, int]:
    present = np.asarray(nanoseconds.is_valid())
    counts = np.asarray(nanoseconds.fill_null(0))
    micros, rest = np.divmod(counts, _NANOSECONDS)
    return pa.array(micros, _TIMESTAMP, mask=~present), int(np.count_nonzero(rest))


def _convert_elements(column: SilverColumn, lists: pa.ListArray) -> tuple[pa.Array, int]:
    elements, lost = _to_timestamps(lists.values)
    return pa.ListArray.from_arrays(lists.offsets, elements, mask=lists.is_null()), lost
