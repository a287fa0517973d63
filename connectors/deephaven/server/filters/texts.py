"""Tests the text of cells for row filters: substrings, membership in any case, regular expressions.

A null is not text: every test here is false for it, negated ones included. Case is ignored as by Java's
``equalsIgnoreCase``, letter by letter. Regular expressions are those of RE2, whose time is proportional to the text
whatever a client sends: Java's look-around and back-references are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.conf.names import caseless
from silverfold.connectors.deephaven.server.filters.tree import Constant, TextMethod
from silverfold.connectors.deephaven.server.tables.cells import Cells
from silverfold.connectors.deephaven.server.tables.rowkeys import Mask

TextTester = Callable[[Cells], Mask]

_PARTS: Mapping[TextMethod, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}


def method_test(method: TextMethod, text: Constant) -> TextTester:
    """Return the test for a method of Java's String.

    Raises:
        InvalidValue: ``filter-type``: not a valid regular expression.
    """
    assert isinstance(text.value, str)
    wanted = text.value
    if method == "matches":
        return _regex_test(wanted, text.position)
    has = _PARTS[method]
    return lambda cells: _test_texts(cells, lambda cell: has(cell, wanted))


def membership_test(texts: Sequence[str]) -> TextTester:
    """Return a test whether a text is one of several, ignoring case."""
    wanted = {caseless(text) for text in texts}
    return lambda cells: _test_texts(cells, lambda cell: caseless(cell) in wanted)


def inclusion_test(texts: Sequence[str], *, every: bool, any_case: bool, negated: bool) -> TextTester:
    """Return a test whether a text contains any of several texts, or every one."""
    join, normalise = (all if every else any), (caseless if any_case else str)
    wanted = [normalise(text) for text in texts]
    return lambda cells: _test_texts(
        cells, lambda cell: join(text in normalise(cell) for text in wanted) is not negated
    )


def _test_texts(cells: Cells, test: Callable[[str], bool]) -> Mask:
    return np.fromiter((cell is not None and test(cell) for cell in cells), np.bool_, len(cells))


def _regex_test(expression: str, position: int) -> TextTester:
    alone = _without_surrogates(expression)
    pattern = rf"\A(?:{alone})\z"
    try:
        for each in (alone, pattern):  # `a)|(b` is none, although it becomes one between parentheses
            pc.match_substring_regex(pa.array([""]), each)
    except (pa.ArrowInvalid, UnicodeError) as error:
        detail = f"no regular expression that is understood here: {str(error).splitlines()[0]}"
        raise InvalidValue(detail, offset=position, reason="filter-type") from error

    def test(cells: Cells) -> Mask:
        texts = pa.array([None if cell is None else _without_surrogates(cell) for cell in cells], pa.string())
        return np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False))

    return test


def _without_surrogates(text: str) -> str:
    """Return a text with lone surrogates replaced, which UTF-8 cannot encode."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
