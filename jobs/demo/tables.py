"""The two tables of the demo: together they have every column type of the transport, with nulls and extreme values.

``trades`` has all scalar types and is keyed by the source's row keys. ``baskets`` has all array types, a decimal of
fixed scale, and a key column; for modified rows it sends only the columns written to. Moments are whole microseconds,
the precision of Spark's timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.random_values import random_like
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

_OPENING = 1_704_186_000_000_001_000  # 2024-01-02 09:00 UTC and a microsecond: values are modelled on its precision
_LAST_MOMENT = 4_102_444_799_999_999_000  # 2099-12-31 23:59:59.999999 UTC
_WORDS = ("alpha", "beta", "gamma", "straße", "日本", "🙂")


@dataclass(frozen=True)
class Column:
    """One column: its type, edge values of the type, and values that those of all other rows are modelled on."""

    type: str
    edges: Sequence[Any]
    usual: Sequence[Any]


@dataclass(frozen=True)
class DemoTable:
    """Definition of one table of the demo.

    Args:
        source: Name at the source.
        keys: Key columns, which number the rows; empty if the source's row key identifies them.
    """

    source: str
    columns: Mapping[str, Column]
    keys: tuple[str, ...] = ()
    partial_columns: bool = False

    def filled(self, rows: int, rng: Random) -> LiveTable:
        """Return a live table with ``rows`` rows; the first ones hold the edge values of the types."""
        kinds = {name: column.type for name, column in self.columns.items()}
        table = LiveTable(kinds, partial_columns=self.partial_columns)
        with table.update() as update:
            update.add_columns({name: self._values(name, rows, rng) for name in self.columns}, count=rows)
        return table

    def _values(self, name: str, rows: int, rng: Random) -> Sequence[Any]:
        if name in self.keys:
            return range(1, rows + 1)
        column = self.columns[name]
        models = [(rng.choice(column.usual), rng.choice(column.usual)) for _ in range(rows - len(column.edges))]
        return [*column.edges, *(random_like(TYPES[column.type], *model, rng) for model in models)][:rows]


def _integer(name: str, bits: int, *usual: int) -> Column:
    largest = 2 ** (bits - 1) - 1  # -largest - 1 is the null value
    return Column(name, (largest, -largest, None, 0), usual)


def _list_of(element: Column) -> Column:
    return Column(
        f"{element.type}Array", (None, [], [None], list(element.edges)), (list(element.edges), list(element.usual))
    )


_BYTE, _SHORT = _integer("Byte", 8, 1, 9), _integer("Short", 16, 100, 500)
_INT, _LONG = _integer("Int", 32, 2_000, 100_000), _integer("Long", 64, 10**12)
_BOOLEAN = Column("Boolean", (True, None, False), (True, False))
_CHAR = Column("Char", ("\uffff", "\0", None, "ß"), ("B", "S", "X"))
_FLOAT = Column("Float", (math.nan, math.inf, None, 1.401298464324817e-45), (0.5, -100.0))
_DOUBLE = Column("Double", (math.nan, -math.inf, None, 5e-324, 1.7976931348623155e308), (20.0, 150.0, 480.0))
_DATE_TIME = Column("DateTime", (None, 0, -1_000, _LAST_MOMENT), (_OPENING,))
_STRING = Column("String", ("", None, "🙂", "line\nbreak, 'quote'", "NULL"), _WORDS)

TABLES: Mapping[str, DemoTable] = {
    "trades": DemoTable(
        source="Trades",
        columns={
            "Symbol": Column("String", ("", None, "🙂", 'it\'s "x"\n'), ("AAPL", "AMD", "IBM", "INTC", "KO", "NVDA")),
            "Side": _CHAR,
            "Venue": _BYTE,
            "Lot": _SHORT,
            "Size": _INT,
            "OrderId": _LONG,
            "Ratio": _FLOAT,
            "Price": _DOUBLE,
            "Amount": Column(
                "Decimal",
                (Decimal("-99999999999999999999999999.9999999999999999"), None, Decimal("0.000"), Decimal("1E+3")),
                (Decimal("250.00"), Decimal(-1_000_000)),
            ),
            "IsAuction": _BOOLEAN,
            "At": _DATE_TIME,
        },
    ),
    "baskets": DemoTable(
        source="Baskets",
        columns={
            "Id": _LONG,
            "Fee": Column(
                "Decimal",
                (Decimal("99999999999999999999999999.99"), None, Decimal("0.00"), Decimal(-7)),
                (Decimal("12.50"),),
            ),
            "Tags": Column("StringSet", (None, [], [""], ["z", "a", "🙂", "日本"]), ([], _WORDS[:3], _WORDS[3:])),
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
        keys=("Id",),
        partial_columns=True,
    ),
}
