"""Test values: for every type a list of nasty values, and any number of harmless ones.

Values are in the form that Arrow returns to Python: `Decimal` for decimals, aware `datetime` for times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

EDGE = Decimal("9999999999999999999999999999.9999999999")
"""The largest decimal(38, 10)."""


@dataclass(frozen=True)
class Domain:
    """The values of one type.

    Args:
        deephaven: Its Deephaven column type; None if there is none.
        ordinary: Returns a harmless value for each number from 0, distinct for distinct numbers.
        nasty: The nasty values.
        at_deephaven: The nasty values that Deephaven has; None if it has all of ``nasty``.
    """

    deephaven: str | None
    ordinary: Callable[[int], Any]
    nasty: Sequence[Any]
    at_deephaven: Sequence[Any] | None = None

    def key(self, number: int, *, nasty: bool, deephaven: bool) -> Any:
        """Return a value that is unique to the number."""
        if not nasty:
            return self.ordinary(number)
        values = self._nasty(deephaven=deephaven)
        return values[number] if number < len(values) else self.ordinary(number)

    def cell(self, rng: random.Random, *, nasty: bool, deephaven: bool) -> Any:
        """Return a random value, or None for NULL."""
        if rng.random() < 0.15:
            return None
        if nasty and rng.random() < 0.6:
            return rng.choice(self._nasty(deephaven=deephaven))
        return self.ordinary(rng.randrange(3))

    def _nasty(self, *, deephaven: bool) -> Sequence[Any]:
        return self.at_deephaven if deephaven and self.at_deephaven is not None else self.nasty


def _decimal(text: str) -> Decimal:
    return Decimal(text).quantize(Decimal("1E-10"), context=Context(prec=38))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_TEXTS = [
    "${x}",
    "${env:HOME}",
    "{source}",
    "",
    "'",
    "it's",
    "its",
    "\\",
    "\\'",
    "a\0b",
    "\u00e9",
    "e\u0301",
    "x" * 5000,
    "`",
    '"',
    "\n",
    "%s",
    ";--",
    "\U0001d11e",
    " ",
    "NULL",
    "31/12/2024",
]
_NEW_YORK = ["2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-11-03 05:30:00", "2024-11-03 06:30:00"]
"""Times that do not exist or occur twice in New York, read as local time or as UTC."""
_LONG_AGO = ["0001-01-01", "1600-02-29", "9999-12-31"]
_TIMES = [*map(_time, [*_NEW_YORK, "1969-12-31 23:59:59.999999"])]
_FAR_TIMES = [_time("0001-01-01"), _time("1600-02-29 12:00:00.000001"), _time("9999-12-31 23:59:59.999999")]
_FLOATS = [float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308]

DOMAINS = {
    "long": Domain("Long", lambda n: n, [-(2**63), 2**63 - 1, -1], [1 - 2**63, 2**63 - 1, -1]),
    "int": Domain("Int", lambda n: n, [-(2**31), 2**31 - 1, -1], [1 - 2**31, 2**31 - 1, -1]),
    "text": Domain("String", lambda n: f"t{n}", _TEXTS),
    "boolean": Domain("Boolean", lambda n: n % 2 == 0, [True, False]),
    "double": Domain("Double", lambda n: n / 4, _FLOATS),
    "decimal": Domain(
        "Decimal", lambda n: _decimal(f"{n / 10}"), [EDGE, EDGE.copy_negate(), _decimal("-1E-10"), _decimal("1E+27")]
    ),
    "date": Domain(
        None, lambda n: date(2024, 1, 1) + timedelta(days=n), [date.fromisoformat(text) for text in _LONG_AGO]
    ),
    "time": Domain(
        "DateTime",
        lambda n: _time("2024-06-01") + timedelta(hours=n, microseconds=n),
        [*_FAR_TIMES, *_TIMES],
        [_time("1700-01-01"), _time("2262-01-01"), *_TIMES],
    ),
    "binary": Domain(None, lambda n: b"b%d" % n, [b"", b"\0", b"\xff\xfe", b"'", b"${x}", b"x" * 5000]),
}
"""All types, by name. No value of a type is both nasty and harmless."""
