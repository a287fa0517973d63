"""Read a silver table, or one of its companions, at one version with delta-rs, independently of Spark.

Builds look up here which rows small cuts find; ``verify`` reads here what it compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from silverfold.conf.names import caseless
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan, spans
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import naming_the_store

_SAMPLED: Final = 200
"""One in this many rows is sampled to divide a table into key spans."""

_AT_ONCE: Final = 16 << 20
"""Bytes of rows searched at once: a million long keys with their positions."""

_SEARCHED: Final = 16 << 20
"""Largest number of rows this process searches itself: a million keys take 30 ms, against 2.5 s in Spark."""

_WHOLE_NUMBERS: Final = {"byte", "short", "integer", "long"}
"""Types that delta-rs compares as Python does."""

_FEATURES: Final = {"deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "variantType"}
"""Table features, named as in Delta's protocol, that delta-rs can read."""


@dataclass(frozen=True)
class SilverRows:
    """A table's rows at one version, read on demand.

    Args:
        more: Rows of the side table to include: they exist at the source too.
    """

    place: Place
    opened: DeltaTable
    more: pa.Table | None = None

    @property
    def version(self) -> int:
        """Version of the table."""
        return self.opened.version()

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [field.name for field in self.opened.schema().fields]

    @cached_property
    def count(self) -> int:
        """Number of rows. Raises StoreUnavailable."""
        _, batches = self._scan(self.names[:1])
        return sum(batch.num_rows for batch in batches)

    @property
    def side_count(self) -> int:
        """Number of rows from `more`."""
        return 0 if self.more is None else self.more.num_rows

    def table(self, keys: Sequence[str] = (), within: KeySpan = EVERY_KEY) -> pa.Table:
        """Return the rows whose keys are in a span, in no order. Raises StoreUnavailable."""
        schema, batches = self._scan(self.names, self._limits(keys, within))
        wanted = [batch if within == EVERY_KEY else _inside(batch, keys, within) for batch in batches]
        return pa.Table.from_batches(wanted, schema)

    def _limits(self, keys: Sequence[str], within: KeySpan) -> list[str]:
        """Return conditions that all rows of a span meet, to limit the scan. Other rows may meet them too."""
        kinds = [field.type.type for field in self.opened.schema().fields if field.name in keys]
        if len(kinds) != 1 or kinds[0] not in _WHOLE_NUMBERS:
            return []
        (name,) = map(_quoted, keys)
        first = [] if within.first is None else [f"{name} >= {within.first[0]}"]
        end = [] if within.end is None else [f"({name} < {within.end[0]} OR {name} IS NULL)"]
        return first + end

    def spans(self, keys: Sequence[str], rows: int) -> list[KeySpan]:
        """Divide the keys into spans of about ``rows`` rows.

        Raises:
            StoreUnavailable: The table cannot be read now.
            TypeError: The keys cannot be ordered.
        """
        parts = -(-self.count // rows)
        if parts < 2 or not set(keys) <= set(self.names):
            return [EVERY_KEY]
        _, batches = self._scan(keys)
        sample = (key for batch in batches for key in _keys(batch[::_SAMPLED], keys))
        return spans(sample, parts)

    def can_be_searched(self, columns: Sequence[str]) -> bool:
        """Return whether `at` can find rows by these columns: they exist, and the table is not too large."""
        counts = pa.table(self.opened.get_add_actions())["num_records"]
        return (
            {caseless(name) for name in self.names}.issuperset(map(caseless, columns))
            and _FEATURES.issuperset(self.opened.protocol().reader_features or ())
            and not counts.null_count
            and (pc.sum(counts).as_py() or 0) <= _SEARCHED
        )

    def at(
        self, keys: pa.Table, others: Sequence[str], *, bounds: Mapping[str, tuple[int, int]] = MappingProxyType({})
    ) -> pa.Table:
        """Return the rows with any of the given keys, in no order. Reads those columns of all rows, a part at a time.

        Args:
            keys: The key columns, named in any case, of types that the table's can be cast to. Duplicate keys count
                once.
            others: Further columns to return.
            bounds: Smallest and largest value of integer key columns, both inclusive: skips files.

        Raises:
            StoreUnavailable: The table cannot be read now.
        """
        own_names = {caseless(name): name for name in self.names}
        limits = [f"{_quoted(own_names[caseless(name)])} BETWEEN {a} AND {b}" for name, (a, b) in bounds.items()]
        scanned, batches = self._scan([*(own_names[caseless(name)] for name in keys.column_names), *others], limits)
        kinds = pa.schema([*keys.schema, *(scanned.field(name) for name in others)])
        found = [kinds.empty_table()]
        for part in _parts(batches):
            rows = pa.Table.from_batches(part).rename_columns(kinds.names).cast(kinds)
            found.append(rows.join(keys, keys.column_names, join_type="left semi"))
        return pa.concat_tables(found)

    def _scan(
        self, columns: Sequence[str], conditions: Sequence[str] = ()
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return some columns of the rows that meet all conditions, lazily. Both parts raise StoreUnavailable.

        Call this only if the rows will be read: delta-rs reads ahead even without a consumer.
        """
        with naming_the_store(self.place):
            scanned = self.opened.scan(columns=list(columns), predicate=" AND ".join(conditions) or None)
            reader = pa.RecordBatchReader.from_stream(scanned)
        schema = pa.schema([each.with_type(_without_views(each.type)) for each in reader.schema])
        return schema, self._batches(reader, schema)

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with naming_the_store(self.place):
            for batch in reader:
                yield batch.cast(schema)
        if self.more is not None:
            yield from _like(self.more, schema).to_batches()


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Group the batches by size, so that the join with the searched keys is set up only a few times."""
    part, size = list[pa.RecordBatch](), 0
    for batch in batches:
        part.append(batch)
        size += batch.nbytes
        if size >= _AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _quoted(name: str) -> str:
    """Return a column's name quoted for delta-rs's SQL."""
    return '"' + name.replace('"', '""') + '"'


def _keys(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[Key]:
    return zip(*(batch[name].to_pylist() for name in names), strict=True)


def _inside(batch: pa.RecordBatch, keys: Sequence[str], within: KeySpan) -> pa.RecordBatch:
    return batch.filter(pa.array(map(within.holds, _keys(batch, keys)), pa.bool_()))


def _like(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with a table's columns; missing ones are NULL."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type without view types, for which Arrow does not implement selecting rows yet."""
    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_without_views(each.type)) for each in kind])
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind
