"""Makes new values similar to given ones, for the rows of a simulated source.

Every value depends only on the random numbers and the given value. Values stay within their type and differ from its
null sentinel. Strings come from a neighbour row, so that a column keeps its set of values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np

from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape

_NULL_CHANCE = 0.02
_SECOND = 10**9
_HOUR = 3600 * _SECOND
_PRECISIONS = (_HOUR, 60 * _SECOND, _SECOND, 10**6, 10**3, 1)
_FIRST_MOMENT = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * _SECOND
_LONGEST_ARRAY = 6
_LARGEST = {"Byte": 2**7 - 1, "Short": 2**15 - 1, "Int": 2**31 - 1, "Long": 2**63 - 1}


def random_like(kind: ColumnType, value: Any, neighbour: Any, rng: Random) -> Any:
    """Return a value of ``kind`` similar to ``value``, or for text the ``neighbour`` itself; occasionally None.

    Values are those of `connectors.deephaven.server.tables.cells.to_python`; a given None means there is no model.
    """
    if rng.random() < _NULL_CHANCE:
        return None
    if kind.element is not None:
        return _varied_list(kind.element, value or neighbour or [], rng)
    return _varied_value(kind, value, neighbour, rng)


def _varied_value(kind: ColumnType, value: Any, neighbour: Any, rng: Random) -> Any:
    if kind.name in {"String", "Char"} and neighbour is not None:
        return neighbour
    return _NEW[kind.name](kind, value, rng)


def _varied_integer(kind: ColumnType, value: int | None, rng: Random) -> int:
    largest = _LARGEST[kind.name]
    return max(-largest, min(largest, (value or 0) + rng.randint(-20, 20)))  # null is one below


def _varied_moment(kind: ColumnType, value: int | None, rng: Random) -> int:
    """Return a date-time up to an hour later, as precise as the given one: whole hours stay whole hours."""
    moment = _FIRST_MOMENT if value is None else value
    precision = next(unit for unit in _PRECISIONS if moment % unit == 0)
    later = moment + precision * rng.randint(1, _HOUR // precision)
    return min(_LARGEST["Long"] // precision * precision, later)


def _varied_float(kind: ColumnType, value: float | None, rng: Random) -> float:
    base = 100.0 if value is None or not abs(value) < 1e30 else value
    varied = round(base * (1 + rng.uniform(-0.05, 0.05)) + rng.uniform(-1, 1), 2)
    return float(np.float32(varied)) if kind.name == "Float" else varied


def _varied_list(element: ColumnType, values: list[Any], rng: Random) -> list[Any]:
    prefix = values[: rng.randint(0, _LONGEST_ARRAY - 1)]
    model = prefix[-1] if prefix else None
    if element.shape is Shape.STRING:
        return [*prefix, f"new {rng.randrange(1000)}"]
    return [*prefix, _varied_value(element, model, model, rng)]


_NEW: dict[str, Callable[[ColumnType, Any, Random], Any]] = {
    "String": lambda kind, value, rng: f"new {rng.randrange(1000)}",
    "Char": lambda kind, value, rng: chr(rng.randrange(ord("A"), ord("Z") + 1)),
    "Boolean": lambda kind, value, rng: rng.random() < 0.5,
    "Decimal": lambda kind, value, rng: (value or Decimal("100.00")) + Decimal(rng.randint(-500, 500)).scaleb(-2),
    "DateTime": _varied_moment,
    **dict.fromkeys(("Float", "Double"), _varied_float),
    **dict.fromkeys(("Byte", "Short", "Int", "Long"), _varied_integer),
}
