"""Conversion of single values to Python's form of silver values, for `connectors.sqlitecloud.reference.reader`.

Values come from JSON or from cells; numbers in notifications are still their text here (`Number`).
"""

from __future__ import annotations

import base64
import json
import re
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext
from typing import Any

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.messages import MAX_NESTING, RawText

_MOST_DIGITS = 38


class Number(str):
    """A number's literal text."""

    __slots__ = ()

    @property
    def is_integral(self) -> bool:
        """Whether it has neither fraction nor exponent."""
        return self.lstrip("-").isdigit()


class Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object."""

    __slots__ = ()


def column_type(declared: str, wanted: str | None) -> str:
    """Return the silver type of a column: the configured one, or that of its declared type."""
    if wanted:
        return wanted
    for pattern, kind in (
        ("INT", "bigint"),
        ("CHAR|CLOB|TEXT", "string"),
        ("BLOB", "binary"),
        ("REAL|FLOA|DOUB", "double"),
    ):
        if re.search(pattern, declared, re.IGNORECASE):
            return kind
    return "string"


def sent_value(name: str, kind: str, value: Any, blob: str) -> Any:
    """Convert a value of a notification to its silver form. Raise InvalidValue if it does not fit."""
    if kind == "binary" and value is not None:
        with _reporting_unfit(name, value):
            return _octets(value, blob)
    return cell_value(name, kind, value)


def cell_value(name: str, kind: str, value: Any) -> Any:
    """Convert a snapshot cell, or a notified value that is not a blob. Raise InvalidValue if it does not fit."""
    if value is None:
        return None
    with _reporting_unfit(name, value):
        if isinstance(value, bytes | RawText) or kind == "binary":
            return _require(value, kind == "binary" and isinstance(value, bytes))
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = Number(value)
        if kind.startswith("decimal"):
            return _exact(value, kind)
        return {"bigint": _bigint, "double": _double, "boolean": _boolean, "string": _text}[kind](value)


def check_key(name: str, kind: str, value: Any, typed: Any, *, mixed: bool) -> None:
    """Raise InvalidValue for a key value that another key would equal once both have the column's type.

    Args:
        mixed: The column may hold both a number and the text of its digits.
    """
    if typed is None or kind in ("binary", "boolean"):
        return
    with _reporting_unfit(name, value):
        if isinstance(value, str) and not isinstance(value, Number):
            _require(value, not mixed or (kind == "string" and not _is_number(value)))
            _require(value, kind == "string" or value == _digits(typed))
        elif kind == "string" and mixed and not (isinstance(value, Number) and value.is_integral):
            _require(value, isinstance(value, int) or not float(value).is_integer())
        elif kind == "double" and (isinstance(value, int) or (isinstance(value, Number) and value.is_integral)):
            _require(value, typed == int(value))


@contextmanager
def _reporting_unfit(name: str, value: Any) -> Iterator[None]:
    try:
        yield
    except (ValueError, ArithmeticError) as error:
        raise InvalidValue(f"{reprlib.repr(value)} does not fit", reason="unfit_value", element=name) from error


def _require(value: Any, fits: object) -> Any:
    if not fits:
        raise ValueError
    return value


def _octets(value: Any, blob: str) -> bytes:
    _require(value, type(value) is str and blob != "error")
    if blob == "text":
        return bytes(value, "utf-8")
    if blob == "base64":
        return base64.b64decode(value, validate=True)
    return bytes.fromhex(_require(value, " " not in value and value.isascii()))


def _bigint(value: Any) -> int:
    digits = re.fullmatch(r"-?[0-9]{1,19}", value) if isinstance(value, str) else None
    if digits is None:
        number = float(_require(value, isinstance(value, Number)))
        digits = _require(re.fullmatch(r"(-?[0-9]+)", f"{number:.0f}"), number.is_integer() and not value.is_integral)
    found = int(digits[0])
    return int(_require(found, -(2**63) <= found < 2**63))


def _double(value: Any) -> float:
    return float(_require(value, isinstance(value, Number)))


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return int(_require(value, isinstance(value, Number) and value.is_integral and int(value) in (0, 1))) == 1


def _text(value: Any) -> str:
    if isinstance(value, Number):
        if value.is_integral:
            return str(int(value))
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(float(value)), repr(float(value)))
    text = value if isinstance(value, str) else as_json(value)
    return text.encode().decode()


def _exact(value: Any, kind: str) -> Decimal:
    precision, scale = (int(digits) for digits in re.findall("[0-9]+", kind))
    number = isinstance(value, Number)
    _require(value, number or (isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,80}(\.[0-9]{1,80})?", value)))
    literal = repr(float(value)) if number and not value.is_integral else str(value)
    with localcontext(prec=400):
        found = Decimal(literal)
        _require(found, found.is_finite() and abs(found) < Decimal(10) ** (precision - scale))
        rounded = found.quantize(Decimal(10) ** -scale)
        return Decimal(_require(rounded, rounded == found))


def _is_number(value: str) -> bool:
    try:
        return _text(Number(value)) == value
    except ValueError:
        return False


def _digits(number: int | Decimal) -> str:
    return f"{Decimal(number).normalize(Context(prec=_MOST_DIGITS)):f}" if number else "0"


def as_json(value: Any, depth: int = 0) -> str:
    """Return a parsed value as compact JSON, reals as SQLite's doubles. Raise InvalidValue if nested too deep.

    Texts with unpaired surrogates are escaped: UTF-8 cannot encode them.
    """
    if depth >= MAX_NESTING and isinstance(value, Pairs | list):
        raise InvalidValue(f"a value is nested deeper than {MAX_NESTING}", reason="too_deep")
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{as_json(name)}:{as_json(member, depth + 1)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_json(each, depth + 1) for each in value) + "]"
    if isinstance(value, Number):
        number = value if value.is_integral else repr(float(value))
        return {"inf": "9.0e+999", "-inf": "-9.0e+999", "-0": "0"}.get(number, number)
    literal = json.dumps(value, ensure_ascii=False)
    try:
        return literal.encode().decode()
    except UnicodeEncodeError:
        return json.dumps(value)
