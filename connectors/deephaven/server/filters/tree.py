"""The syntax tree of a filter expression, frozen (`connectors.deephaven.server.filters.syntax` parses it)."""

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
    """A column, by name."""

    name: str
    position: int


@dataclass(frozen=True)
class Constant:
    """A literal. ``value`` is a str, an exact Decimal, a bool or None, depending on ``kind``."""

    kind: LiteralKind
    value: str | Decimal | bool | None
    position: int


@dataclass(frozen=True)
class Arithmetic:
    """A left-associative chain of operators of one level: either ``+`` and ``-``, or ``*``, ``/`` and ``%``."""

    first: Value
    rest: tuple[tuple[Sign, Value], ...]
    position: int


Value: TypeAlias = Column | Constant | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """A comparison of two values."""

    operator: Operator
    left: Value
    right: Value
    position: int


@dataclass(frozen=True)
class Membership:
    """Whether a column's value is one of several; ``any_case`` ignores the case of letters."""

    column: Column
    constants: tuple[Constant, ...]
    negated: bool
    any_case: bool


@dataclass(frozen=True)
class Includes:
    """Whether a column's text contains any of several texts, or ``every`` one."""

    column: Column
    texts: tuple[Constant, ...]
    negated: bool
    any_case: bool
    every: bool


@dataclass(frozen=True)
class TextTest:
    """A method of Java's String applied to a column's text."""

    method: TextMethod
    column: Column
    text: Constant


@dataclass(frozen=True)
class NullTest:
    """Whether a column is null."""

    column: Column


@dataclass(frozen=True)
class NanTest:
    """Whether a value is NaN."""

    value: Value
    position: int


@dataclass(frozen=True)
class Truth:
    """Whether a Boolean column is true."""

    column: Column


@dataclass(frozen=True)
class Not:
    """Negation."""

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
