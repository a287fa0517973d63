"""Converts single Python values to the form used in cells, and rejects values that are not of the column's type.

Errors are TypeError, ValueError and OverflowError; `connectors.deephaven.server.tables.cells` turns them into one
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np

from silverfold.conf.unix_time import unix_micros

INTEGERS = frozenset({"Byte", "Short", "Int", "Long", "DateTime"})
FLOATS = frozenset({"Float", "Double"})


def elements(value: Any) -> Iterable[Any]:
    """Return the elements of an array or set."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{value!r} is not a list")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{value!r} is not an integer")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _nanoseconds(value: Any) -> int:
    if isinstance(value, datetime):
        return unix_micros(value) * 1000 + getattr(value, "nanosecond", 0)
    return _integer(value)


def _boolean(value: Any) -> int:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{value!r} is not a boolean")
    return int(value)


def _char(value: Any) -> int:
    if isinstance(value, str):
        return ord(value)
    return _integer(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    value.encode()  # raises ValueError for a lone surrogate
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        raise TypeError(f"{value!r} is not a finite Decimal")
    return value


def _texts(value: Any) -> tuple[str | None, ...]:
    return tuple(None if text is None else _text(text) for text in elements(value))


def _text_set(value: Any) -> tuple[str, ...]:
    return tuple(sorted({_text(text) for text in elements(value)}))


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(FLOATS, _number),
    "DateTime": _nanoseconds,
    "Boolean": _boolean,
    "Char": _char,
    "String": _text,
    "Decimal": _decimal,
    "StringArray": _texts,
    "StringSet": _text_set,
}
"""By column type name; `connectors.deephaven.server.tables.cells` converts arrays of fixed-width types itself."""
