"""Column types, as in Spark's DDL, and their values as tengi values.

===========================  ==================================================
tinyint, smallint, int       Byte, Short, Integer; readers take any whole number
bigint, float, double        Long, Float, Double
boolean                      Byte 0 or 1
string, binary               String, byte[]
decimal(p,s)                 String without exponent
date                         Integer, days since 1970-01-01
timestamp, timestamp_ntz     Long, microseconds since 1970-01-01, UTC or local
array<T>                     Packet: ``n``, and ``0`` to ``n-1``; NULL is missing
struct<name:T,…>             Packet by field; NULL is missing
map<string,T>                Packet by key; no NULL
===========================  ==================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from operator import index
from typing import Any, Final

from silverfold.conf.errors import InvalidValue
from silverfold.conf.names import caseless
from silverfold.connectors.tengi.protocol.values import Byte, Float, Int, Packet, Short

MAX_DEPTH: Final = 24
"""Types inside one another. A value of such depth, in a change in a message, stays below the codec's limit."""
MAX_ITEMS: Final = 1 << 20
"""Most values of an array that is read. NULLs take no bytes, so the bytes do not bound them."""
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WHOLE: Final[dict[str, Callable[[int], int]]] = {"tinyint": Byte, "smallint": Short, "int": Int}
_SIMPLE: Final = frozenset({*_BITS, "float", "double", "boolean", "string", "binary", "date"}) | {
    "timestamp",
    "timestamp_ntz",
}
_ALIASES: Final = {
    **{"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"},
    **{"dec": "decimal", "numeric": "decimal", "timestamp_ltz": "timestamp"},
}
"""Spark's other names of types (Spark SQL reference, "Data Types")."""
_BOUNDED_TEXTS: Final = frozenset({"varchar", "char", "character"})
_TOKEN: Final = re.compile(
    r"""\s*(?:`((?:[^`]|``)+)`|([A-Za-z_0-9]+)|([<>(),:])|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""", re.DOTALL
)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?", re.ASCII)
_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type.

    Args:
        name: Spark's name of the type, in lower case.
        fields: The fields of a struct; for an array or a map one field without a name, the type of its values.
    """

    name: str
    precision: int = 0
    scale: int = 0
    fields: tuple[tuple[str, ColumnType], ...] = ()

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "array":
                return f"array<{self.fields[0][1]}>"
            case "map":
                return f"map<string,{self.fields[0][1]}>"
            case "struct":
                shown = (f"{_quoted(name)}:{kind}" for name, kind in self.fields)
                return f"struct<{','.join(shown)}>"
        return self.name


@lru_cache(maxsize=1024)
def parse_type(text: str) -> ColumnType:
    """Parse a type. NOT NULL and COMMENT of a struct's fields are read over: silver has neither.

    Spark's own parser needs a JVM, and sqlglot's takes ``int int`` and ``array<int``.

    Raises:
        InvalidValue: ``bad_type``.
    """
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _bad_type(text)
        tokens.append(found)
        at = found.end()
    parser = _TypeParser(text, tokens)
    kind = parser.read(1)
    if parser.at != len(tokens):
        raise _bad_type(text)
    return kind


class _TypeParser:
    """Position in the tokens of a type."""

    def __init__(self, text: str, tokens: list[re.Match[str]]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def read(self, depth: int) -> ColumnType:
        if depth > MAX_DEPTH:
            raise _bad_type(self.text)
        name = self._word().lower()
        name = _ALIASES.get(name, name)
        if name in _SIMPLE:
            return ColumnType(name)
        if name == "decimal":
            return self._decimal()
        if name in _BOUNDED_TEXTS:
            raise _bad_type(self.text, ": silver bounds no text's length, so say string")
        if name not in ("array", "map", "struct"):
            raise _bad_type(self.text)
        self._expect("<")
        if name == "map":
            if self.read(depth + 1).name != "string":
                raise _bad_type(self.text)
            self._expect(",")
        fields = [self._field(depth) if name == "struct" else ("", self.read(depth + 1))]
        while name == "struct" and self._is(","):
            self.at += 1
            fields.append(self._field(depth))
        self._expect(">")
        if len({caseless(each) for each, _ in fields}) < len(fields):  # Spark and Delta know no case
            raise _bad_type(self.text)
        return ColumnType(name, fields=tuple(fields))

    def _decimal(self) -> ColumnType:
        if not self._is("("):
            return ColumnType("decimal", 10, 0)
        self._expect("(")
        precision, scale = self._word(), "0"
        if self._is(","):
            self.at += 1
            scale = self._word()
        self._expect(")")
        digits = [int(each) for each in (precision, scale) if re.fullmatch("[0-9]{1,2}", each)]
        if len(digits) < 2 or not 0 < digits[0] <= 38 or digits[1] > digits[0]:  # Spark's limit
            raise _bad_type(self.text)
        return ColumnType("decimal", digits[0], digits[1])

    def _field(self, depth: int) -> tuple[str, ColumnType]:
        name = self._word()
        if self._is(":"):
            self.at += 1
        kind = self.read(depth + 1)
        if self._is("not"):
            self.at += 1
            self._expect("null")
        if self._is("comment"):
            self.at += 1
            self._literal()
        return name, kind

    def _word(self) -> str:
        quoted, bare, *_ = self._next()
        name = bare if quoted is None else quoted.replace("``", "`")
        if name is None:
            raise _bad_type(self.text)
        return name

    def _literal(self) -> None:
        if self._next()[3] is None:
            raise _bad_type(self.text)

    def _next(self) -> Sequence[str | None]:
        """Return the next token's groups: one is a quoted name, a word, a mark or a literal, the others are None."""
        if self.at == len(self.tokens):
            raise _bad_type(self.text)
        self.at += 1
        return self.tokens[self.at - 1].groups()

    def _is(self, wanted: str) -> bool:
        """Return whether the next token is a mark, or a word in any letter case."""
        return self.at < len(self.tokens) and self.tokens[self.at][0].strip().lower() == wanted

    def _expect(self, wanted: str) -> None:
        if not self._is(wanted):
            raise _bad_type(self.text)
        self.at += 1


