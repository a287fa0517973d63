"""Reads filter expressions: text in, a frozen tree out, errors with the position of what is wrong.

The subset of Deephaven's where-expressions that is understood, loosest binding first::

    expression = conjunction { "||" conjunction }
    conjunction = negation { "&&" negation }
    negation   = "!" negation | "(" expression ")" | "isNull" "(" column ")" | comparison
    comparison = operand ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand
               | column [ "not" ] "in" literal { "," literal }
    operand    = column | literal
    literal    = text | number | "true" | "false" | "null"

Text stands in backticks or single quotes and has no escapes. Numbers may be negative, have a fraction and an exponent,
and end in L, f or d as in Java. Names are Java identifiers. Nothing is ever evaluated as code; length and depth are
bounded, so that any text costs little.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple, NoReturn, TypeAlias

from conf.errors import InvalidValue

MAX_LENGTH = 16_384
MAX_DEPTH = 64

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
LiteralKind: TypeAlias = Literal["text", "number", "boolean", "null"]


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
class Comparison:
    """Two operands compared."""

    operator: Operator
    left: Column | Constant
    right: Column | Constant
    position: int


@dataclass(frozen=True)
class Membership:
    """Whether a column's value is one of several."""

    column: Column
    constants: tuple[Constant, ...]
    negated: bool


@dataclass(frozen=True)
class NullTest:
    """Whether a column is null."""

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


Expression: TypeAlias = Comparison | Membership | NullTest | Not | AllOf | AnyOf


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>`[^`]*`|'[^']*')
      | (?P<number>-?(?:[0-9]+[Ll]|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?[FfDd]?)(?![A-Za-z0-9_$.]))
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<mark>\|\||&&|==|!=|<=|>=|[=<>!(),])""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Operator] = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_RESERVED = frozenset({"in", "not", "isNull"})
_WORDS = {"true": True, "false": False}


def parse_filter(text: str) -> Expression:
    """Return the tree of ``text``.

    Raises:
        InvalidValue: reason ``filter-syntax``; ``offset`` is the place in the text as UTF-8, in bytes.
    """
    if len(text) > MAX_LENGTH:
        _fail(f"a filter has at most {MAX_LENGTH} characters, not {len(text)}", MAX_LENGTH)
    parser = _Parser(_tokens(text))
    expression = parser.expression(0)
    parser.expect_end()
    return expression


def _tokens(text: str) -> list[_Token]:
    found, at, position = [], 0, 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            _fail("unclosed text" if text[at] in "`'" else f"{text[at]!r} has no place in a filter", position)
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup or "", match.group(), position))
        at = match.end()
        position += len(match.group().encode("utf-8", "surrogatepass"))
    return [*found, _Token("end", "the end", position)]


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def expression(self, depth: int) -> Expression:
        parts = [self._conjunction(depth)]
        while self._take("||"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            self._unexpected("&&, || or the end")

    def _conjunction(self, depth: int) -> Expression:
        parts = [self._negation(depth)]
        while self._take("&&"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self, depth: int) -> Expression:
        if depth >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH}", self._peek().position)
        if self._take("!"):
            return Not(self._negation(depth + 1))
        if self._take("("):
            expression = self.expression(depth + 1)
            self._expect(")")
            return expression
        if self._take("isNull"):
            self._expect("(")
            column = self._column()
            self._expect(")")
            return NullTest(column)
        return self._comparison()

    def _comparison(self) -> Expression:
        left, token = self._operand(), self._peek()
        if isinstance(left, Column) and (token.kind, token.text) in {("name", "in"), ("name", "not")}:
            return self._membership(left)
        if token.text not in _OPERATORS or token.kind != "mark":
            self._unexpected("a comparison")
        self._next += 1
        return Comparison(_OPERATORS[token.text], left, self._operand(), token.position)

    def _membership(self, column: Column) -> Membership:
        negated = self._take("not")
        self._expect("in")
        constants = [self._constant()]
        while self._take(","):
            constants.append(self._constant())
        return Membership(column, tuple(constants), negated)

    def _operand(self) -> Column | Constant:
        token = self._peek()
        if token.kind == "name" and token.text not in _WORDS and token.text != "null":
            return self._column()
        return self._constant()

    def _column(self) -> Column:
        token = self._peek()
        if token.kind != "name" or token.text in _RESERVED:
            self._unexpected("a column")
        self._next += 1
        return Column(token.text, token.position)

    def _constant(self) -> Constant:
        token = self._peek()
        constant = _constant(token)
        if constant is None:
            self._unexpected("a column, text in backticks, a number, true, false or null")
        self._next += 1
        return constant

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        token = self._peek()
        taken = token.text == text and token.kind in {"mark", "name"}
        self._next += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._unexpected(text)

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._peek()
        _fail(f"expected {wanted}, found {token.text}", token.position)


def _constant(token: _Token) -> Constant | None:
    if token.kind == "text":
        return Constant("text", token.text[1:-1], token.position)
    if token.kind == "number":
        return Constant("number", Decimal(token.text.rstrip("LlFfDd")), token.position)
    if token.kind == "name" and token.text in _WORDS:
        return Constant("boolean", _WORDS[token.text], token.position)
    if token.kind == "name" and token.text == "null":
        return Constant("null", None, token.position)
    return None


def _fail(detail: str, position: int) -> NoReturn:
    raise InvalidValue(detail, offset=position, reason="filter-syntax")
