"""Changes in raw records of the layouts ``unwrapped`` and ``row``, column by column: all records of a part at once.

One that differs, or has an error, leaves all of them to be read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.decoder.column_changes import ColumnChanges
from silverfold.connectors.hstreamdb.decoder.layouts import NOT_SENT, RecordReader
from silverfold.connectors.hstreamdb.decoder.values import Column
from silverfold.connectors.hstreamdb.options import INTEGERS

_ABSENT: Final = msgspec.UNSET
_read: Final = msgspec.json.Decoder().decode


class _DiffersError(Exception):
    """The records have to be read one by one."""


@dataclass(frozen=True)
class TextColumns:
    """Reads JSON texts for one table. Picklable."""

    records: RecordReader

    def read(self, payloads: Sequence[bytes]) -> ColumnChanges | None:
        """Return the changes of raw records; None if they have to be read one by one."""
        if not self.records.reads_columns:
            return None
        try:
            keys, rows = self._keys_and_rows(list(map(_read, payloads)))
            return self._changes(keys, rows)
        except (_DiffersError, ValueError, ArithmeticError, RecursionError, InvalidValue, pa.ArrowException):
            return None

    def _keys_and_rows(self, found: Sequence[Any]) -> tuple[Sequence[Mapping[str, Any]] | None, Sequence[Any]]:
        """Return the rows, and their keys if they are apart."""
        _require(set(map(type, found)) == {dict})
        if self.records.table.layout == "row":
            return None, found
        wrapped = [type(each.get("key")) is dict and "value" in each for each in found]
        if all(wrapped):
            rows = [each["value"] for each in found]
            _require(set(map(type, rows)) <= {dict, NoneType})
            return [each["key"] for each in found], rows
        _require(self.records.table.layout == "auto" and not any(wrapped))
        _require(all(map(self.records.telling.isdisjoint, found)))
        return None, found

    def _changes(self, keys: Sequence[Mapping[str, Any]] | None, rows: Sequence[Any]) -> ColumnChanges:
        deleted = np.array([row is None for row in rows])
        rows = [row or {} for row in rows]
        cells, sent = [], []
        for column in self.records.columns:
            values = [row.get(column.name, _ABSENT) for row in rows]
            is_sent = np.array([value is not _ABSENT for value in values])
            array = _typed(column, values)
            if column.name in self.records.table.keys:
                if keys is not None:
                    own = _typed(column, [key.get(column.name, _ABSENT) for key in keys])
                    same = pc.fill_null(pc.equal(own, array), False)
                    _require(self.records.table.trust_key or bool(np.all(np.asarray(same) | ~is_sent)))
                    array, is_sent = own, np.ones(len(rows), np.bool_)
                _require(not array.null_count)
            cells.append(array)
            sent.append(is_sent)
        return ColumnChanges(np.ones(len(rows), np.bool_), deleted, cells, sent)


def _typed(column: Column, values: Sequence[Any]) -> pa.Array:
    """Return the values of a column, null where they are absent or null. Raises one of `TextColumns.read`'s errors."""
    types = set(map(type, values))
    if type(_ABSENT) in types:
        values = [None if value is _ABSENT else value for value in values]
        types = types - {type(_ABSENT)} | {NoneType}
    _require(str not in types or NOT_SENT not in values)
    if types <= _AS_IS.get(column.kind, frozenset()) and column.encoding is None:
        array = pa.array(values, column.arrow)
        _require(column.kind != "float" or bool(pc.all(pc.is_finite(array), min_count=0).as_py()))
        return array
    _require(float not in types)  # digits of decimals may be lost
    return pa.array(list(map(column.value, values)), column.arrow)


def _require(condition: bool) -> None:
    if not condition:
        raise _DiffersError


_AS_IS: Final = {
    **{kind: frozenset({int, NoneType}) for kind in INTEGERS},
    "float": frozenset({float, NoneType}),
    "double": frozenset({float, int, NoneType}),
    "string": frozenset({str, NoneType}),
    "boolean": frozenset({bool, NoneType}),
}
"""Python types that Arrow converts as `Column.value` does, or refuses."""
