"""New values of each type of column, similar to those that are there.

Every value depends only on the random numbers and the given value, and fits the type.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from silverfold.connectors.tengi.protocol.feed.columns import ColumnType

_NULL_CHANCE: Final = 0.05
_MOST_ELEMENTS: Final = 5
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FIRST_DAY: Final = date(2020, 1, 1)
_LAST_MOMENT: Final = datetime(9999, 1, 1)


def random_like(kind: ColumnType, value: Any, chance: Random) -> Any:
    """Return a value similar to the given one; sometimes None. A given None allows any value."""
    return None if chance.random() < _NULL_CHANCE else new_value(kind, value, chance)


def new_value(kind: ColumnType, value: Any, chance: Random) -> Any:
    """Return a value similar to the given one, never None. A given None allows any value."""
    return _NEW[kind.name](kind, value, chance)


def next_key(kind: ColumnType, value: Any, highest: Any, chance: Random) -> Any:
    """Return a value that is probably unused in a key.

    Args:
        value: A value in use; None if there is none.
        highest: The highest value that is or was in use.
    """
    if kind.name in _BITS and highest is not None and highest < (1 << _BITS[kind.name] - 1) - 1:
        return highest + 1
    if kind.name == "string":
        return f"{(value or 'new').partition('~')[0]}~{chance.randrange(1 << 32):08x}"
    return new_value(kind, value, chance)


def _integer(kind: ColumnType, value: int | None, chance: Random) -> int:
    limit = 1 << _BITS[kind.name] - 1
    return max(-limit, min(limit - 1, (value or 0) + chance.choice((-1, 1)) * chance.randint(1, 20)))


def _number(kind: ColumnType, value: float | None, chance: Random) -> float:
    base = 100.0 if value is None or not abs(value) < 1e30 else value
    return round(base * chance.uniform(0.95, 1.05) + chance.uniform(-1, 1), 2)


def _decimal(kind: ColumnType, value: Decimal | None, chance: Random) -> Decimal:
    digits = tuple(map(int, str(chance.randrange(10 ** min(kind.precision, 6)))))
    return Decimal((chance.randrange(2), digits, -kind.scale))


def _text(kind: ColumnType, value: str | None, chance: Random) -> str:
    stem = (value or "text").rsplit(" ", 1)[0][:100]
    return f"{stem} {chance.choice(('amber', 'Übung', 'naïve', '東', '🙂', ''))}{chance.randrange(1_000)}"


def _moment(kind: ColumnType, value: datetime | None, chance: Random) -> datetime:
    base = datetime(2020, 1, 1) if value is None else value.replace(tzinfo=None)
    later = min(base, _LAST_MOMENT) + timedelta(microseconds=chance.randint(1, 3_600_000_000))
    return later.replace(tzinfo=UTC) if kind.name == "timestamp" else later


def _list(kind: ColumnType, value: list[Any] | None, chance: Random) -> list[Any]:
    first = (value or [])[: chance.randint(0, _MOST_ELEMENTS - 1)]
    return [*first, random_like(kind.fields[0][1], first[-1] if first else None, chance)]


def _map(kind: ColumnType, value: dict[str, Any] | None, chance: Random) -> dict[str, Any]:
    first = list((value or {}).items())[: chance.randint(0, _MOST_ELEMENTS - 1)]
    return {**dict(first), f"k{chance.randrange(10)}": new_value(kind.fields[0][1], None, chance)}


def _struct(kind: ColumnType, value: dict[str, Any] | None, chance: Random) -> dict[str, Any]:
    return {name: random_like(each, (value or {}).get(name), chance) for name, each in kind.fields}


_NEW: Final[dict[str, Callable[[ColumnType, Any, Random], Any]]] = {
    **dict.fromkeys(_BITS, _integer),
    **dict.fromkeys(("float", "double"), _number),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _moment),
    "boolean": lambda kind, value, chance: chance.random() < 0.5,
    "string": _text,
    "binary": lambda kind, value, chance: chance.randbytes(chance.randrange(9)),
    "date": lambda kind, value, chance: _FIRST_DAY + timedelta(chance.randrange(3_000)),
    "decimal": _decimal,
    "array": _list,
    "map": _map,
    "struct": _struct,
}
