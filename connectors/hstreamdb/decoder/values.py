"""Conversion of JSON values to the declared types of their columns. What does not fit is an error, never rounded.

Numbers of HRecords are doubles: here integers below 2^53, else floats. Those of JSON texts are exact: integers, and
decimals for all with a point or an exponent.

Each function takes a JSON value that is not null. It raises InvalidValue, as `kinds.DeclaredColumn.value` describes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, NoReturn

import numpy as np

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.protocol.records import EXACT

NOT_SENT: Final = "__debezium_unavailable_value"
"""Value of a column that was not sent: a large one that PostgreSQL did not change."""
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
_BARE: Final = "\ud800"
"""Marks digits that must not be quoted in JSON: half of a surrogate pair, which no text that was read contains."""


def exact_decimal(text: str) -> Any:
    """Return a number of a JSON text exactly; ``...``, which no column takes, for an exponent beyond all decimals."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return ...


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a value does not fit", reason=reason)


def integer(found: Any, bits: int = 64) -> int:
    """Return an integer of so many bits: of a whole number, or of text under `LONG`."""
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


def double(found: Any) -> float:
    """Return any number as a double, NaN included. One that only this makes infinite does not fit."""
    if type(found) not in (int, float, Decimal):
        _refuse("wrong_type")
    try:
        number = float(found)
    except OverflowError:
        _refuse("value_out_of_range")
    return number if type(found) is float or math.isfinite(number) else _refuse("value_out_of_range")


def single(found: Any) -> float:
    """Return any number as a double that float32 holds, rounded. One that only this makes infinite does not fit."""
    number = double(found)
    with np.errstate(over="ignore"):
        narrowed = np.float32(number)
    return number if np.isinf(narrowed) == math.isinf(number) else _refuse("value_out_of_range")


def string(found: Any) -> str:
    """Return a text."""
    return found if type(found) is str else _refuse("wrong_type")


def boolean(found: Any) -> bool:
    """Return true or false."""
    return found if type(found) is bool else _refuse("wrong_type")


def zero_one(found: Any) -> bool:
    """Return a boolean, also of 0 and 1."""
    return bool(found) if type(found) in (bool, int, Decimal) and found in (0, 1) else _refuse("wrong_type")


def text_decimal(found: Any, precision: int, scale: int) -> Decimal:
    """Return a decimal of a number or its text."""
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


def base64_decimal(found: Any, precision: int, scale: int) -> Decimal:
    """Return a decimal of its unscaled value: signed big-endian bytes, as Debezium writes them."""
    octets = base64_bytes(found)
    if not 0 < len(octets) <= _MAX_UNSCALED:
        _refuse("wrong_type")
    unscaled = int.from_bytes(octets, signed=True)
    if abs(unscaled) >= 10**precision:
        _refuse("value_out_of_range")
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def base64_bytes(found: Any) -> bytes:
    """Return the bytes of a base64 text."""
    try:
        return base64.b64decode(string(found), validate=True)
    except (binascii.Error, ValueError):
        _refuse("wrong_type")


def iso_date(found: Any) -> date:
    """Return a date of YYYY-MM-DD."""
    try:
        return date.fromisoformat(found) if type(found) is str and _DATE.fullmatch(found) else _refuse("wrong_type")
    except ValueError:
        _refuse("wrong_type")


def epoch_days(found: Any) -> date:
    """Return the date so many days after 1970-01-01."""
    try:
        return date(1970, 1, 1) + timedelta(days=integer(found))
    except OverflowError:
        _refuse("value_out_of_range")


def _micros(number: int) -> int:
    return number if FIRST_MICROS <= number <= LAST_MICROS else _refuse("value_out_of_range")


def epoch_millis(found: Any) -> int:
    """Return microseconds since 1970 of milliseconds."""
    return _micros(1000 * integer(found))


def epoch_micros(found: Any) -> int:
    """Return microseconds since 1970."""
    return _micros(integer(found))


def iso8601(found: Any) -> int:
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


def json_text(found: Any) -> str:
    """Return any value as JSON, members sorted, decimals with the digits that were sent."""
    try:
        return _JSON(found).replace(f'"{_BARE}', "").replace(f'{_BARE}"', "")
    except (ValueError, RecursionError):
        _refuse("wrong_type")


def _digits(found: Any) -> str:
    return f"{_BARE}{found}{_BARE}" if type(found) is Decimal else _refuse("wrong_type")


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_digits
).encode
