"""Verifies silver: folds bronze anew by another way (`pipelines.expected`) and compares (`pipelines.compare`).

Neither side needs the other's code to be right, and silver is read by delta-rs, without the Spark that wrote it. A
table is compared at the position it had reached when it was opened; builds and receivers may go on meanwhile.

A table that keeps history is followed by its history, as a table of its own: every version is compared, by key and
``__START_AT`` (`pipelines.expected_history` says what can be known where bronze begins at a floor). Of a source with
an order of its own, the tombstones tell that no row stands that is older than its key's delete. Tombstones that ought
to be there and are not are not noticed: which of them may be forgotten is the decoder's to say.

The models here are what ``silverfold verify --json`` prints: their names and meanings stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pydantic import BaseModel, ConfigDict

from conf.errors import PositionGap, ProtocolError, StoreUnavailable, WireError
from connectors.base import Connector, Feed, Keeps
from pipelines.beginnings import begins_at, history_begins_at
from pipelines.beside import beside, beside_opened
from pipelines.compare import Comparison, Key, as_held, compare
from pipelines.cuts import app_id, built_otherwise, last_cuts, newest_note, position_in
from pipelines.expected import Expected, fold_bronze
from pipelines.expected_history import fold_history
from pipelines.held import PASSED_OVER, quarantined
from pipelines.kept_aside import failing_rows
from pipelines.places import Place, Places, history_of
from pipelines.store import naming_the_store, open_table


class Verdict(StrEnum):
    """What verifying a table found."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_BUILT = "not_built"
    """There is no silver table yet: nothing to verify."""
    UNKNOWN = "unknown"
    """It cannot be told; ``reason`` says why."""


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Difference(_Report):
    """One cell that differs, or a whole row that one side lacks. Values that JSON has no form for are text."""

    key: dict[str, Any]
    column: str | None
    """Null: the whole row; the side that lacks it is null, the other shows the columns that differ in its range."""
    expected: Any
    found: Any


class DifferingRange(_Report):
    """A range of keys in which something differs, both ends inclusive."""

    first_key: dict[str, Any]
    last_key: dict[str, Any]
    expected_rows: int
    found_rows: int
    columns: tuple[str, ...]
    """Columns whose hashes over the range differ."""


class TableVerification(_Report):
    """One silver table."""

    table: str
    verdict: Verdict
    reason: str | None
    """Null unless ``verdict`` is ``unknown``, ``different`` for more than ``differences`` show, or of a part only."""
    position: int | None
    """Position the table had reached: what was expected is bronze up to and including it."""
    delta_version: int | None
    """Version of the table that was compared."""
    folded_from: int | None
    """Position from which bronze was folded: the last whole snapshot, if there is one."""
    expected_rows: int | None
    found_rows: int | None
    missing_rows: int | None
    extra_rows: int | None
    different_cells: int | None
    ranges: tuple[DifferingRange, ...]
    """The first ranges that differ."""
    differences: tuple[Difference, ...]
    """The first differences, by key."""


class Verification(_Report):
    """Everything ``silverfold verify --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    against: Literal["bronze", "source"]
    equal: bool
    """No table is ``different`` or ``unknown``."""
    tables: tuple[TableVerification, ...]


class Silver(NamedTuple):
    """A silver table as it stood at one version."""

    position: int
    """-1 when none is recorded."""
    version: int
    rows: pa.Table


def verify_table(places: Places, connector: Connector, feed: Feed, table: str) -> TableVerification:
    """Compare one silver table with what bronze says it must hold.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    silver = read_silver(places.silver(feed.name, table), partial(position_in, app=app_id(feed.name, table)))
    if silver is None:
        return _not_built(places, feed.name, table)
    failing = failing_rows(places, feed.name, table, silver.version)
    bronze, left_out = places.bronze(feed.name), _left_out(places, feed.name, table)
    since = begins_at(places, connector, feed, table)
    try:
        with naming_the_store(bronze):
            expected = fold_bronze(bronze, connector, feed, table, silver.position, left_out=left_out, since=since)
    except (PositionGap, WireError, ProtocolError) as error:
        other = built_otherwise(places, connector, feed, table, feed.tables[table].keys)
        return unknown(table, other or str(error), silver)
    other = built_otherwise(places, connector, feed, table, expected.keys)
    if other is not None:
        return unknown(table, other, silver)
    expected = expected.spelt_as(silver.rows.column_names)
    silver = with_failing(silver, failing)
    placed = connector.keeps(feed.tables[table]) is not Keeps.STATE
    found = compared(table, expected, silver, placed=placed, reason=_partly(since))
    late = _older_than_deletes(places, connector, feed, table, silver) if connector.sequenced else None
    return found if late is None else found.model_copy(update={"verdict": Verdict.DIFFERENT, "reason": late})


