"""The two tables of the demo: together they have every column type of the transport, with nulls and extreme values.

``trades`` has all scalar types and is keyed by the source's row keys. ``baskets`` has all array types, a decimal of
fixed scale, and a key column; for modified rows it sends only the columns written to. Moments are whole microseconds,
the precision of Spark's timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

Value: TypeAlias = Callable[[Random], Any]

NULL_CHANCE = 0.04
_MICROSECOND, _DAY = 1_000, 86_400 * 10**9
_OPENING = 1_704_186_000 * 10**9  # 2024-01-02 09:00 UTC
_LAST_MOMENT = 4_102_444_799_999_999 * _MICROSECOND  # 2099-12-31 23:59:59.999999 UTC
_SYMBOLS = ("AAPL", "AMD", "IBM", "INTC", "KO", "MSFT", "NVDA", "PEP")
_WORDS = ("alpha", "beta", "gamma", "delta", "straße", "日本", "🙂", "")


@dataclass(frozen=True)
class Column:
    """One column: its type, a generator of usual values, and edge values of the type."""

    type: str
    usual: Value
    edges: tuple[Any, ...] = ()


@dataclass(frozen=True)
class DemoTable:
    """Definition of one table of the demo.

    Args:
        source: Name at the source.
        numbered: The key column; None if the source's row key identifies rows.
        settings: Lines of TOML for the table's settings besides source, mode and keys.
    """

    source: str
    columns: Mapping[str, Column]
    numbered: str | None = None
    partial_columns: bool = False
    settings: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns for the settings."""
        return () if self.numbered is None else (self.numbered,)

    def filled(self, rows: int, rng: Random) -> LiveTable:
        """Return a live table with ``rows`` rows; the first ones hold the edge values of the types."""
        kinds = {name: column.type for name, column in self.columns.items()}
        table = LiveTable(kinds, partial_columns=self.partial_columns)
        with table.update() as update:
            update.add_columns({name: self._values(name, rows, rng) for name in self.columns}, count=rows)
        return table

    def _values(self, name: str, rows: int, rng: Random) -> Sequence[Any]:
        if name == self.numbered:
            return range(1, rows + 1)
        column = self.columns[name]
        usual = (None if rng.random() < NULL_CHANCE else column.usual(rng) for _ in range(rows - len(column.edges)))
        return [*column.edges, *usual][:rows]


def _integer(bits: int, usual: int) -> Column:
    names = {8: "Byte", 16: "Short", 32: "Int", 64: "Long"}
    largest = 2 ** (bits - 1) - 1  # -largest - 1 is the null value
    return Column(names[bits], lambda rng: rng.randint(-usual, usual), (largest, -largest, None, 0))


def _list_of(element: Column) -> Column:
    """Return an array column: up to five elements, some of them null."""

    def usual(rng: Random) -> list[Any]:
        made = (None if rng.random() < NULL_CHANCE else element.usual(rng) for _ in range(rng.randint(0, 5)))
        return list(made)

    return Column(f"{element.type}Array", usual, (None, [], [None], list(element.edges)))


def _moment(rng: Random) -> int:
    return _OPENING + rng.randrange(_DAY // _MICROSECOND) * _MICROSECOND


def _price(rng: Random) -> float:
    return round(rng.uniform(1, 500), 2)


_BYTE, _SHORT, _INT, _LONG = _integer(8, 9), _integer(16, 500), _integer(32, 100_000), _integer(64, 10**12)
_BOOLEAN = Column("Boolean", lambda rng: rng.random() < 0.5, (True, None, False))
_CHAR = Column("Char", lambda rng: rng.choice("BSX"), ("\uffff", "\0", None, "ß"))
_FLOAT = Column("Float", lambda rng: rng.randint(-800, 800) / 8, (math.nan, math.inf, None, 1.401298464324817e-45))
_DOUBLE = Column("Double", _price, (math.nan, -math.inf, None, 5e-324, 1.7976931348623155e308))
_DATE_TIME = Column("DateTime", _moment, (None, 0, -1 * _MICROSECOND, _LAST_MOMENT))
_STRING = Column("String", lambda rng: rng.choice(_WORDS), ("", None, "🙂", "line\nbreak, 'quote'", "NULL"))
_AMOUNT = Column(
    "Decimal",
    lambda rng: Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2),
    (Decimal("-99999999999999999999999999.9999999999999999"), None, Decimal("0.000"), Decimal("1E+3")),
)
_FEE = Column(
    "Decimal",
    lambda rng: Decimal(rng.randint(-10_000, 10_000)).scaleb(-2),
    (Decimal("99999999999999999999999999.99"), None, Decimal("0.00"), Decimal(-7)),
)
_TAGS = Column(
    "StringSet", lambda rng: rng.sample(_WORDS, rng.randint(0, 3)), (None, [], [""], ["z", "a", "🙂", "日本"])
)

TABLES: Mapping[str, DemoTable] = {
    "trades": DemoTable(
        source="Trades",
        columns={
            "Symbol": Column("String", lambda rng: rng.choice(_SYMBOLS), ("", None, "🙂", 'it\'s "x"\n')),
            "Side": _CHAR,
            "Venue": _BYTE,
            "Lot": _SHORT,
            "Size": _INT,
            "OrderId": _LONG,
            "Ratio": _FLOAT,
            "Price": _DOUBLE,
            "Amount": _AMOUNT,
            "IsAuction": _BOOLEAN,
            "At": _DATE_TIME,
        },
    ),
    "baskets": DemoTable(
        source="Baskets",
        columns={
            "Id": _LONG,
            "Fee": _FEE,
            "Tags": _TAGS,
            "Legs": _list_of(_STRING),
            "Sides": _list_of(_CHAR),
            "Flags": _list_of(_BOOLEAN),
            "Venues": _list_of(_BYTE),
            "Lots": _list_of(_SHORT),
            "Sizes": _list_of(_INT),
            "Orders": _list_of(_LONG),
            "Ratios": _list_of(_FLOAT),
            "Prices": _list_of(_DOUBLE),
            "Moments": _list_of(_DATE_TIME),
        },
        numbered="Id",
        partial_columns=True,
        settings=("decimals = { Fee = 2 }  # decimal(38, 2); without it, text",),
    ),
}
