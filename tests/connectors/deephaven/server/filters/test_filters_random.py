"""Random row filters against a Python predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.deephaven.server.filters.filters import bind_filter
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

NAN, INFINITY = float("nan"), float("inf")

Predicate = Callable[[Mapping[str, Any]], bool]

RANDOM_COLUMNS = {"i": "Short", "x": "Double", "s": "String", "b": "Boolean"}
RANDOM_ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "x": st.none() | st.sampled_from([-INFINITY, -1.5, 0.0, 1.0, 2.5, NAN]),
        "s": st.none() | st.sampled_from(["", "a", "ab", "b"]),
        "b": st.none() | st.booleans(),
    }
)
CONSTANTS: dict[str, st.SearchStrategy[tuple[str, Any]]] = {
    "i": st.integers(-4, 4).map(lambda n: (str(n), n)) | st.sampled_from([("-0.5", -0.5), ("1.5", 1.5)]),
    "x": st.sampled_from([("-1.5", -1.5), ("0", 0.0), ("1", 1.0), ("2.5f", 2.5)]),
    "s": st.sampled_from([("``", ""), ("`a`", "a"), ("'ab'", "ab")]),
    "b": st.sampled_from([("true", True), ("false", False)]),
}


def compare(left: Any, right: Any) -> int:
    """Order two values as the filters promise: null, numbers, NaN."""

    def rank(value: Any) -> int:
        return 0 if value is None else 2 if isinstance(value, float) and math.isnan(value) else 1

    if rank(left) != rank(right) or rank(left) != 1:
        return rank(left) - rank(right)
    return (left > right) - (left < right)


SIGNS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, Predicate]:
    column = draw(st.sampled_from(list(RANDOM_COLUMNS)))
    text, value = draw(CONSTANTS[column] | st.just(("null", None)))
    sign = draw(st.sampled_from(["=", "!="] if column == "b" else list(SIGNS)))
    if draw(st.booleans()):
        return f"{column} {sign} {text}", lambda row: SIGNS[sign](compare(row[column], value))
    return f"{text}{sign}{column}", lambda row: SIGNS[sign](compare(value, row[column]))


@st.composite
def memberships(draw: st.DrawFn) -> tuple[str, Predicate]:
    column = draw(st.sampled_from(list(RANDOM_COLUMNS)))
    members = draw(st.lists(CONSTANTS[column] | st.just(("null", None)), min_size=1, max_size=4))
    negated = draw(st.booleans())
    values = [value for _, value in members]
    text = f"{column} {'not ' if negated else ''}in {', '.join(text for text, _ in members)}"
    return text, lambda row: any(compare(row[column], value) == 0 for value in values) is not negated


@st.composite
def null_tests(draw: st.DrawFn) -> tuple[str, Predicate]:
    column = draw(st.sampled_from(list(RANDOM_COLUMNS)))
    return f"isNull({column})", lambda row: row[column] is None


@st.composite
def sums(draw: st.DrawFn) -> tuple[str, Predicate]:
    column, sign, order = (draw(st.sampled_from(each)) for each in ("ix", "+-*", list(SIGNS)))
    by, other = draw(st.integers(-3, 3)), draw(st.integers(-4, 4))
    steps = {"+": lambda value: value + by, "-": lambda value: value - by, "*": lambda value: value * by}

    def holds(row: Mapping[str, Any]) -> bool:
        value = None if row[column] is None else steps[sign](row[column])
        return SIGNS[order](compare(value, other))

    return f"{column} {sign} {by} {order} {other}", holds


@st.composite
def text_tests(draw: st.DrawFn) -> tuple[str, Predicate]:
    texts = draw(st.lists(st.sampled_from(["", "a", "A", "B", "ab"]), min_size=1, max_size=3))
    negated, any_case, every = (draw(st.booleans()) for _ in range(3))
    spell = str.lower if any_case else str

    def holds(row: Mapping[str, Any]) -> bool:
        found = [row["s"] is not None and spell(text) in spell(row["s"]) for text in texts]
        return row["s"] is not None and (all(found) if every else any(found)) is not negated

    words = f"{'icase ' * any_case}{'not ' * negated}includes{' all' * every}"
    return f"s {words} {', '.join(f'`{text}`' for text in texts)}", holds


def joined(parts: st.SearchStrategy[tuple[str, Predicate]]) -> st.SearchStrategy[tuple[str, Predicate]]:
    pair = st.tuples(parts, parts)
    return st.one_of(
        pair.map(lambda p: (f"({p[0][0]}) && ({p[1][0]})", lambda row: p[0][1](row) and p[1][1](row))),
        pair.map(lambda p: (f"({p[0][0]}) || ({p[1][0]})", lambda row: p[0][1](row) or p[1][1](row))),
        parts.map(lambda p: (f"!({p[0]})", lambda row: not p[1](row))),
    )


PARTS = comparisons() | memberships() | null_tests() | sums() | text_tests()
FILTERS = st.recursive(PARTS, joined, max_leaves=5)


@given(FILTERS, st.lists(RANDOM_ROW, max_size=8))
def test_a_random_filter_agrees_with_a_python_predicate(
    filter_: tuple[str, Predicate], rows: list[dict[str, Any]]
) -> None:
    text, predicate = filter_
    table = LiveTable(RANDOM_COLUMNS)
    with table.update() as update:
        update.add(rows)
    mask = bind_filter(text, table.columns).mask(table.snapshot().rows)
    assert mask.tolist() == [predicate(row) for row in rows]
