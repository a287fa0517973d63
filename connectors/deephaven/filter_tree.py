"""What a filter expression says, as a frozen tree (`connectors.deephaven.filter_syntax` reads it)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Sign: TypeAlias = Literal["+", "-", "*", "/", "%"]
LiteralKind: TypeAlias = Literal["text", "number", "boolean", "null"]
TextMethod: TypeAlias = Literal["startsWith", "endsWith", "contains", "matches"]


@dataclass(frozen=True)
class Column:
    """A column by its name."""

    name: str
    position: int


@dataclass(frozen=True)
class Constant:
    """A literal. ``value`` is a str, an exact Decimal, a bool or None, as ``kind`` says."""

    kind: LiteralKind
    value: str | Decimal | bool | None
    position: int


@dataclass(frozen=True)
class Arithmetic:
    """A value, with others added to it or taken from it; or it is multiplied and divided. From left to right."""

    first: Value
    rest: tuple[tuple[Sign, Value], ...]
    position: int


Value: TypeAlias = Column | Constant | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """Two values compared."""

    operator: Operator
    left: Value
    right: Value
    position: int


@dataclass(frozen=True)
class Membership:
    """Whether a column's value is one of several, with ``any_case`` whatever the case of its letters."""

    column: Column
    constants: tuple[Constant, ...]
    negated: bool
    any_case: bool


@dataclass(frozen=True)
class Includes:
    """Whether a column's text has one of several texts in it, or ``every`` one."""

    column: Column
    texts: tuple[Constant, ...]
    negated: bool
    any_case: bool
    every: bool


@dataclass(frozen=True)
class TextTest:
    """What a method of Java's String says of a column's text."""

    method: TextMethod
    column: Column
    text: Constant


@dataclass(frozen=True)
class NullTest:
    """Whether a column is null."""

    column: Column


@dataclass(frozen=True)
class NanTest:
    """Whether a value is not a number."""

    value: Value
    position: int


@dataclass(frozen=True)
class Truth:
    """Whether a column of booleans is true."""

    column: Column


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: Expression


@dataclass(frozen=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = Comparison | Membership | Includes | TextTest | NullTest | NanTest | Truth | Not | AllOf | AnyOf
