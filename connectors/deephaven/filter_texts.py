"""Tests the text of cells for row filters: its parts, its letters in any case, regular expressions.

A null is no text: nothing is true of it, nor of what is ``not`` in it. Case is that of Java's ``equalsIgnoreCase``,
letter by letter. A regular expression is one of RE2, which takes time proportional to the text whatever a client asks
for: Java's look-around and back-references are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.errors import InvalidValue
from connectors.deephaven.cells import Cells
from connectors.deephaven.filter_tree import Constant, TextMethod
from connectors.deephaven.rowkeys import Mask

TextTester = Callable[[Cells], Mask]

_PARTS: Mapping[TextMethod, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}


def of_method(method: TextMethod, text: Constant) -> TextTester:
    """Return what tells of which texts a method says yes.

    Raises:
        InvalidValue: ``filter-type``: it is no regular expression.
    """
    assert isinstance(text.value, str)
    wanted = text.value
    if method == "matches":
        return _matching(wanted, text.position)
    has = _PARTS[method]
    return lambda cells: _told(cells, lambda cell: has(cell, wanted))


def one_of(texts: Sequence[str]) -> TextTester:
    """Return what tells which texts are one of several, whatever the case of their letters."""
    wanted = {in_any_case(text) for text in texts}
    return lambda cells: _told(cells, lambda cell: in_any_case(cell) in wanted)


def including(texts: Sequence[str], *, every: bool, any_case: bool, negated: bool) -> TextTester:
    """Return what tells which texts have one of several in them, or every one."""
    join, spelt = (all if every else any), (in_any_case if any_case else str)
    wanted = [spelt(text) for text in texts]
    return lambda cells: _told(cells, lambda cell: join(text in spelt(cell) for text in wanted) is not negated)


def in_any_case(text: str) -> str:
    """Return a text as all are that differ from it in the case of letters only."""
    return "".join(_letter(_letter(letter, letter.upper()), _letter(letter, letter.upper()).lower()) for letter in text)


def _letter(letter: str, other: str) -> str:
    return other if len(other) == 1 else letter


def _told(cells: Cells, test: Callable[[str], bool]) -> Mask:
    return np.fromiter((cell is not None and test(cell) for cell in cells), np.bool_, len(cells))


def _matching(expression: str, position: int) -> TextTester:
    pattern = rf"\A(?:{_whole(expression)})\z"
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeError) as error:
        detail = f"no regular expression that is understood here: {str(error).splitlines()[0]}"
        raise InvalidValue(detail, offset=position, reason="filter-type") from error

    def test(cells: Cells) -> Mask:
        texts = pa.array([None if cell is None else _whole(cell) for cell in cells], pa.string())
        return np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False))

    return test


def _whole(text: str) -> str:
    """Return a text without halves of characters, which UTF-8 has no form for."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
