"""Parses filter expressions: text in, a frozen tree out, errors with the position of the fault.

The supported subset of Deephaven's where-expressions, loosest binding first::

    filter     = condition { "," condition }
    condition  = condition "||" condition
               | condition "&&" condition
               | "!" condition
               | value ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column [ "icase" ] [ "not" ] "in" literal { "," literal }
               | column [ "icase" ] [ "not" ] "includes" [ "any" | "all" ] text { "," text }
               | column "." ( "startsWith" | "endsWith" | "contains" | "matches" ) "(" text ")"
               | "isNull" "(" column ")" | "isNaN" "(" value ")" | "inRange" "(" value "," value "," value ")"
               | column                                             of booleans
               | "(" condition ")"
    value      = value ( "+" | "-" ) value
               | value ( "*" | "/" | "%" ) value
               | "-" value | column | literal | "(" value ")"
    literal    = text | [ "-" ] number | "true" | "false" | "null"

A comma joins conditions like ``&&``, but binds more loosely. Text is quoted by backticks, single or double quotes and
has no escapes. Numbers may have a fraction and an exponent, and end in L, f or d as in Java. Names are Java
identifiers. Nothing is ever evaluated as code; length and depth are bounded, so that parsing is cheap for any text.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, NamedTuple, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.server.filters.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Includes,
    Membership,
    NanTest,
    Not,
    NullTest,
    Operator,
    Sign,
    TextMethod,
    TextTest,
    Truth,
    Value,
)

MAX_LENGTH = 16_384
MAX_DEPTH = 64

SUPPORTED: Final = (
    "understood are comparisons, + - * / %, in, includes (both with icase, not), isNull, isNaN, inRange, startsWith, "
    "endsWith, contains, matches, && || ! and commas"
)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>`[^`]*`|'[^']*'|"[^"]*")
      | (?P<number>(?:[0-9]+[Ll]|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?[FfDd]?)(?![\w$.]))
      | (?P<name>(?:[^\W\d]|\$)[\w$]*)
      | (?P<mark>\|\||&&|==|!=|<=|>=|[=<>!(),.+\-*/%])""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Operator] = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SIGNS: dict[str, Sign] = {"+": "+", "-": "-", "*": "*", "/": "/", "%": "%"}
_LEVELS: Final = {"||": 1, "&&": 2, **dict.fromkeys(_OPERATORS, 3), "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
"""Binding strength of each operator; a higher level binds tighter."""

_RESERVED = frozenset({"in", "not", "isNull"})
_LIST_WORDS = frozenset({"in", "not", "icase", "includes"})
_METHODS: dict[str, TextMethod] = {
    "startsWith": "startsWith",
    "endsWith": "endsWith",
    "contains": "contains",
    "matches": "matches",
}
_BOOLEANS = {"true": True, "false": False}


def parse_filter(text: str) -> Expression:
    """Return the syntax tree of ``text``.

    Raises:
        InvalidValue: reason ``filter-syntax``; ``offset`` is the position in the text as UTF-8, in bytes.
    """
    if len(text) > MAX_LENGTH:
        _fail(f"a filter has at most {MAX_LENGTH} characters, not {len(text)}", MAX_LENGTH)
    return _Parser(_tokens(text)).filter()


def _tokens(text: str) -> list[_Token]:
    found, at, position = [], 0, 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            _fail("unclosed text" if text[at] in "`'\"" else f"{text[at]!r} has no place in a filter", position)
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup or "", match.group(), position))
        at = match.end()
        position += len(match.group().encode("utf-8", "surrogatepass"))
    return [*found, _Token("end", "the end", position)]


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def filter(self) -> Expression:
        parts = [self._condition(0)]
        while self._take(","):
            parts.append(self._condition(0))
        if self._peek().kind != "end":
            self._unexpected("&&, ||, a comma or the end")
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _condition(self, depth: int) -> Expression:
        return self._test(self._operators(1, depth))

    def _operators(self, least: int, depth: int) -> Expression | Value:
        """Parse operands joined by operators of at least the level ``least``."""
        left = self._operand(depth)
        while self._level() >= least:
            token = self._peek()
            self._next += 1
            left = self._join(left, token, depth)
        return left

    def _join(self, left: Expression | Value, token: _Token, depth: int) -> Expression | Value:
        mark, level = token.text, _LEVELS[token.text]
        if level >= 3:
            value, right = self._value(left, token), self._value(self._operators(level + 1, depth), token)
            if level == 3:
                return Comparison(_OPERATORS[mark], value, right, token.position)
            step = (_SIGNS[mark], right)
            if isinstance(value, Arithmetic) and _LEVELS[value.rest[0][0]] == level:
                return Arithmetic(value.first, (*value.rest, step), value.position)
            return Arithmetic(value, (step,), token.position)
        test, other = self._test(left), self._test(self._operators(level + 1, depth))
        kind = AnyOf if mark == "||" else AllOf
        return kind((*test.parts, other) if isinstance(test, kind) else (test, other))

    def _operand(self, depth: int) -> Expression | Value:
        if depth >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH}", self._peek().position)
        token = self._peek()
        if self._take("!"):
            return Not(self._test(self._operators(3, depth + 1)))
        if self._take("-"):
            return _negative(self._value(self._operand(depth + 1), token), token.position)
        if self._take("("):
            inner = self._operators(1, depth + 1)
            self._expect(")")
            return inner
        return self._named(depth) if token.kind == "name" else self._constant()

    def _named(self, depth: int) -> Expression | Value:
        token = self._peek()
        if token.text == "isNull" or self._tokens[self._next + 1].text == "(":
            return self._function(depth)
        if token.text in _BOOLEANS or token.text == "null":
            return self._constant()
        column = self._column()
        if self._take("."):
            return self._method(column)
        following = self._peek()
        return self._list(column) if following.kind == "name" and following.text in _LIST_WORDS else column

    def _function(self, depth: int) -> Expression:
        token = self._peek()
        self._next += 1
        if token.text not in {"isNull", "isNaN", "inRange"}:
            _fail(f"{token.text} is no function that is understood here", token.position)
        self._expect("(")
        if token.text == "isNull":
            found: Expression = NullTest(self._column())
        elif token.text == "isNaN":
            found = NanTest(self._argument(depth), token.position)
        else:
            value = self._argument(depth)
            self._expect(",")
            least = Comparison(">=", value, self._argument(depth), token.position)
            self._expect(",")
            found = AllOf((least, Comparison("<=", value, self._argument(depth), token.position)))
        self._expect(")")
        return found

    def _argument(self, depth: int) -> Value:
        return self._value(self._operators(4, depth + 1), self._peek())

    def _method(self, column: Column) -> TextTest:
        token = self._peek()
        if token.text not in _METHODS:
            self._unexpected("startsWith, endsWith, contains or matches")
        self._next += 1
        self._expect("(")
        text = self._text()
        self._expect(")")
        return TextTest(_METHODS[token.text], column, text)

    def _list(self, column: Column) -> Expression:
        any_case, negated = self._take("icase"), self._take("not")
        if self._take("includes"):
            every = self._take("all")
            if not every:
                self._take("any")
            texts = [self._text()]
            while self._continues_list():
                texts.append(self._text())
            return Includes(column, tuple(texts), negated, any_case, every)
        if not self._take("in"):
            self._unexpected("in or includes")
        constants = [self._constant()]
        while self._continues_list():
            constants.append(self._constant())
        return Membership(column, tuple(constants), negated, any_case)

    def _continues_list(self) -> bool:
        """Consume the comma after a literal of a list if another literal of the list follows, not a condition."""
        at = self._next + 1
        if self._peek().text != "," or self._peek().kind != "mark":
            return False
        at += self._tokens[at].text == "-"
        if _constant(self._tokens[at]) is None or self._tokens[at + 1].text in _LEVELS.keys() - {"||", "&&"}:
            return False
        self._next += 1
        return True

    def _column(self) -> Column:
        token = self._peek()
        if token.kind != "name" or token.text in _RESERVED:
            self._unexpected("a column")
        self._next += 1
        return Column(token.text, token.position)

    def _text(self) -> Constant:
        token = self._peek()
        if token.kind != "text":
            self._unexpected("text in backticks")
        return self._constant()

    def _constant(self) -> Constant:
        start = self._peek()
        negative = self._take("-")
        token = self._peek()
        constant = _constant(token)
        if constant is None or (negative and constant.kind != "number"):
            self._unexpected("a column, text in backticks, a number, true, false or null")
        self._next += 1
        found = _negative(constant, start.position) if negative else constant
        assert isinstance(found, Constant)
        return found

    def _value(self, part: Expression | Value, token: _Token) -> Value:
        if not isinstance(part, Column | Constant | Arithmetic):
            _fail("expected a value, found a condition", token.position)
        return part

    def _test(self, part: Expression | Value) -> Expression:
        if isinstance(part, Column):
            return Truth(part)
        if isinstance(part, Constant | Arithmetic):
            self._unexpected("a comparison")
        return part

    def _level(self) -> int:
        token = self._peek()
        return _LEVELS.get(token.text, 0) if token.kind == "mark" else 0

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


def _negative(value: Value, position: int) -> Value:
    if isinstance(value, Constant) and isinstance(value.value, Decimal):
        return Constant("number", value.value.copy_negate(), position)  # unary minus rounds to 28 digits
    return Arithmetic(Constant("number", Decimal(-1), position), (("*", value),), position)  # 0 - 0.0 is not -0.0


def _constant(token: _Token) -> Constant | None:
    if token.kind == "text":
        return Constant("text", token.text[1:-1], token.position)
    if token.kind == "number":
        return Constant("number", Decimal(token.text.rstrip("LlFfDd")), token.position)
    if token.kind == "name" and token.text in _BOOLEANS:
        return Constant("boolean", _BOOLEANS[token.text], token.position)
    if token.kind == "name" and token.text == "null":
        return Constant("null", None, token.position)
    return None


def _fail(detail: str, position: int) -> NoReturn:
    raise InvalidValue(f"{detail}; {SUPPORTED}", offset=position, reason="filter-syntax")
