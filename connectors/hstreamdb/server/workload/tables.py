"""Tables that keep changing: the rows of files, then seeded inserts, updates, deletes and moves of keys.

Changes depend only on the seed and the rows. Two runs with one seed make the same changes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.simulation import read_table_file
from silverfold.connectors.hstreamdb.protocol.records import Json
from silverfold.connectors.hstreamdb.server.workload.layouts import Row, RowChange

_Found = TypeVar("_Found", date, datetime)

_FEWEST, _MOST = 1, 10
_NULL_CHANCE: Final = 0.05
_NUMBERS: Final = (int, float)
_KEYS: Final = (int, float, str, date, Decimal)
_NUMBER: Final = re.compile(r"(-?\d{1,38})(?:\.\d+)?", re.ASCII)
MAX_ROW_BYTES: Final = 400_000
"""Of a row as JSON: a record, of at most 1 MiB, may have it before and after a change."""


def load_rows(file: Path) -> list[Row]:
    """Return the rows of a file (`connectors.common.simulation`).

    Numbers, booleans, lists and structs are those of JSON, bytes are base64, all else is text. Times without a zone are
    taken as UTC.

    Raises:
        ConfigError: The file cannot be read, or has no rows; some rows have the same key, or one that is no number,
            text, date or time stamp; a time is beyond the year 9999; a number is NaN or infinite, which JSON cannot
            have; or a row is too large for a record.
    """
    table = read_table_file(file)
    key = table.column_names[0]
    try:
        found = table.to_pylist()
    except (OverflowError, ValueError) as error:
        raise ConfigError(
            file=str(file), key="table", found=str(error), allowed="times of the years 1 to 9999, in microseconds"
        ) from error
    rows: list[Row] = [{name: _json(value) for name, value in row.items()} for row in found]
    keys = [row[key] for row in found]
    is_key = all(isinstance(each, _KEYS) and not isinstance(each, bool) for each in keys)
    if not rows or not is_key or len({row[key] for row in rows}) < len(rows):
        allowed = (
            f"rows, each with a value of its own in the first column, {key}: a number, text, date or time, no boolean"
        )
        raise ConfigError(file=str(file), key="table", found=f"{len(rows)} rows", allowed=allowed)
    if sum(_longest(file, name, rows) for name in rows[0]) > MAX_ROW_BYTES:
        allowed = (
            f"at most {MAX_ROW_BYTES} bytes: the longest values of all columns may meet in a row, twice in a record"
        )
        raise ConfigError(file=str(file), key="table", found="rows that are too large", allowed=allowed)
    return rows


def _longest(file: Path, name: str, rows: Sequence[Row]) -> int:
    """Return the most bytes that a column takes in a record."""
    try:
        return max(len(json.dumps({name: row[name]}, ensure_ascii=False, allow_nan=False).encode()) for row in rows)
    except ValueError as error:
        found, allowed = "NaN or an infinite number", "numbers that JSON has"
        raise ConfigError(file=str(file), key=name, found=found, allowed=allowed) from error


class ChangingTable:
    """Rows of a table, by the value of its first column.

    Args:
        can_delete: Whether rows are deleted, and keys moved.
    """

    def __init__(self, rows: Sequence[Row], seed: int | str, *, can_delete: bool = True) -> None:
        self._columns = list(rows[0])
        self.key = self._columns[0]
        self.rows: dict[Json, Row] = {row[self.key]: row for row in rows}
        self._order = list(self.rows)
        self._chance = Random(seed)  # noqa: S311 - repeatable, not secret
        self._can_delete = can_delete
        self._new_keys = _new_keys(self._order)

    def snapshot(self) -> list[RowChange]:
        """Return the rows there are."""
        return [RowChange(None, row, is_snapshot=True) for row in self.rows.values()]

    def change(self) -> list[RowChange]:
        """Change some rows; return the changes in order. A key that moves is a delete and an insert."""
        changes: list[RowChange] = []
        for _ in range(self._chance.randint(_FEWEST, _MOST)):
            kinds, weights = ("insert", "update", "delete", "move"), (30, 40, 25, 5)
            (kind,) = self._chance.choices(kinds, weights if self._can_delete else (30, 70, 0, 0))
            if kind in {"delete", "move"} and len(self._order) > 1:
                at = self._chance.randrange(len(self._order))
                self._order[at], self._order[-1] = self._order[-1], self._order[at]
                old = self.rows.pop(self._order.pop())
                changes.append(RowChange(old, None))
                if kind == "move":
                    changes.append(self._write({**old, self.key: next(self._new_keys)}))
            elif kind == "update":
                changes.append(self._write(self._varied(self._any_row(), self._chance.randint(1, 3))))
            else:
                row = self._varied(self._any_row(), len(self._columns))
                changes.append(self._write({**row, self.key: next(self._new_keys)}))
        return changes

    def _any_row(self) -> Row:
        return self.rows[self._chance.choice(self._order)]

    def _write(self, row: Row) -> RowChange:
        key = row[self.key]
        before = self.rows.get(key)
        if before is None:
            self._order.append(key)
        self.rows[key] = row
        return RowChange(before, row)

    def _varied(self, row: Row, columns: int) -> Row:
        others = self._columns[1:]
        chosen = self._chance.sample(others, min(columns, len(others)))
        return {**row, **{name: self._value(name, row[name]) for name in chosen}}

    def _value(self, name: str, value: Json) -> Json:
        """Return a number near a value, or for anything else the value of another row; sometimes None."""
        if self._chance.random() < _NULL_CHANCE:
            return None
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self._any_row()[name]
        varied = value + self._chance.choice((-1, 1)) * self._chance.randint(1, 20)
        return round(varied, 2) if isinstance(value, float) else varied


def _new_keys(keys: Sequence[Json]) -> Iterator[Json]:
    """Yield keys above all there are, of their kind: numbers, or texts of numbers, days or times; else any texts."""
    first, texts = keys[0], [each for each in keys if isinstance(each, str)]
    numbers = [number for each in keys if (number := _whole(each)) is not None]
    if len(numbers) == len(keys):
        as_first = float if isinstance(first, float) else str if isinstance(first, str) else int
        yield from (as_first(number) for number in count(max(numbers) + 1))
    elif len(texts) == len(keys) and (days := _all_read(date.fromisoformat, texts)):
        yield from ((max(days) + timedelta(days=each)).isoformat() for each in count(1))
    elif len(texts) == len(keys) and (times := _all_read(datetime.fromisoformat, texts)):
        yield from (_json(max(times) + timedelta(seconds=each)) for each in count(1))
    else:
        yield from (f"new-{number}" for number in count(max(numbers, default=0) + 1))


def _all_read(read: Callable[[str], _Found], texts: Sequence[str]) -> list[_Found]:
    """Return what texts say; nothing if one cannot be read."""
    try:
        return [read(each) for each in texts]
    except ValueError:
        return []


def _whole(key: Json) -> int | None:
    """Return the whole part of a number, or of a text that is one; None for any other key."""
    if isinstance(key, _NUMBERS):
        return int(key)
    found = _NUMBER.fullmatch(key) if isinstance(key, str) else None
    return None if found is None else int(found[1])


def _json(value: object) -> Json:
    match value:
        case datetime():
            return value.isoformat() + ("Z" if value.tzinfo is None else "")
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): _json(each) for name, each in value.items()}
        case list() | tuple():
            return [_json(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
