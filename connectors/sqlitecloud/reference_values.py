"""Values of one row at a time in the form that silver's have in Python: what `connectors.sqlitecloud.reference` is made of.

A value is looked at as JSON or a cell has it: numbers of a notification are still their text here (`Number`).
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

from conf.errors import InvalidValue
from connectors.sqlitecloud.messages import MAX_NESTING, RawText

_MOST_DIGITS = 38


class Number(str):
    """A number as it is spelt."""

    __slots__ = ()

    @property
    def is_whole(self) -> bool:
        """It has neither fraction nor exponent."""
        return self.lstrip("-").isdigit()


class Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object."""

    __slots__ = ()


def column_type(declared: str, wanted: str | None) -> str:
    """Return the silver type of a column: the one that is set, or that of what was declared."""
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
    """Return a value of a notification as silver has it. Raises InvalidValue when it does not fit."""
    if kind == "binary" and value is not None:
        with _told(name, value):
            return _octets(value, blob)
    return cell_value(name, kind, value)


def cell_value(name: str, kind: str, value: Any) -> Any:
    """Return a cell of a snapshot, or a value that is no blob, as silver has it. Raises InvalidValue likewise."""
    if value is None:
        return None
    with _told(name, value):
        if isinstance(value, bytes | RawText) or kind == "binary":
            return _require(value, kind == "binary" and isinstance(value, bytes))
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = Number(value)
        if kind.startswith("decimal"):
            return _exact(value, kind)
        return {"bigint": _whole, "double": _double, "boolean": _truth, "string": _text}[kind](value)


def check_key(name: str, kind: str, value: Any, typed: Any, *, mixed: bool) -> None:
    """Raise InvalidValue for part of a key that another key would be too, once both are of the column's type.

    Args:
        mixed: The column may hold both a number and the text of its digits.
    """
    if typed is None or kind in ("binary", "boolean"):
        return
    with _told(name, value):
        if isinstance(value, str) and not isinstance(value, Number):
            _require(value, not mixed or (kind == "string" and not _is_number(value)))
            _require(value, kind == "string" or value == _digits(typed))
        elif kind == "string" and mixed and not (isinstance(value, Number) and value.is_whole):
            _require(value, isinstance(value, int) or not float(value).is_integer())
        elif kind == "double" and (isinstance(value, int) or (isinstance(value, Number) and value.is_whole)):
            _require(value, typed == int(value))


@contextmanager
def _told(name: str, value: Any) -> Iterator[None]:
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


def _whole(value: Any) -> int:
    digits = re.fullmatch(r"-?[0-9]{1,19}", value) if isinstance(value, str) else None
    if digits is None:
        number = float(_require(value, isinstance(value, Number)))
        digits = _require(re.fullmatch(r"(-?[0-9]+)", f"{number:.0f}"), number.is_integer() and not value.is_whole)
    found = int(digits[0])
    return int(_require(found, -(2**63) <= found < 2**63))


def _double(value: Any) -> float:
    return float(_require(value, isinstance(value, Number)))


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return int(_require(value, isinstance(value, Number) and value.is_whole and int(value) in (0, 1))) == 1


def _text(value: Any) -> str:
    if isinstance(value, Number):
        if value.is_whole:
            return str(int(value))
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(float(value)), repr(float(value)))
    spelt = value if isinstance(value, str) else as_json(value)
    return spelt.encode().decode()


def _exact(value: Any, kind: str) -> Decimal:
    precision, scale = (int(digits) for digits in re.findall("[0-9]+", kind))
    number = isinstance(value, Number)
    _require(value, number or (isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,80}(\.[0-9]{1,80})?", value)))
    spelt = repr(float(value)) if number and not value.is_whole else str(value)
    with localcontext(prec=400):
        found = Decimal(spelt)
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
    """Return a parsed value as JSON without white space, reals as SQLite's doubles; or raise InvalidValue."""
    if depth >= MAX_NESTING and isinstance(value, Pairs | list):
        raise InvalidValue(f"a value is nested deeper than {MAX_NESTING}", reason="too_deep")
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{as_json(name)}:{as_json(member, depth + 1)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_json(each, depth + 1) for each in value) + "]"
    if isinstance(value, Number):
        real = value if value.is_whole else repr(float(value))
        return {"inf": "9.0e+999", "-inf": "-9.0e+999"}.get(real, real)
    return json.dumps(value, ensure_ascii=False)
