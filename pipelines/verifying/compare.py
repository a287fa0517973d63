"""Compare rows in Python with an Arrow table: by counts, keys, and a hash for each column and range of keys.

Both sides are sorted by key and divided into ranges of `RANGE_ROWS` expected rows. Ranges whose keys and hashes agree
are equal; cells are compared only in the others. A cell differs only if its values do: NaN equals NaN, null equals only
null, and values of different Python types differ.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal, localcontext
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from silverfold.connectors.common.key_span import Key, sortable

Row: TypeAlias = Mapping[str, Any]

RANGE_ROWS: Final = 65_536
_MOST_DIGITS: Final = 100

SHOWN: Final = 10
"""Number of differences to show, and of ranges."""


class Cell(NamedTuple):
    """One cell that differs, or a row that exists on one side only."""

    key: Key
    column: str | None
    """None: the whole row, which is `None` on the side that lacks it."""
    expected: Any
    found: Any


class KeyRange(NamedTuple):
    """A range of keys in which something differs; both ends inclusive, in key order."""

    first: Key
    last: Key
    expected_rows: int
    found_rows: int
    columns: tuple[str, ...]
    """Columns whose hashes differ."""


@dataclass
class Comparison:
    """The result of a comparison.

    Args:
        missing: Number of expected rows that were not found.
        extra: Number of rows found that were not expected; a duplicate key counts as one extra row.
        cells: Number of differing cells in rows that both sides have.
        ranges: The first ranges that differ.
        first: The first differences, by key.
    """

    expected_rows: int
    found_rows: int
    missing: int = 0
    extra: int = 0
    cells: int = 0
    ranges: list[KeyRange] = field(default_factory=list)
    first: list[Cell] = field(default_factory=list)

    def plus(self, later: Comparison) -> Comparison:
        """Return the combined result for these keys and for later ones."""
        return Comparison(
            self.expected_rows + later.expected_rows,
            self.found_rows + later.found_rows,
            self.missing + later.missing,
            self.extra + later.extra,
            self.cells + later.cells,
            [*self.ranges, *later.ranges][:SHOWN],
            [*self.first, *later.first][:SHOWN],
        )

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.cells)


def compare(keys: Sequence[str], columns: Sequence[str], expected: Sequence[Row], found: pa.Table) -> Comparison:
    """Return the differences.

    Args:
        keys: Columns that identify a row.
        columns: Columns to compare, keys included. Columns missing from a row or the table are null there. Columns only
            in ``found`` must be null throughout.
        found: In any order.
    """
    left, right = _Expected(keys, expected), _Found(keys, found)
    names = [*columns, *(name for name in found.column_names if name not in columns)]
    result = Comparison(len(left.keys), len(right.keys))
    for mine, theirs in _ranges(left.keys, right.keys):
        differing = [name for name in names if _hash(left.values(name, mine)) != _hash(right.values(name, theirs))]
        same_keys = left.keys[mine] == right.keys[theirs]
        if differing or not same_keys:
            compared_names = differing if same_keys else names
            _compare_range(result, left, right, (mine, theirs), differing=differing, names=compared_names)
    return result


def as_stored(rows: Sequence[Row], schema: pa.Schema) -> list[Row]:
    """Return the rows converted to the types of a schema where that is exact, without null fields it lacks.

    A column keeps its former width, and gets one newly set only with a later cut. Likewise a struct lacks its new
    fields until the next cut.
    """
    conversions = {field.name: _CONVERSIONS[kind] for field in schema for kind in _CONVERSIONS if kind(field.type)}
    scales = {field.name: field.type.scale for field in schema if pa.types.is_decimal(field.type)}
    nested = {field.name: field.type for field in schema if pa.types.is_nested(field.type)}

    def as_column(name: str, value: Any) -> Any:
        if name in nested:
            return _without_lacking(value, nested[name])
        return conversions[name](value, scales.get(name, 0)) if name in conversions else value

    return [{name: as_column(name, value) for name, value in row.items()} for row in rows]


def _without_lacking(value: Any, kind: pa.DataType) -> Any:
    """Return a value without null fields that its column lacks."""
    if isinstance(value, list) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return [_without_lacking(each, kind.value_type) for each in value]
    if isinstance(value, dict) and pa.types.is_struct(kind):
        have = {field.name: field.type for field in kind}
        present = {name: each for name, each in value.items() if name in have or each is not None}
        return {name: _without_lacking(each, have[name]) if name in have else each for name, each in present.items()}
    return value


def _as_decimal(value: Any, scale: int) -> Any:
    if type(value) not in (int, Decimal):
        return value
    with localcontext(prec=_MOST_DIGITS):
        scaled = Decimal(value).quantize(Decimal(1).scaleb(-scale))
    return scaled if scaled == value else value


def _as_integer(value: Any, _scale: int) -> Any:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


def _as_double(value: Any, _scale: int) -> Any:
    return float(value) if type(value) is int and abs(value) < 1 << 31 else value


def _as_timestamp(value: Any, _scale: int) -> Any:
    return datetime.combine(value, time()) if type(value) is date else value


_CONVERSIONS: Final[Mapping[Callable[[pa.DataType], bool], Callable[[Any, int], Any]]] = {
    pa.types.is_decimal: _as_decimal,
    pa.types.is_integer: _as_integer,
    pa.types.is_float64: _as_double,
    pa.types.is_timestamp: _as_timestamp,
}


class _Side:
    """Rows in key order."""

    keys: list[Any]
    """Sortable keys: null comes before any value."""

    def values(self, name: str, rows: slice) -> list[Any]:
        raise NotImplementedError

    def at(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.values(name, slice(index, index + 1))[0] for name in names}


class _Expected(_Side):
    def __init__(self, keys: Sequence[str], rows: Sequence[Row]) -> None:
        self._rows = sorted(rows, key=lambda row: sortable([row.get(name) for name in keys]))
        self.keys = [sortable([row.get(name) for name in keys]) for row in self._rows]

    def values(self, name: str, rows: slice) -> list[Any]:
        return [row.get(name) for row in self._rows[rows]]


class _Found(_Side):
    def __init__(self, keys: Sequence[str], table: pa.Table) -> None:
        named = [table[name].to_pylist() if name in table.column_names else [None] * table.num_rows for name in keys]
        unsorted = [sortable(key) for key in zip(*named, strict=True)]
        order = sorted(range(len(unsorted)), key=unsorted.__getitem__)
        self._table = table.take(pa.array(order, pa.int64()))
        self.keys = [unsorted[index] for index in order]

    def values(self, name: str, rows: slice) -> list[Any]:
        if name not in self._table.column_names:
            return [None] * len(range(*rows.indices(len(self.keys))))
        found: list[Any] = self._table[name].slice(rows.start, rows.stop - rows.start).to_pylist()
        return found


def _original_key(key: Any) -> Key:
    """Return the original of a `sortable` key."""
    return tuple({0: None, 2: math.nan}.get(rank, value) for rank, value in key)


def _ranges(expected: Sequence[Any], found: Sequence[Any]) -> Iterator[tuple[slice, slice]]:
    """Divide both sides at the same keys."""
    starts = [0, *range(RANGE_ROWS, len(expected), RANGE_ROWS)]
    theirs = [0, *(bisect_left(found, expected[start]) for start in starts[1:])]
    ends, their_ends = [*starts[1:], len(expected)], [*theirs[1:], len(found)]
    for start, end, first, last in zip(starts, ends, theirs, their_ends, strict=True):
        yield slice(start, end), slice(first, last)


def _hash(values: Sequence[Any]) -> bytes:
    return hashlib.sha256(repr(values).encode()).digest()


def _compare_range(
    result: Comparison,
    left: _Side,
    right: _Side,
    rows: tuple[slice, slice],
    *,
    differing: Sequence[str],
    names: Sequence[str],
) -> None:
    """Count the differences in one range, cell by cell; record the first.

    Args:
        differing: Columns whose hashes differ.
        names: Columns to compare. Where keys differ, equal hashes do not imply equal cells.
    """
    before = (result.missing, result.extra, result.cells)
    mine, theirs = rows[0].start, rows[1].start
    while mine < rows[0].stop or theirs < rows[1].stop:
        side = _side(
            left.keys[mine] if mine < rows[0].stop else None, right.keys[theirs] if theirs < rows[1].stop else None
        )
        if side < 0:
            result.missing += 1
            _note(result, Cell(_original_key(left.keys[mine]), None, left.at(mine, differing), None))
            mine += 1
        elif side > 0:
            result.extra += 1
            _note(result, Cell(_original_key(right.keys[theirs]), None, None, right.at(theirs, differing)))
            theirs += 1
        else:
            _compare_cells(result, left.keys[mine], left.at(mine, names), right.at(theirs, names))
            mine, theirs = mine + 1, theirs + 1
    if before != (result.missing, result.extra, result.cells) and len(result.ranges) < SHOWN:
        result.ranges.append(_key_range(left, right, rows, differing))


def _side(mine: Any, theirs: Any) -> int:
    """Return which side has the next key: -1 ours only, 1 theirs only, 0 both. None marks a side at its end."""
    if mine is None or theirs is None:
        return 1 if mine is None else -1
    return int(mine > theirs) - int(mine < theirs)


def _compare_cells(result: Comparison, key: Any, expected: Row, found: Row) -> None:
    for name, value in expected.items():
        if not same(value, found[name]):
            result.cells += 1
            _note(result, Cell(_original_key(key), name, value, found[name]))


def _note(result: Comparison, cell: Cell) -> None:
    if len(result.first) < SHOWN:
        result.first.append(cell)


def _key_range(left: _Side, right: _Side, rows: tuple[slice, slice], differing: Sequence[str]) -> KeyRange:
    mine, theirs = left.keys[rows[0]], right.keys[rows[1]]
    ends = [*mine[:1], *mine[-1:], *theirs[:1], *theirs[-1:]]
    return KeyRange(_original_key(min(ends)), _original_key(max(ends)), len(mine), len(theirs), tuple(differing))


def same(expected: Any, found: Any) -> bool:
    """Return whether two values are the same: 1 is neither True nor 1.0. A map's entries, in a list, have no order."""
    if isinstance(expected, list | tuple) and type(expected) is type(found):
        if all(isinstance(each, tuple) for each in (*expected, *found)):
            expected, found = (sorted(each, key=lambda entry: repr(entry[0])) for each in (expected, found))
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(same(expected[name], found[name]) for name in expected)
    both_nan = expected != expected and found != found  # noqa: PLR0124 - NaN differs from itself
    return type(expected) is type(found) and bool(both_nan or expected == found)


def shown(value: Any) -> Any:
    """Return a value in JSON form."""
    if isinstance(value, Mapping):
        return {name: shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    is_json = value is None or isinstance(value, bool | int | str)
    return value if is_json or (isinstance(value, float) and math.isfinite(value)) else str(value)
