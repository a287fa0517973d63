"""Reads a silver table, or its history, as it stands at one version: by delta-rs, without the Spark that wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from connectors.key_span import EVERY_KEY, Key, KeySpan, spans
from pipelines.places import Place
from pipelines.store import naming_the_store

_SAMPLED: Final = 200
"""Of so many rows the key of one is looked at to cut a table into spans."""


@dataclass(frozen=True)
class SilverRows:
    """A table's rows at one version, read whenever they are asked for.

    Args:
        more: Rows to count among them: they are at the source too, and kept aside.
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
        """How many rows there are. Raises StoreUnavailable."""
        return sum(batch.num_rows for batch in self._batches(self.names[:1]))

    def table(self, keys: Sequence[str] = (), within: KeySpan = EVERY_KEY) -> pa.Table:
        """Return the rows whose keys are in a span, in no order. Raises StoreUnavailable."""
        wanted = [batch if within == EVERY_KEY else _inside(batch, keys, within) for batch in self._batches(self.names)]
        return pa.Table.from_batches(wanted, self._schema)

    def spans(self, keys: Sequence[str], rows: int) -> list[KeySpan]:
        """Cut the keys into spans of about so many rows.

        Raises:
            StoreUnavailable: The table cannot be read now.
            TypeError: There is no order between the keys.
        """
        parts = -(-self.count // rows)
        if parts < 2 or not set(keys) <= set(self.names):
            return [EVERY_KEY]
        sample = (key for batch in self._batches(keys) for key in _keys(batch[::_SAMPLED], keys))
        return spans(sample, parts)

    @cached_property
    def _schema(self) -> pa.Schema:
        with naming_the_store(self.place):
            schema = pa.RecordBatchReader.from_stream(self.opened.scan()).schema
        return pa.schema([each.with_type(_without_views(each.type)) for each in schema])

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self._schema.field(name) for name in columns])
        with naming_the_store(self.place):
            for batch in pa.RecordBatchReader.from_stream(self.opened.scan(columns=list(columns))):
                yield batch.cast(schema)
        if self.more is not None:
            yield from _like(self.more, schema).to_batches()


def _keys(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[Key]:
    return zip(*(batch[name].to_pylist() for name in names), strict=True)


def _inside(batch: pa.RecordBatch, keys: Sequence[str], within: KeySpan) -> pa.RecordBatch:
    return batch.filter(pa.array(map(within.holds, _keys(batch, keys)), pa.bool_()))


def _like(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with a table's columns; one that they lack is NULL."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type in a form that rows can be picked from: Arrow has no such thing for views yet."""
    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_without_views(each.type)) for each in kind])
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind
