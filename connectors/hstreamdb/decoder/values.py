"""Conversion of JSON values to the declared types of their columns. What does not fit is an error, never rounded.

Numbers of HRecords are doubles: here integers below 2^53, else floats. Those of JSON texts are exact: integers, and
decimals for all with a point or an exponent.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import cached_property, partial
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import COLUMN_TYPES
from silverfold.connectors.hstreamdb.options import INTEGERS, HStreamTable

EXACT: Final = 1 << 53
"""The first integer whose neighbour a double does not have."""
LONG: Final = "$numberLong"
"""The one member of an object that carries an exact integer as text."""
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, which Spark can show."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LONG: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,80}(\.[0-9]{1,80})?", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-5][0-9])",
    re.ASCII,
)
_WIDE: Final = Context(prec=200)
_MAX_UNSCALED: Final = 32
_SHOWN: Final = 200
_BARE: Final = "\ud800"
"""Marks digits in JSON that are to have no quotes. Half of a surrogate pair: no text that was read has one."""


@dataclass(frozen=True)
class Column:
    """A declared column. Picklable.

    Args:
        kind: A name of `options.TypeName`.
        encoding: `options.HStreamTable.encoding`.
    """

    name: str
    kind: str
    encoding: str | None

    @cached_property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return pa.decimal128(*self._digits) if self.kind.startswith("decimal") else COLUMN_TYPES[self.kind]

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
            return self._convert(found)
        except InvalidValue as error:
            shown = "a number beyond all decimals" if found is ... else f"{found!r:.{_SHOWN}}"
            detail = f"{shown} does not fit {self.kind}"
            raise InvalidValue(detail, reason=error.reason, element=self.name) from error

    @cached_property
    def _convert(self) -> Callable[[Any], Any]:
        if self.kind in INTEGERS:
            return partial(_integer, bits=INTEGERS[self.kind])
        if self.kind.startswith("decimal"):
            precision, scale = self._digits
            return partial(_CONVERT[str(self.encoding)], precision=precision, scale=scale)
        return _CONVERT[f"{self.kind} {self.encoding}" if self.encoding else self.kind]

    @property
    def _digits(self) -> tuple[int, int]:
        precision, scale = re.findall("[0-9]+", self.kind)
        return int(precision), int(scale)


def exact_decimal(text: str) -> Any:
    """Return a number of a JSON text exactly; of one with an exponent beyond all decimals what no column takes."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return ...


def columns_of(table: HStreamTable) -> tuple[Column, ...]:
    """Return the columns of a table, in the order declared."""
    return tuple(Column(name, kind, table.encoding(name)) for name, kind in table.columns.items())


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a value does not fit", reason=reason)


def _integer(found: Any, bits: int = 64) -> int:
    if isinstance(found, Mapping) and found.keys() == {LONG}:
        text = found[LONG]
        number = int(text) if isinstance(text, str) and _LONG.fullmatch(text) else _refuse("wrong_type")
    elif type(found) is int:
        number = found
    elif type(found) is float:
        number = _of_double(found)
    elif type(found) is Decimal:
        number = _of_decimal(found)
    else:
        _refuse("wrong_type")
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else _refuse("value_out_of_range")


def _of_double(found: float) -> int:
    if not found.is_integer():
        _refuse("integer_not_integral")
    return int(found) if abs(found) < EXACT else _refuse("integer_not_exact")


def _of_decimal(found: Decimal) -> int:
    if not found:  # 0e999999999 is no large number
        return 0
    if found.adjusted() > _WIDE.prec:  # the digits of 1e999999999 are never made
        _refuse("value_out_of_range")
    if found.adjusted() < 0:
        _refuse("integer_not_integral")
    return int(found) if found == int(found) else _refuse("integer_not_integral")


def _real(found: Any) -> float:
    if type(found) not in (int, float, Decimal):
        _refuse("wrong_type")
    try:
        number = float(found)
    except OverflowError:
        _refuse("value_out_of_range")
    return number if type(found) is float or math.isfinite(number) else _refuse("value_out_of_range")


