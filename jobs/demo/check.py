"""Compares a silver table with the source's own rows, cell by cell.

The two sides are read independently: the source's rows from its memory, silver's through delta-rs, which shares no code
with the Spark that wrote them. Nothing that decoded, folded or merged is used here. Cells are equal if their type can
tell no difference: NaN equals NaN, null equals only null, moments must agree to the nanosecond, decimals stored as text
in every digit, and sets are unordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape
from silverfold.connectors.deephaven.server.tables.live_table import ROW_KEY
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import naming_the_store, open_table

Row: TypeAlias = Mapping[str, Any]

SHOWN = 10
"""Maximum number of differences recorded for display."""

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Difference(NamedTuple):
    """One differing cell, or a row that only one side has."""

    row_key: int | None
    column: str | None
    """None for an entire row."""
    source: Any
    """None if ``column`` is None and the source has no such row."""
    silver: Any


@dataclass
class Comparison:
    """Result of comparing two tables.

    Args:
        rows: Number of rows that both sides have.
        cells: Number of compared cells.
        different: Number of differing cells and of rows on one side only; the first `SHOWN` are in ``first``.
    """

    rows: int = 0
    cells: int = 0
    different: int = 0
    first: list[Difference] = field(default_factory=list)

    def add(self, difference: Difference) -> None:
        """Count one difference."""
        self.different += 1
        if len(self.first) < SHOWN:
            self.first.append(difference)


def compare(
    columns: Mapping[str, ColumnType], source: Mapping[int, Row], silver: Iterable[tuple[int | None, Row]]
) -> Comparison:
    """Return the differences between the source's rows and silver's.

    Args:
        columns: Columns of the source and their types.
        source: Row key → row, as returned by `connectors.deephaven.server.tables.live_table.LiveTable.rows`.
        silver: Row key and row, in any order; values as converted to Python by Arrow. A duplicate key counts as an
            extra row.
    """
    found, missing = Comparison(), dict(source)
    for row_key, row in silver:
        expected = missing.pop(row_key, None) if row_key is not None else None
        if expected is None:
            found.add(Difference(row_key, None, None, row))
            continue
        found.rows += 1
        found.cells += len(columns)
        for name in _differing(columns, expected, row):
            found.add(Difference(row_key, name, expected[name], row.get(name)))
    for row_key, expected in missing.items():
        found.add(Difference(row_key, None, expected, None))
    return found


def same(kind: ColumnType, source: Any, silver: Any) -> bool:
    """Return whether silver's value equals the source's value of this type."""
    if source is None or silver is None:
        return source is silver
    if kind.element is not None:
        return isinstance(silver, list) and _same_elements(kind, source, silver)
    return _SAME.get(kind.name, _identical)(source, silver)


def read_silver(silver: Place, columns: Sequence[str]) -> Iterator[tuple[int | None, Row]]:
    """Yield every row of a silver table with its row key, in no particular order; none if there is no table.

    Holds one batch of some thousand rows in memory at a time. Raises StoreUnavailable.
    """
    for batch in _scan(silver, [ROW_KEY, *columns]):
        for row in batch.to_pylist():
            yield row.pop(ROW_KEY), row


def has_row(silver: Place, row_key: int) -> bool:
    """Return whether a silver table has the row. Raises StoreUnavailable."""
    return any(batch.num_rows for batch in _scan(silver, [ROW_KEY], f"{ROW_KEY} = {row_key}"))


def _scan(silver: Place, columns: list[str], where: str | None = None) -> Iterator[pa.RecordBatch]:
    table = open_table(silver)
    if table is not None:
        with naming_the_store(silver):
            yield from pa.RecordBatchReader.from_stream(table.scan(columns=columns, predicate=where))


def _differing(columns: Mapping[str, ColumnType], source: Row, silver: Row) -> Iterator[str]:
    return (name for name, kind in columns.items() if not same(kind, source[name], silver.get(name)))


def _same_elements(kind: ColumnType, source: Sequence[Any], silver: Sequence[Any]) -> bool:
    assert kind.element is not None
    ordered = sorted(silver, key=lambda text: text or "") if kind.shape is Shape.STRING_SET else silver
    return len(source) == len(ordered) and all(map(same, [kind.element] * len(source), source, ordered))


def _identical(source: Any, silver: Any) -> bool:
    """Compare values of one Python type: 1 is not True, and not 1.0."""
    both_nan = source != source and silver != silver  # noqa: PLR0124 - the test for NaN
    return type(source) is type(silver) and (both_nan or source == silver)


def _same_moment(source: int, silver: int | datetime) -> bool:
    nanoseconds = (silver - _EPOCH) // _MICROSECOND * 1000 if isinstance(silver, datetime) else silver
    return _identical(source, nanoseconds)


def _same_decimal(source: Decimal, silver: Decimal | str) -> bool:
    return _identical(str(source) if isinstance(silver, str) else source, silver)


_SAME: Mapping[str, Callable[[Any, Any], bool]] = {"DateTime": _same_moment, "Decimal": _same_decimal}
