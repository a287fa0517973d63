"""Types of columns as ``schema`` packets and settings name them: Spark's DDL (chapter 9.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from silverfold.conf.errors import InvalidValue

INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Bits of the integer types."""
SCALARS: Final = (*INTEGERS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
_ALIASES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])\s*")
_MOST_DIGITS: Final = 38
_MOST_NESTED: Final = 16
"""Types inside one another: packets in one another are limited as well."""
_LONGEST: Final = 1 << 16
"""Characters of a type's text."""


@dataclass(frozen=True)
class ColumnType:
    """A type. Picklable.

    Args:
        name: Of `SCALARS`, or decimal, array, struct or map.
        precision: Digits of a decimal.
        scale: Those behind its point.
        fields: The fields of a struct, by name; of an array or a map the type of its values, as ``element``.
    """

    name: str
    precision: int = 0
    scale: int = 0
    fields: tuple[tuple[str, ColumnType], ...] = ()

    @property
    def element(self) -> ColumnType:
        """Type of the values of an array or a map."""
        return self.fields[0][1]

    @property
    def names_rows(self) -> bool:
        """Whether each value has one form, so that keys may be of the type: 0.0 and -0.0 are one number."""
        return self.name not in ("float", "double", "array", "map", "struct")

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "array":
                return f"array<{self.element}>"
            case "map":
                return f"map<string,{self.element}>"
            case "struct":
                return f"struct<{','.join(f'{_quoted(name)}:{kind}' for name, kind in self.fields)}>"
        return self.name


def parse_type(text: str) -> ColumnType:
    """Return the type that a text denotes. Raises InvalidValue, ``unknown_type``."""
    parser = _Parser(text)
    found = parser.type(0)
    if parser.tokens:
        raise parser.error()
    return found


class _Parser:
    """Reads tokens; the next one is the last of the list."""

    def __init__(self, text: str) -> None:
        self._text, self.tokens = text, list[str]()
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at) if len(text) <= _LONGEST else None
            if found is None:
                raise self.error()
            self.tokens.append(found[1])
            at = found.end()
        self.tokens.reverse()

    def error(self) -> InvalidValue:
        return InvalidValue(f"{self._text!r:.200} is not the type of a column", reason="unknown_type")

    def type(self, depth: int) -> ColumnType:
        name = self._next().lower()
        name = _ALIASES.get(name, name)
        if name in SCALARS:
            return ColumnType(name)
        if depth == _MOST_NESTED or name not in ("decimal", "array", "map", "struct"):
            raise self.error()
        if name == "decimal":
            return self._decimal()
        self._expect("<")
        if name == "struct":
            return self._struct(depth)
        if name == "map":
            self._expect("string")
            self._expect(",")
        found = ColumnType(name, fields=(("element", self.type(depth + 1)),))
        self._expect(">")
        return found

    def _decimal(self) -> ColumnType:
        precision, scale = 10, 0
        if self._is_next("("):
            precision = self._number()
            scale = self._number() if self._is_next(",") else 0
            self._expect(")")
        if not 0 < precision <= _MOST_DIGITS or scale > precision:
            raise self.error()
        return ColumnType("decimal", precision, scale)

    def _struct(self, depth: int) -> ColumnType:
        fields = dict[str, ColumnType]()
        while not fields or self._is_next(","):
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            self._is_next(":")
            if name in fields:
                raise self.error()
            fields[name] = self.type(depth + 1)
        self._expect(">")
        return ColumnType("struct", fields=tuple(fields.items()))

    def _number(self) -> int:
        token = self._next()
        if not (token.isascii() and token.isdigit() and len(token) < 3):
            raise self.error()
        return int(token)

    def _next(self) -> str:
        if not self.tokens:
            raise self.error()
        return self.tokens.pop()

    def _is_next(self, token: str) -> bool:
        found = bool(self.tokens) and self.tokens[-1] == token
        if found:
            self.tokens.pop()
        return found

    def _expect(self, token: str) -> None:
        if self._next().lower() != token:
            raise self.error()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"