def verify_history(places: Places, connector: Connector, feed: Feed, table: str) -> TableVerification:
    """Compare a table's history with what bronze says it must hold, at the position the history has reached.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    name, settings, silver = history_of(table), feed.tables[table], open_table(places.silver(feed.name, table))
    note, position = newest_note(silver), position_in(silver, app_id(feed.name, table))
    if position < 0:
        return unknown(name, None, verdict=Verdict.NOT_BUILT)
    found = beside_opened(places, feed.name, table, "history", silver)
    if found.counts is None:
        why = "there is none" if found.newest is None else "it is not what the newest cut was applied with"
        again = f"run `silverfold rebuild {feed.name} {table}`"
        return unknown(name, f"{why}, the table stands at {position}: {again}", verdict=Verdict.DIFFERENT)
    rows = _read(places.history(feed.name, table), found.counts)
    history = Silver(position if note is None else note.last_position, found.counts.version(), rows)
    other = built_otherwise(places, connector, feed, table, settings.keys)
    if other is not None:
        return unknown(name, other, history)
    bronze, left_out = places.bronze(feed.name), _left_out(places, feed.name, table)
    over = [each.update_position for each in quarantined(places, feed.name, table) if each.resolution == PASSED_OVER]
    since = begins_at(places, connector, feed, table)
    try:
        with naming_the_store(bronze):
            expected = fold_history(
                bronze,
                connector,
                feed,
                table,
                history.position,
                left_out=left_out,
                passed_over=over,
                since=since,
                begins_at=history_begins_at(places, feed.name, table) if connector.has_snapshots(settings) else 0,
            )
    except (PositionGap, WireError, ProtocolError) as error:
        return unknown(name, str(error), history)
    expected = expected.spelt_as(history.rows.column_names)
    return compared(name, expected, history._replace(rows=expected.comparable(history.rows)), reason=_partly(since))


def _partly(since: int) -> str | None:
    """Say what a comparison cannot mean: a table that begins in the middle lacks what was dropped before."""
    return f"begins at position {since}, what landed before was dropped and is not compared" if since else None


def _left_out(places: Places, feed: str, table: str) -> set[int]:
    return {each.position for each in quarantined(places, feed, table) if each.is_left_out}


def _older_than_deletes(places: Places, connector: Connector, feed: Feed, table: str, silver: Silver) -> str | None:
    """Return which rows stand though a later delete is remembered; None when none does, or it cannot be told now."""
    stones = beside(places, feed.name, table, "tombstones", at=silver.version).counts
    if stones is None:
        return None
    keys = connector.plain(feed, table).keys
    listed = sorted(
        _read(places.tombstones(feed.name, table), stones).to_pylist(), key=itemgetter("_position")
    )  # of a key's deletes, the last one stays
    buried = {tuple(stone[name] for name in keys): stone["_position"] for stone in listed}
    standing = ((tuple(row[name] for name in keys), row["_position"]) for row in silver.rows.to_pylist())
    late = sorted(key for key, position in standing if key in buried and position <= buried[key])
    named = ", ".join(f"{name}={_shown(value)}" for name, value in zip(keys, late[0], strict=True)) if late else ""
    return f"{len(late)} rows are older than the deletes of their keys, the first {named}" if late else None


def read_silver(place: Place, position_of: Callable[[DeltaTable], int]) -> Silver | None:
    """Return a silver table with its position, both of one version; None when there is none. Raises StoreUnavailable.

    Args:
        position_of: Returns the position of the table as it was opened.
    """
    opened = open_table(place)
    if opened is None:
        return None
    return Silver(position_of(opened), opened.version(), _read(place, opened))


def _read(place: Place, opened: DeltaTable) -> pa.Table:
    with naming_the_store(place):
        rows = _all_rows(place, opened)
        return rows.cast(pa.schema([each.with_type(_without_views(each.type)) for each in rows.schema]))


def with_failing(silver: Silver, failing: pa.Table | None) -> Silver:
    """Add the rows that are at the source and fail the table's rules: together they are the source's table."""
    if failing is None:
        return silver
    return silver._replace(rows=pa.concat_tables([silver.rows, _like(failing, silver.rows.schema)]))


def _like(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with a table's columns; one that they lack is NULL."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _all_rows(place: Place, opened: DeltaTable) -> pa.Table:
    try:
        return pa.RecordBatchReader.from_stream(opened.scan()).read_all()
    except pa.ArrowException as error:  # which hides what the store said
        raise StoreUnavailable(f"{place}: {error}") from error


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type in a form that rows can be picked from: Arrow has no such thing for views yet."""
    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_without_views(each.type)) for each in kind])
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def compared(
    table: str, expected: Expected, silver: Silver, *, placed: bool = False, reason: str | None = None
) -> TableVerification:
    """Return what comparing expected rows with silver's found.

    Args:
        placed: ``_position`` counts. A table's state has it too, but where a row was written last says nothing of
            what it is: a snapshot leaves equal rows as they are.
    """
    counted = [name for name in silver.rows.column_names if placed or name != "_position"]
    found = silver.rows.select(counted)
    try:
        result = compare(expected.keys, expected.columns, expected.rows, found)
        if not result.equal:
            result = compare(expected.keys, expected.columns, as_held(expected.rows, found.schema), found)
    except TypeError:  # such keys have no order between them
        told = "its keys are of another type than those of the source: run silverfold rebuild"
        return unknown(table, told, silver, Verdict.DIFFERENT)
    return TableVerification(
        table=table,
        verdict=Verdict.EQUAL if result.equal else Verdict.DIFFERENT,
        reason=reason,
        position=_position(silver.position),
        delta_version=silver.version,
        folded_from=expected.begins,
        expected_rows=result.expected_rows,
        found_rows=result.found_rows,
        missing_rows=result.missing,
        extra_rows=result.extra,
        different_cells=result.cells,
        ranges=_ranges(expected.keys, result),
        differences=_differences(expected.keys, result),
    )


