"""Changes in raw records of the layouts ``unwrapped`` and ``row``, column by column: all records of a part at once.

msgspec reads them into structs made for the table: three times as fast as into dictionaries, which the garbage
collector tracks besides. If one record has another layout or an error, all of them are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import Bools
from silverfold.connectors.hstreamdb.decoder.column_changes import ColumnChanges
from silverfold.connectors.hstreamdb.decoder.kinds import DeclaredColumn
from silverfold.connectors.hstreamdb.decoder.layouts import RecordReader
from silverfold.connectors.hstreamdb.decoder.values import NOT_SENT, exact_decimal

_MAX_TEXT: Final = 4_000
"""Most bytes of a text. A longer one may have a number of more digits than Python reads, which is then an error."""


class _DiffersError(Exception):
    """The records have to be read one by one."""


class _Struct(NamedTuple):
    """A msgspec struct of some members, absent ones UNSET."""

    type: type[msgspec.Struct]
    cells: Mapping[str, Callable[[Any], Any]]
    """By member, what returns it."""

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> _Struct:
        names = {f"field{at}": name for at, name in enumerate(members)}
        fields = [(field, members[name], UNSET) for field, name in names.items()]
        made = msgspec.defstruct("Members", fields, rename=names, gc=False)
        return cls(made, {name: attrgetter(field) for field, name in names.items()})


@dataclass(frozen=True)
class TextColumns:
    """Reads JSON texts for one table."""

    records: RecordReader

    def read(self, payloads: Sequence[bytes]) -> ColumnChanges | None:
        """Return the changes of raw records; None if they have to be read one by one."""
        if not self.records.reads_columns or max(map(len, payloads)) > _MAX_TEXT:
            return None
        try:
            b"\n".join(payloads).decode()  # msgspec does not look into texts that are not wanted
            keys, rows = self._keys_and_rows(payloads)
            return self._changes(keys, rows)
        except (_DiffersError, ValueError, ArithmeticError, RecursionError, InvalidValue, pa.ArrowException):
            return None

    def _keys_and_rows(self, payloads: Sequence[bytes]) -> tuple[Sequence[Any] | None, Sequence[Any]]:
        """Return the keys, if records carry them apart, and the rows; None for a deleted one."""
        if self.records.table.layout != "row":
            try:
                found = list(map(self._read_wrapped, payloads))
            except ValueError:
                _require(self.records.table.layout == "auto")
            else:
                return [each.key for each in found], [each.value for each in found]
        rows = list(map(self._read_row, payloads))
        for name in self._layout_members:
            _require(all(value is UNSET for value in map(self._row.cells[name], rows)))
        return None, rows

    @cached_property
    def _row(self) -> _Struct:
        types = {
            column.name: Any if column.kind.text is None else column.kind.text | None | UnsetType
            for column in self.records.columns
        }
        return _Struct.of({**types, **dict.fromkeys(self._layout_members, Any)})

    @cached_property
    def _layout_members(self) -> Sequence[str]:
        """Names of members whose presence means another layout."""
        if self.records.table.layout == "row":
            return ()
        names = self.records.table.columns
        _require(self.records.layout_members.isdisjoint(names))
        return [name for name in sorted({"key", "value", *self.records.layout_members}) if name not in names]

    @cached_property
    def _read_row(self) -> Callable[[bytes], Any]:
        texts_only = self.records.table.columns.get("key", "string") == "string"
        _require(self.records.table.layout == "row" or (texts_only and "key" not in self.records.table.encodings))
        return msgspec.json.Decoder[Any](self._row.type, float_hook=exact_decimal).decode

    @cached_property
    def _read_wrapped(self) -> Callable[[bytes], Any]:
        wrapped = msgspec.defstruct("Wrapped", [("key", self._row.type), ("value", self._row.type | None)], gc=False)
        return msgspec.json.Decoder[Any](wrapped, float_hook=exact_decimal).decode

    def _changes(self, keys: Sequence[Any] | None, rows: Sequence[Any]) -> ColumnChanges:
        deleted = np.array([row is None for row in rows])
        if deleted.any():
            nothing = self._row.type()
            rows = [nothing if row is None else row for row in rows]
        cells, sent = [], []
        for column in self.records.columns:
            cell = self._row.cells[column.name]
            array, is_sent = _typed(column, map(cell, rows))
            if column.name in self.records.table.keys:
                if keys is not None:
                    own, is_in_key = _typed(column, map(cell, keys))
                    _require(bool(is_in_key.all()))
                    same = np.asarray(pc.fill_null(pc.equal(own, array), False))
                    _require(self.records.table.trust_key or bool((same | ~is_sent).all()))
                    array, is_sent = own, is_in_key
                _require(not array.null_count)
            cells.append(array)
            sent.append(is_sent)
        return ColumnChanges(np.ones(len(rows), np.bool_), deleted, cells, sent)


def _typed(column: DeclaredColumn, cells: Iterable[Any]) -> tuple[pa.Array, Bools]:
    """Return the values of a column, null where they are absent or null, and the mask of those that were sent.

    Raises one of the errors that `TextColumns.read` expects.
    """
    values = list(cells)
    types = set(map(type, values))
    is_sent = np.ones(len(values), np.bool_)
    if UnsetType in types:
        is_sent = np.array([value is not UNSET for value in values])
        values = [None if value is UNSET else value for value in values]
        types = types - {UnsetType} | {NoneType}
    _require(str not in types or NOT_SENT not in values)
    if column.kind.text is None:
        return pa.array(list(map(column.value, values)), column.arrow), is_sent
    array = pa.array(values, column.arrow)
    _require(column.arrow != pa.float32() or bool(pc.all(pc.is_finite(array), min_count=0).as_py()))
    return array, is_sent


def _require(condition: bool) -> None:
    if not condition:
        raise _DiffersError
