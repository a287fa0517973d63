"""Conversion of tengi's values to the types of silver's columns (`options.TengiTable`). Nothing is rounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from types import NoneType
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import COLUMN_TYPES
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType
from silverfold.connectors.tengi.protocol.values import Byte, Float, Int, Packet, Short

_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WHOLE: Final = frozenset({Byte, Short, Int, int})
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_RANGES: Final = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _BITS.items()},
    "boolean": (0, 1),
    "date": (_FIRST_DAY, _LAST_DAY),
    "timestamp": (_FIRST_MICROS, _LAST_MICROS),
    "timestamp_ntz": (_FIRST_MICROS, _LAST_MICROS),
}
"""Ranges of whole numbers by type. Days and microseconds are those of the years 1 to 9999, which Spark can show."""
_OTHERS: Final = {
    "float": frozenset({Float}),
    "double": frozenset({Float, float}),
    "string": frozenset({str}),
    "binary": frozenset({bytes}),
}
_DECIMAL: Final = re.compile(r"-?[0-9]{1,80}(\.[0-9]{1,80})?", re.ASCII)
_DIGITS: Final = 200
_SHOWN: Final = 200


@dataclass(frozen=True)
class Column:
    """A column of a silver table. Picklable."""

    name: str
    kind: ColumnType

    @cached_property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> tuple[pa.Array, dict[int, WireError]]:
        """Return the values as an array, and by index the errors of those that do not fit. None is NULL."""
        types = set(map(type, values)) - {NoneType}
        name = self.kind.name
        if types <= _OTHERS.get(name, frozenset()):
            try:
                return pa.array(values, self.arrow), {}
            except UnicodeEncodeError:  # a lone surrogate
                return self._each(values)
        if name in _RANGES and types <= _WHOLE:
            return self._whole(values)
        return self._each(values)

    def _whole(self, values: Sequence[int | None]) -> tuple[pa.Array, dict[int, WireError]]:
        numbers = pa.array(values, pa.int64())
        found, (first, last) = pc.min_max(numbers).as_py(), _RANGES[self.kind.name]
        if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
            return self._each(values)
        narrow = numbers.cast(pa.int32()) if self.kind.name == "date" else numbers
        return narrow.cast(self.arrow), {}

    def _each(self, values: Sequence[Any]) -> tuple[pa.Array, dict[int, WireError]]:
        errors: dict[int, WireError] = {}
        converted: list[Any] = [None] * len(values)
        for at, value in enumerate(values):
            try:
                converted[at] = None if value is None else convert(self.kind, value)
            except InvalidValue as error:
                detail = f"{value!r:.{_SHOWN}} does not fit {self.kind!s:.{_SHOWN}}"
                errors[at] = InvalidValue(detail, reason=error.reason, element=self.name)
        return pa.array(converted, self.arrow), errors


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column's type."""
    match kind.name:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "array":
            return pa.list_(arrow_type(kind.fields[0][1]))
        case "map":
            return pa.map_(pa.string(), arrow_type(kind.fields[0][1]))
        case "struct":
            return pa.struct([(name, arrow_type(each)) for name, each in kind.fields])
    return COLUMN_TYPES[kind.name]


def convert(kind: ColumnType, value: Any) -> Any:
    """Return a value other than None in a form that Arrow takes for the type. Raises InvalidValue."""
    if kind.name in _RANGES:
        return _in_range(kind.name, value)
    if kind.name in _OTHERS:
        return _text(value) if kind.name == "string" else _typed(_OTHERS[kind.name], value)
    return _COMPOSED[kind.name](kind, value)


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a value does not fit", reason=reason)


def _typed(types: frozenset[type], value: Any) -> Any:
    return value if type(value) in types else _refuse("wrong_type")


def _in_range(name: str, value: Any) -> int | bool:
    first, last = _RANGES[name]
    number: int = _typed(_WHOLE, value)
    if not first <= number <= last:
        _refuse("value_out_of_range")
    return bool(number) if name == "boolean" else number


def _text(value: Any) -> str:
    text: str = _typed(_OTHERS["string"], value)
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse("lone_surrogate")
    return text


def _decimal(kind: ColumnType, value: Any) -> Decimal:
    if type(value) is not str or not _DECIMAL.fullmatch(value):
        _refuse("wrong_type")
    exact = Decimal(value)
    if exact and exact.adjusted() >= kind.precision - kind.scale:
        _refuse("value_out_of_range")
    with localcontext(prec=_DIGITS):
        scaled = exact.quantize(Decimal(1).scaleb(-kind.scale))
    return scaled if scaled == exact else _refuse("decimal_not_exact")


def _list(kind: ColumnType, value: Any) -> list[Any]:
    members = _members(value)
    count: int = _typed(_WHOLE, members.get("n"))
    if not 0 <= count <= MOST_ELEMENTS:
        _refuse("value_out_of_range")
    found = [members.get(str(at)) for at in range(count)]
    return [None if each is None else convert(kind.fields[0][1], each) for each in found]


def _map(kind: ColumnType, value: Any) -> list[tuple[str, Any]]:
    return [(_text(key), convert(kind.fields[0][1], each)) for key, each in _members(value).items()]


def _struct(kind: ColumnType, value: Any) -> dict[str, Any]:
    members = _members(value)
    return {name: convert(each, members[name]) if name in members else None for name, each in kind.fields}


def _members(value: Any) -> dict[str, Any]:
    return value.values if type(value) is Packet else _refuse("wrong_type")


MOST_ELEMENTS: Final = 1 << 20
"""Most elements of an array. NULLs take no bytes on the wire, so the wire does not bound their number in memory."""
_COMPOSED: Final[dict[str, Callable[[ColumnType, Any], Any]]] = {
    "decimal": _decimal,
    "array": _list,
    "map": _map,
    "struct": _struct,
}
