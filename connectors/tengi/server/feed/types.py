"""Types of columns as Spark's DDL writes them, and their values on the wire (chapter 9.2).

====================================  ==========================  =============================
type                                  value here                  on the wire
====================================  ==========================  =============================
tinyint, smallint, int, bigint        int                         Byte, Short, Integer, Long
float, double                         float                       Float, Double
boolean                               bool                        Byte 0 or 1
string, binary                        str, bytes                  String, byte[]
decimal(p,s)                          decimal.Decimal             String, plain notation
date                                  int: days since 1970        Integer
timestamp, timestamp_ntz              int: microseconds since     Long
array<T>                              list                        Packet: ``n``, ``0``, ``1`` …
struct<a:T,…>, map<string,T>          dict by name                Packet by name
====================================  ==========================  =============================

NULL is None everywhere. A NULL within a list or a struct is not sent; one within a map cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any, Final

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.values import Byte, Float, Int, Packet, Short

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")
_DIGITS: Final = 38

_SCALARS: Final[Mapping[str, Callable[[Any], object]]] = {
    "tinyint": Byte,
    "smallint": Short,
    "int": Int,
    "bigint": int,
    "float": Float,
    "double": float,
    "boolean": Byte,
    "string": str,
    "binary": bytes,
    "date": Int,
    "timestamp": int,
    "timestamp_ntz": int,
}


@dataclass(frozen=True)
class ColumnType:
    """A type of a column, or of a part of one.

    Args:
        text: Its DDL.
        name: Its first word, in lower case.
        scale: Digits after the point of a decimal.
        precision: All digits of a decimal.
        element: Type of the elements of an array, or of the values of a map.
        fields: Types of a struct's fields, by name.
    """

    text: str
    name: str
    precision: int = 0
    scale: int = 0
    element: ColumnType | None = None
    fields: Mapping[str, ColumnType] = field(default_factory=dict)

    def to_wire(self, value: Any) -> object:
        """Return a value, not None, as it travels. Raises InvalidValue if it does not fit."""
        scalar = _SCALARS.get(self.name)
        if scalar is not None:
            return scalar(value)
        if self.name == "decimal":
            return self._decimal_text(value)
        if self.element is None:
            sent = {
                name: kind.to_wire(value[name]) for name, kind in self.fields.items() if value.get(name) is not None
            }
            return Packet("struct", sent)
        if self.name == "map":
            if None in value.values():
                raise InvalidValue("a map's value is NULL: it has no form on the wire", reason="null_in_map")
            return Packet("map", {key: self.element.to_wire(each) for key, each in value.items()})
        sent = {str(at): self.element.to_wire(each) for at, each in enumerate(value) if each is not None}
        return Packet("list", {"n": Int(len(value)), **sent})

    def _decimal_text(self, value: Decimal) -> str:
        with localcontext(prec=2 * _DIGITS) as context:
            unscaled = value.scaleb(self.scale, context) if value.is_finite() else Decimal("0.5")
            if unscaled != unscaled.to_integral_value() or abs(unscaled) >= Decimal(10) ** self.precision:
                raise InvalidValue(f"{value} does not fit {self.text}", reason="out_of_range")
            return f"{value.quantize(Decimal(1).scaleb(-self.scale)):f}"


def parse_type(text: str) -> ColumnType:
    """Return the type that a DDL text denotes. Raises InvalidValue."""
    tokens, at = [], 0
    for found in _TOKEN.finditer(text):
        if found.start() != at:
            break
        at = found.end()
        tokens.append(found[1])
    parser = _Parser(text, tokens)
    if text[at:].strip():
        raise parser.problem()
    kind = parser.read_type()
    if parser.tokens:
        raise parser.problem()
    return kind


class _Parser:
    """Reads tokens, the next one last in the list."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self.tokens = tokens[::-1]

    def problem(self) -> InvalidValue:
        return InvalidValue(f"{self._text!r} is no type of a column", reason="unknown_type")

    def read_type(self) -> ColumnType:
        name = self._next().lower()
        match name:
            case "decimal":
                precision, scale = self._decimal()
                return ColumnType(f"decimal({precision},{scale})", name, precision, scale)
            case "array":
                self._expect("<")
                element = self.read_type()
                self._expect(">")
                return ColumnType(f"array<{element.text}>", name, element=element)
            case "map":
                for token in ("<", "string", ","):
                    self._expect(token)
                element = self.read_type()
                self._expect(">")
                return ColumnType(f"map<string,{element.text}>", name, element=element)
            case "struct":
                fields = self._fields()
                listed = ",".join(f"{quoted(each)}:{kind.text}" for each, kind in fields.items())
                return ColumnType(f"struct<{listed}>", name, fields=fields)
        if name not in _SCALARS:
            raise self.problem()
        return ColumnType(name, name)

    def _decimal(self) -> tuple[int, int]:
        numbers = [10, 0]
        if self.tokens and self.tokens[-1] == "(":
            self._next()
            numbers[0] = self._number()
            if self._next_is(","):
                numbers[1] = self._number()
            self._expect(")")
        if not 0 <= numbers[1] <= numbers[0] <= _DIGITS:
            raise self.problem()
        return numbers[0], numbers[1]

    def _fields(self) -> dict[str, ColumnType]:
        fields: dict[str, ColumnType] = {}
        self._expect("<")
        while not fields or self._next_is(","):
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            self._expect(":")
            fields[name] = self.read_type()
        self._expect(">")
        return fields

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            raise self.problem()
        return int(token)

    def _next(self) -> str:
        if not self.tokens:
            raise self.problem()
        return self.tokens.pop()

    def _next_is(self, token: str) -> bool:
        found = bool(self.tokens) and self.tokens[-1] == token
        if found:
            self.tokens.pop()
        return found

    def _expect(self, token: str) -> None:
        if self._next().lower() != token:
            raise self.problem()


def quoted(name: str) -> str:
    """Return a field's name as DDL needs it."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name.replace('`', '``')}`"