def unknown(
    table: str, reason: str | None, silver: Silver | None = None, verdict: Verdict = Verdict.UNKNOWN
) -> TableVerification:
    """Return that nothing was compared, and why."""
    return TableVerification(
        table=table,
        verdict=verdict,
        reason=reason,
        position=_position(silver.position) if silver else None,
        delta_version=silver.version if silver else None,
        folded_from=None,
        expected_rows=None,
        found_rows=silver.rows.num_rows if silver else None,
        missing_rows=None,
        extra_rows=None,
        different_cells=None,
        ranges=(),
        differences=(),
    )


def summed_up(
    places: Places, feed: str, against: Literal["bronze", "source"], tables: Sequence[TableVerification], at: datetime
) -> Verification:
    """Return the verdict on a feed."""
    equal = all(table.verdict in (Verdict.EQUAL, Verdict.NOT_BUILT) for table in tables)
    return Verification(
        at=at, warehouse=places.warehouse, feed=feed, against=against, equal=equal, tables=tuple(tables)
    )


def _not_built(places: Places, feed: str, table: str) -> TableVerification:
    cut = last_cuts(places, feed).get(table)
    if cut is None:
        return unknown(table, None, verdict=Verdict.NOT_BUILT)
    gone = f"the table is gone: it had reached position {cut.last_position}"
    return unknown(table, gone, verdict=Verdict.DIFFERENT)


def _ranges(keys: Sequence[str], result: Comparison) -> tuple[DifferingRange, ...]:
    return tuple(
        DifferingRange(
            first_key=_named(keys, each.first),
            last_key=_named(keys, each.last),
            expected_rows=each.expected_rows,
            found_rows=each.found_rows,
            columns=each.columns,
        )
        for each in result.ranges
    )


def _differences(keys: Sequence[str], result: Comparison) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            key=_named(keys, each.key), column=each.column, expected=_shown(each.expected), found=_shown(each.found)
        )
        for each in result.first
    )


def _named(keys: Sequence[str], key: Key) -> dict[str, Any]:
    return {name: _shown(value) for name, value in zip(keys, key, strict=True)}


def _shown(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    plain = value is None or isinstance(value, bool | int | str)
    return value if plain or (isinstance(value, float) and math.isfinite(value)) else str(value)


def _position(position: int) -> int | None:
    return None if position < 0 else position
