"""Converts tengi's values, one by one, to the Python values of silver. Shares only the wire codec with the decoder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Final, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType
from silverfold.connectors.tengi.protocol.values import Byte, Float, Int, Packet, Short

_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DAY: Final = date(1970, 1, 1)
_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN: Final = frozenset("0123456789")
_MOST_DIGITS: Final = 80
_MOST_ELEMENTS: Final = 1 << 20


def read_value(kind: ColumnType, value: Any) -> Any:
    """Return a value in the form in which Arrow returns silver's. Raises InvalidValue if it does not fit the type."""
    return _READ[kind.name](kind, value)


def _refuse(kind: ColumnType, value: object) -> NoReturn:
    raise InvalidValue(f"{value!r:.100} is no {kind!s:.100}", reason="unfit")


def _whole(value: Any) -> int:
    if type(value) not in (Byte, Short, Int, int):
        raise InvalidValue(f"{value!r:.100} is no whole number", reason="unfit")
    return int(value)


def _integer(kind: ColumnType, value: Any) -> int:
    number, bound = _whole(value), 1 << _BITS[kind.name] - 1
    return number if -bound <= number < bound else _refuse(kind, value)


def _boolean(kind: ColumnType, value: Any) -> bool:
    number = _whole(value)
    return number == 1 if number in (0, 1) else _refuse(kind, value)


def _real(kind: ColumnType, value: Any) -> float:
    is_double = kind.name == "double" and type(value) is float
    return float(value) if is_double or type(value) is Float else _refuse(kind, value)


def _binary(kind: ColumnType, value: Any) -> bytes:
    return value if type(value) is bytes else _refuse(kind, value)


def _time(kind: ColumnType, value: Any) -> date | datetime:
    number = _whole(value)
    try:
        if kind.name == "date":
            return _DAY + timedelta(days=number)
        found = _MOMENT + timedelta(microseconds=number)
    except OverflowError:
        _refuse(kind, value)
    return found if kind.name == "timestamp" else found.replace(tzinfo=None)


def _decimal(kind: ColumnType, value: Any) -> Decimal:
    text = value if type(value) is str else _refuse(kind, value)
    whole, point, behind = text.removeprefix("-").partition(".")
    parts = [whole, behind] if point else [whole]
    if not all(0 < len(part) <= _MOST_DIGITS and _PLAIN.issuperset(part) for part in parts):
        _refuse(kind, value)
    if behind[kind.scale :].strip("0") or len(whole.lstrip("0")) > kind.precision - kind.scale:
        _refuse(kind, value)
    with localcontext(prec=4 * _MOST_DIGITS):
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale))


def _nested(kind: ColumnType, value: Any) -> Any:
    members = value.values if type(value) is Packet else _refuse(kind, value)
    if kind.name == "struct":
        return {name: read_value(each, members[name]) if name in members else None for name, each in kind.fields}
    if kind.name == "map":
        return [(_text(kind, key), read_value(kind.fields[0][1], each)) for key, each in members.items()]
    size = _whole(members.get("n"))
    if not 0 <= size <= _MOST_ELEMENTS:
        _refuse(kind, value)
    names = map(str, range(size))
    return [read_value(kind.fields[0][1], members[name]) if name in members else None for name in names]


def _text(kind: ColumnType, value: Any) -> str:
    if type(value) is not str or any("\ud800" <= unit <= "\udfff" for unit in value):
        _refuse(kind, value)
    return str(value)


_READ: Final[dict[str, Callable[[ColumnType, Any], Any]]] = {
    **dict.fromkeys(_BITS, _integer),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _time),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(("array", "struct", "map"), _nested),
    "boolean": _boolean,
    "decimal": _decimal,
    "binary": _binary,
    "string": _text,
    "void": _refuse,
}
