"""Change rows (`transforms.changes`) in Arrow: the one layout in which the steps of decoders yield them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import compress
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import WireError

Bools: TypeAlias = npt.NDArray[np.bool_]

CHANGES_AT_ONCE: Final = 1 << 13
"""Approximate number of changes per batch; slightly more if a frame has many."""

NAMES: Final = pa.list_(pa.string())
APPENDED_KEY: Final = pa.struct([("_position", pa.int64()), ("_ordinal", pa.int32())])
"""The key of rows that are appended."""
TIME: Final = pa.timestamp("us", "UTC")
COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME,
    "timestamp_ntz": pa.timestamp("us"),
}
"""Types of a table's columns, by Spark's names."""
_ERROR: Final = pa.struct([("error_class", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True)
class ChangeRows:
    """The layout of one table's change rows. Picklable.

    Args:
        row: Columns of the table.
        key: Key columns.
        omitted: Columns of the contract that are NULL for every row.
        ordered: The source has an order and times of its own; otherwise ``sequence`` and ``source_time`` are omitted.
    """

    row: pa.StructType
    key: pa.StructType
    omitted: frozenset[str] = frozenset()
    ordered: bool = False
    type: pa.Schema = field(init=False)
    """Schema of the change rows."""

    def __post_init__(self) -> None:
        own = [("frame_seq", pa.int64()), ("ordinal", pa.int32()), ("op", pa.string())]
        own += [("key", self.key), ("old_key", self.key), ("row", self.row), ("present", NAMES)]
        own += [("sequence", pa.string()), ("source_time", TIME)] if self.ordered else []
        own += [("error", _ERROR)]
        object.__setattr__(self, "type", pa.schema([each for each in own if each[0] not in self.omitted]))

    def batch(
        self,
        positions: pa.Array,
        ops: pa.Array,
        cells: Sequence[pa.Array],
        *,
        ordinals: pa.Array | None = None,
        keys: Sequence[pa.Array] | None = None,
        old_keys: Sequence[pa.Array] | None = None,
        present: pa.Array | None = None,
        sequences: pa.Array | None = None,
        source_times: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """Return changes as one batch.

        Args:
            positions: int64, of the frame of each change.
            ops: Without nulls.
            cells: The values of each column, a delete's key included.
            ordinals: int32.
            keys: The values of each key column; by default those of the same columns, or of an appended row.
            old_keys: The values of each key column that an update moves its row from, null where none was sent.
            present: See `names_sent`.
            sequences: Text that orders the changes of a source with an order of its own.
            source_times: `TIME`.
        """
        if keys is None:
            found = {"_position": positions, "_ordinal": ordinals, **dict(zip(self.row.names, cells, strict=True))}
            keys = [found[name] for name in self.key.names]
        columns = {
            "frame_seq": positions,
            "ordinal": ordinals,
            "op": ops,
            "key": _struct(self.key, keys),
            "old_key": old_keys and _struct(self.key, old_keys, mask=_is_same_key(keys, old_keys)),
            "row": _struct(self.row, cells, mask=pc.equal(ops, "delete")),
            "present": present,
            "sequence": sequences,
            "source_time": source_times,
        }
        return _batch(self.type, len(ops), columns)

    def whole_frames(self, batch: pa.RecordBatch, errors: Mapping[int, WireError]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of good frames, and one row with ``error`` for each bad one.

        Args:
            errors: By the position of the frame, of which no change is yielded.
        """
        if errors:
            bad = pa.array(list(errors), pa.int64())
            batch = batch.filter(pc.invert(pc.is_in(batch.column("frame_seq"), bad)))
        yield batch
        if errors:
            yield error_rows(self.type, list(errors), errors.values())


def key_type(row: pa.StructType, keys: Iterable[str]) -> pa.StructType:
    """Return the key of a table: its key columns, or `APPENDED_KEY` if it has none."""
    return pa.struct([row.field(name) for name in keys] or list(APPENDED_KEY))


def error_rows(
    schema: pa.Schema, positions: Sequence[int] | pa.Array, errors: Iterable[WireError | tuple[str, str]]
) -> pa.RecordBatch:
    """Return one row with ``error`` for each of some frames.

    Args:
        errors: The errors, or the class and reason of each.
    """
    found = [(each.error_class, str(each)) if isinstance(each, WireError) else each for each in errors]
    columns = {"frame_seq": pa.array(positions, pa.int64()), "error": pa.array(found, _ERROR)}
    return _batch(schema, len(found), columns)


def names_sent(names: Sequence[str], sent: Sequence[Bools], of: Bools) -> pa.Array:
    """Return, for each row, the names of the columns sent: the column ``present``.

    Args:
        sent: For each column, a mask of the rows that have it.
        of: Mask of the rows that get a list; the others get NULL, which means all columns.
    """
    if not of.any():
        return pa.nulls(len(of), NAMES)
    packed = np.packbits(np.stack([mask[of] for mask in sent], axis=1), axis=1)
    distinct, which = np.unique(packed, axis=0, return_inverse=True)
    codes = np.zeros(len(of), np.int64)
    codes[of] = which.reshape(-1)
    lists = [list(compress(names, np.unpackbits(mask))) for mask in distinct]
    return pa.array(lists, NAMES).take(pa.array(codes, mask=~of))


def _batch(schema: pa.Schema, count: int, columns: Mapping[str, pa.Array | None]) -> pa.RecordBatch:
    """Return a batch in which absent columns are NULL."""
    arrays = [columns.get(name) for name in schema.names]
    full = [pa.nulls(count, kind) if array is None else array for array, kind in zip(arrays, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(full, schema=schema)


def _struct(kind: pa.StructType, columns: Sequence[pa.Array], *, mask: pa.Array | None = None) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns), fields=list(kind), mask=mask)


def _is_same_key(keys: Sequence[pa.Array], old: Sequence[pa.Array]) -> pa.Array:
    """Return the mask of changes that keep their key: no old key was sent, or it is equal once typed."""
    same = reduce(pc.and_, [pc.equal(now, before) for now, before in zip(keys, old, strict=True)])
    return pc.fill_null(same, True)