def write_value(value: Any, kind: ColumnType) -> Any:
    """Return a Python value as a tengi value. The caller leaves NULLs out: tengi has no such value.

    Raises:
        InvalidValue: ``wrong_type``: the value is not of the type; ``null_in_map``.
    """
    try:
        return _written(value, kind)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidValue(f"no {kind}: {error}", reason="wrong_type") from error


def _written(value: Any, kind: ColumnType) -> Any:
    return _WRITERS[kind.name](value, kind)


def _timestamp(value: datetime, _: ColumnType) -> int:
    if value.tzinfo is None:
        raise _wrong("a timestamp without zone")
    return (value.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _array(values: Sequence[Any], kind: ColumnType) -> Packet:
    (_, element) = kind.fields[0]
    items = {str(at): _written(each, element) for at, each in enumerate(values) if each is not None}
    return Packet("list", {"n": Int(len(values)), **items})


def _struct(values: Mapping[str, Any], kind: ColumnType) -> Packet:
    sent = {name: _written(values[name], of) for name, of in kind.fields if values.get(name) is not None}
    return Packet("struct", sent)


def _map(values: Mapping[str, Any], kind: ColumnType) -> Packet:
    if None in values.values():
        raise InvalidValue("NULL in a map cannot be sent", reason="null_in_map")
    return Packet("map", {key: _written(each, kind.fields[0][1]) for key, each in values.items()})


_WRITERS: Final[dict[str, Callable[[Any, ColumnType], Any]]] = {
    **{name: lambda value, kind: _WHOLE[kind.name](index(value)) for name in _WHOLE},
    "bigint": lambda value, _: whole(int(index(value)), 64),
    "boolean": lambda value, _: Byte(bool(value)),
    "float": lambda value, _: Float(value),
    "double": lambda value, _: float(value),
    "string": lambda value, _: str(value),
    "binary": lambda value, _: bytes(value),
    "decimal": lambda value, kind: format(_fitting(Decimal(value), kind), "f"),
    "date": lambda value, _: Int((value - _EPOCH_DAY).days),
    "timestamp": _timestamp,
    "timestamp_ntz": lambda value, _: (value - _EPOCH) // _MICROSECOND,
    "array": _array,
    "struct": _struct,
    "map": _map,
}


def read_value(value: Any, kind: ColumnType) -> Any:
    """Return a tengi value as a Python value: dates and timestamps as `datetime` has them, decimals as Decimal.

    Raises:
        InvalidValue: ``wrong_type``: the value is not of the type, or beyond its range.
    """
    return _READERS[kind.name](value, kind)


def _read_array(value: Any, kind: ColumnType) -> list[Any]:
    values = _of(value, Packet, kind).values
    size, (_, element) = whole(values.get("n"), 32), kind.fields[0]
    if not 0 <= size <= MAX_ITEMS:
        raise _wrong(f"an array of {size} values")
    return [read_value(values[at], element) if at in values else None for at in map(str, range(size))]


def _read_struct(value: Any, kind: ColumnType) -> dict[str, Any]:
    values = _of(value, Packet, kind).values
    return {name: read_value(values[name], of) if name in values else None for name, of in kind.fields}


def _read_map(value: Any, kind: ColumnType) -> dict[str, Any]:
    return {key: read_value(each, kind.fields[0][1]) for key, each in _of(value, Packet, kind).values.items()}


_READERS: Final[dict[str, Callable[[Any, ColumnType], Any]]] = {
    **{name: lambda value, kind: whole(value, _BITS[kind.name]) for name in _BITS},
    "boolean": lambda value, _: whole(value, 8) != 0,
    "float": lambda value, kind: float(_of(value, float, kind)),
    "double": lambda value, kind: float(_of(value, float, kind)),
    "string": lambda value, kind: _of(value, str, kind),
    "binary": lambda value, kind: _of(value, bytes, kind),
    "decimal": lambda value, kind: _decimal(_of(value, str, kind), kind),
    "date": lambda value, kind: _time(whole(value, 32), kind),
    "timestamp": lambda value, kind: _time(whole(value, 64), kind),
    "timestamp_ntz": lambda value, kind: _time(whole(value, 64), kind),
    "array": _read_array,
    "struct": _read_struct,
    "map": _read_map,
}


def read_row(values: Mapping[str, Any], nulls: frozenset[str], columns: Mapping[str, ColumnType]) -> dict[str, Any]:
    """Return the values of the columns sent, None for NULL. Unknown columns are ignored. Raises InvalidValue."""
    row: dict[str, Any] = {}
    for name, kind in columns.items():
        if name in values:
            try:
                row[name] = read_value(values[name], kind)
            except InvalidValue as error:
                raise InvalidValue(error.detail, reason=error.reason, element=name) from error
        elif name in nulls:
            row[name] = None
    return row


def write_row(row: Mapping[str, Any], columns: Mapping[str, ColumnType]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the values of a row, and the names of its columns that are NULL. Raises InvalidValue."""
    values = {name: write_value(value, columns[name]) for name, value in row.items() if value is not None}
    return values, frozenset(row.keys() - values.keys())


def whole(value: Any, bits: int, element: str = "") -> int:
    """Return a Byte, Short, Integer or Long that fits ``bits``. Raises InvalidValue, ``wrong_type``, with ``element``.

    All readers take the numbers of packets by it: ``version``, ``seq``, ``part`` and the others.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not -1 << bits - 1 <= value < 1 << bits - 1:
        detail = f"{type(value).__name__} instead of a whole number of {bits} bits"
        raise InvalidValue(detail, reason="wrong_type", element=element)
    return int(value)


def _of(value: Any, wanted: type, kind: ColumnType) -> Any:
    if not isinstance(value, wanted):
        raise _wrong(f"{type(value).__name__} instead of {kind.name}")
    return value


def _decimal(text: str, kind: ColumnType) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise _wrong(f"{text[:48]!r} is no {kind}")
    return _fitting(Decimal(text), kind)


def _fitting(number: Decimal, kind: ColumnType) -> Decimal:
    """Return the number with the type's scale. Raises InvalidValue if that would change it, or it is too large."""
    with localcontext(prec=80):
        try:
            exact = number.quantize(Decimal(1).scaleb(-kind.scale))
        except InvalidOperation:
            raise _wrong(f"a number is no {kind}") from None
        if exact != number or abs(exact) >= Decimal(10) ** (kind.precision - kind.scale):
            raise _wrong(f"a number is no {kind}")
    return exact


def _time(number: int, kind: ColumnType) -> date | datetime:
    try:
        if kind.name == "date":
            return _EPOCH_DAY + timedelta(days=number)
        found = _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        raise _wrong(f"a {kind} beyond the years 1 to 9999") from None
    return found.replace(tzinfo=UTC) if kind.name == "timestamp" else found


def _quoted(name: str) -> str:
    return name if re.fullmatch("[A-Za-z_0-9]+", name) else "`" + name.replace("`", "``") + "`"


def _bad_type(text: str, why: str = "") -> InvalidValue:
    return InvalidValue(f"{text[:100]!r} is no type that a feed can have{why}", reason="bad_type")


def _wrong(detail: str) -> InvalidValue:
    return InvalidValue(detail, reason="wrong_type")
