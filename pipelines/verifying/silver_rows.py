"""Read a silver table, or its history, at one version: with delta-rs, independently of the Spark that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from silverfold.conf.model import LATE_PARTIAL, UNEXPLAINED
from silverfold.conf.names import folded
from silverfold.conf.text import counted
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan, spans
from silverfold.pipelines.places import REASONS, Place, Places
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import app_id, position_in
from silverfold.pipelines.store import naming_the_store, open_table
from silverfold.pipelines.verifying.compare import shown


def read_side_table(places: Places, feed: str, table: str, version: int | None = None) -> pa.Table | None:
    """Return the rows of the side table; None for none. Raises StoreUnavailable.

    Args:
        version: Version of the silver table, if not the newest: the side table is read as of it.
    """
    opened = companion(places, feed, table, "aside", at=version).counts
    if opened is None:
        return None
    found = SilverRows(places.side_table(feed, table), opened).table()
    return found if found.num_rows else None


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return the complete rows of the side table, which exist at the source but fail the table's rules; None for none.

    Args:
        version: As for `read_side_table`.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    found = read_side_table(places, feed, table, version)
    if found is None:
        return None
    is_complete = [{UNEXPLAINED, LATE_PARTIAL}.isdisjoint(reasons) for reasons in found[REASONS].to_pylist()]
    return found.filter(pa.array(is_complete, pa.bool_()))


class LeftOut(NamedTuple):
    """Rows that are not compared."""

    names: Sequence[str] = ()
    """The source's key columns."""
    keys: frozenset[Key] = frozenset()

    @property
    def reason(self) -> str | None:
        """Why they are not compared; None if there are none."""
        why = "not compared: changes came late among partial updates"
        return f"{counted(len(self.keys), 'key')} {why}" if self.keys else None

    def others(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return all other rows."""
        return [row for row in rows if _key(row, self.names) not in self.keys] if self.keys else rows

    def others_found(self, found: pa.Table) -> pa.Table:
        """Return all other rows of a table."""
        if not self.keys:
            return found
        return found.filter(pa.array([_key(row, self.names) not in self.keys for row in found.to_pylist()], pa.bool_()))


NOTHING_LEFT_OUT: Final = LeftOut()


def degraded_rows(places: Places, connector: Connector, feed: Feed, table: str, version: int) -> LeftOut:
    """Return the rows, or their versions, that may lack late changes. Raises as `failing_rows`."""
    found = read_side_table(places, feed.name, table, version) if connector.source_ordered else None
    if found is None:
        return NOTHING_LEFT_OUT
    names = connector.reference(feed, table).keys
    return LeftOut(names, frozenset(_key(row, names) for row in found.to_pylist() if LATE_PARTIAL in row[REASONS]))


def older_than_deletes(places: Places, connector: Connector, feed: Feed, table: str, rows: SilverRows) -> str | None:
    """Return a message on rows older than their key's tombstone; None if there are none, or it cannot be determined."""
    if not connector.source_ordered:
        return None
    tombstones = companion(places, feed.name, table, "tombstones", at=rows.version).counts
    if tombstones is None:
        return None
    keys = connector.reference(feed, table).keys
    listed = SilverRows(places.tombstones(feed.name, table), tombstones).table().to_pylist()
    listed.sort(key=itemgetter("_position"))  # the last delete of a key wins
    deleted_at = {_key(stone, keys): stone["_position"] for stone in listed}
    found = ((_key(row, keys), row["_position"]) for row in rows.table().to_pylist())
    late = sorted(key for key, position in found if key in deleted_at and position <= deleted_at[key])
    named = ", ".join(f"{name}={shown(value)}" for name, value in zip(keys, late[0], strict=True)) if late else ""
    return f"{len(late)} rows are older than the deletes of their keys, the first {named}" if late else None


def _key(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    return tuple(row[name] for name in names)


def without_reasons(failing: pa.Table | None) -> str | None:
    """Return a message if `failing_rows` name no rule that they fail, which no build produces; else None."""
    count = 0 if failing is None else sum(not reasons for reasons in failing[REASONS].to_pylist())
    return f"{count} of the rows that it keeps aside name no rule that they fail" if count else None


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
            {folded(name) for name in self.names}.issuperset(map(folded, columns))
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
        own_names = {folded(name): name for name in self.names}
        limits = [f"{_quoted(own_names[folded(name)])} BETWEEN {a} AND {b}" for name, (a, b) in bounds.items()]
        scanned, batches = self._scan([*(own_names[folded(name)] for name in keys.column_names), *others], limits)
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


class Silver(NamedTuple):
    """A silver table at one version."""

    position: int
    """-1 if none is recorded."""
    rows: SilverRows


def read_silver(places: Places, feed: str, table: str) -> Silver | None:
    """Return a silver table and its position, both of one version; None if it does not exist. Raises StoreUnavailable.

    Rows that exist at the source but fail the table's rules are included: together they are the source's table.
    """
    place = places.silver(feed, table)
    opened = open_table(place)
    if opened is None:
        return None
    failing = failing_rows(places, feed, table, opened.version())
    return Silver(position_in(opened, app_id(feed, table)), SilverRows(place, opened, failing))