def _single(found: Any) -> float:
    number = _real(found)
    with np.errstate(over="ignore"):
        narrowed = np.float32(number)
    return number if np.isinf(narrowed) == math.isinf(number) else _refuse("value_out_of_range")


def _text(found: Any) -> str:
    return found if type(found) is str else _refuse("wrong_type")


def _boolean(found: Any) -> bool:
    return found if type(found) is bool else _refuse("wrong_type")


def _zero_one(found: Any) -> bool:
    return bool(found) if type(found) in (bool, int, Decimal) and found in (0, 1) else _refuse("wrong_type")


def _text_decimal(found: Any, precision: int, scale: int) -> Decimal:
    if type(found) is float and math.isfinite(found):
        exact = Decimal(repr(found)) if abs(found) < EXACT else _refuse("integer_not_exact")
    elif type(found) in (int, Decimal) or (type(found) is str and _NUMBER.fullmatch(found)):
        exact = Decimal(found)
    else:
        _refuse("wrong_type")
    if exact and exact.adjusted() >= precision - scale:
        _refuse("value_out_of_range")
    if exact and exact.adjusted() < -scale:
        _refuse("decimal_not_exact")
    scaled = exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return scaled if scaled == exact else _refuse("decimal_not_exact")


def _base64_decimal(found: Any, precision: int, scale: int) -> Decimal:
    octets = _base64(found)
    if not 0 < len(octets) <= _MAX_UNSCALED:
        _refuse("wrong_type")
    unscaled = int.from_bytes(octets, signed=True)
    if abs(unscaled) >= 10**precision:
        _refuse("value_out_of_range")
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _base64(found: Any) -> bytes:
    try:
        return base64.b64decode(_text(found), validate=True)
    except (binascii.Error, ValueError):
        _refuse("wrong_type")


def _iso_date(found: Any) -> date:
    try:
        return date.fromisoformat(found) if type(found) is str and _DATE.fullmatch(found) else _refuse("wrong_type")
    except ValueError:
        _refuse("wrong_type")


def _epoch_days(found: Any) -> date:
    try:
        return date(1970, 1, 1) + timedelta(days=_integer(found))
    except OverflowError:
        _refuse("value_out_of_range")


def _micros(number: int) -> int:
    return number if FIRST_MICROS <= number <= LAST_MICROS else _refuse("value_out_of_range")


def _epoch_millis(found: Any) -> int:
    return _micros(1000 * _integer(found))


def _epoch_micros(found: Any) -> int:
    return _micros(_integer(found))


def _iso8601(found: Any) -> int:
    """Return microseconds since 1970. Further digits of a second are cut off, as Spark does."""
    parts = _MOMENT.fullmatch(found) if type(found) is str else None
    if parts is None:
        _refuse("wrong_type")
    day, time, fraction, zone = parts.groups()
    try:
        seconds = datetime.fromisoformat(f"{day}T{time}{zone}") - _EPOCH
    except ValueError:
        _refuse("wrong_type")
    return _micros(seconds // _MICROSECOND + int((fraction or "").ljust(6, "0")[:6]))


def _json_text(found: Any) -> str:
    try:
        return _JSON(found).replace(f'"{_BARE}', "").replace(f'{_BARE}"', "")
    except (ValueError, RecursionError):
        _refuse("wrong_type")


def _digits(found: Any) -> str:
    return f"{_BARE}{found}{_BARE}" if type(found) is Decimal else _refuse("wrong_type")


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_digits
).encode

_CONVERT: Final[dict[str, Callable[..., Any]]] = {
    "float": _single,
    "double": _real,
    "boolean": _boolean,
    "string": _text,
    "boolean zero_one": _zero_one,
    "text_decimal": _text_decimal,
    "base64_decimal": _base64_decimal,
    "date iso8601": _iso_date,
    "date epoch_days": _epoch_days,
    "timestamp iso8601": _iso8601,
    "timestamp epoch_millis": _epoch_millis,
    "timestamp epoch_micros": _epoch_micros,
    "binary base64": _base64,
    "string json_text": _json_text,
}
