"""Verify silver: fold bronze independently (`reference_fold`) and compare (`compare`).

Neither side depends on the other's code, and silver is read by delta-rs, without the Spark that wrote it. A table is
compared at the position it had reached when it was opened; builds and receivers may continue meanwhile.

A history is verified after its table, as a table of its own: every version is compared, by key and ``__START_AT``
(`pipelines.verifying.reference_history` describes what can be known where bronze begins at a floor). For source-ordered
sources, no row may be older than its key's tombstone. Missing tombstones are not detected: the decoder decides which of
them may be forgotten.

The models here are printed by ``silverfold verify --json``: their names and meanings must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import PositionGap, ProtocolError, WireError
from silverfold.conf.names import caseless
from silverfold.conf.text import joined
from silverfold.connectors.base import Connector, Feed, TableKind
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan, NotBySpans
from silverfold.pipelines.holding.quarantine_log import PASSED_OVER, current_hold, quarantined
from silverfold.pipelines.landing.bronze import CARRYING, last_position, read_small_columns
from silverfold.pipelines.landing.dropped import dropped_of
from silverfold.pipelines.landing.losses import losses_of
from silverfold.pipelines.landing.ranges import Range, format_ranges, is_inside
from silverfold.pipelines.places import Places, history_of
from silverfold.pipelines.report import Report
from silverfold.pipelines.storage.companions import companion, companion_of
from silverfold.pipelines.storage.cuts import app_id, built_otherwise, last_cuts, newest_note, position_in
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.beginnings import begins_at, history_begins_at, needs_from
from silverfold.pipelines.verifying.base_rows import read_base
from silverfold.pipelines.verifying.compare import Comparison, as_stored, compare, shown
from silverfold.pipelines.verifying.compared_rows import (
    NOTHING_LEFT_OUT,
    LeftOut,
    Silver,
    degraded_rows,
    older_than_deletes,
    read_silver,
    without_reasons,
)
from silverfold.pipelines.verifying.reference_fold import BronzeFold, Expected, LandedTable, fold_bronze
from silverfold.pipelines.verifying.reference_history import HistoryFold, fold_history

ROWS_AT_ONCE: Final = 500_000
"""Rows of a table held in memory at a time, as well as the expected ones: one to two kilobytes each."""


class Verdict(StrEnum):
    """Result of verifying a table."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_BUILT = "not_built"
    """There is no silver table yet: nothing to verify."""
    UNKNOWN = "unknown"
    """It could not be determined; ``reason`` says why."""


class Difference(Report):
    """One cell that differs, or a row that one side lacks. Values without a JSON form are text."""

    key: dict[str, Any]
    column: str | None
    """Null: the whole row; the side that lacks it is null, the other shows the columns that differ in its range."""
    expected: Any
    found: Any


class DifferingRange(Report):
    """A range of keys in which something differs, both ends inclusive."""

    first_key: dict[str, Any]
    last_key: dict[str, Any]
    expected_rows: int
    found_rows: int
    columns: tuple[str, ...]
    """Columns whose hashes over the range differ."""


class TableVerification(Report):
    """One silver table."""

    table: str
    verdict: Verdict
    reason: str | None
    """Null, except in these cases: ``verdict`` is ``unknown``; ``different`` for more than ``differences`` show; only a
    part was compared; the table is held or stopped; or not built though frames of it have landed, or as nothing has."""
    position: int | None
    """Position the table had reached: expected rows are those of bronze up to and including it."""
    delta_version: int | None
    """Version of the table that was compared."""
    folded_from: int | None = None
    """Position from which bronze was folded: the last complete snapshot, if there is one."""
    expected_rows: int | None = None
    found_rows: int | None = None
    missing_rows: int | None = None
    extra_rows: int | None = None
    different_cells: int | None = None
    ranges: tuple[DifferingRange, ...] = ()
    """The first ranges that differ."""
    differences: tuple[Difference, ...] = ()
    """The first differences, by key."""
    base_position: int | None = None
    """Position of the base with which the expected rows begin, since frames before it were dropped; null without."""
    rows_aside: int = 0
    """Number of ``found_rows`` from the side table. Which rows belong there is not verified: Spark evaluates rules."""


class Verification(Report):
    """Everything ``silverfold verify --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    against: Literal["bronze", "source"]
    equal: bool
    """Something has landed; no table is ``different``, ``unknown``, held, stopped, or ``not_built`` though it has."""
    tables: tuple[TableVerification, ...]
    retryable: bool = False
    """Something in the store cannot be read now, and no table is ``different``: verify again later."""


def verify_table(places: Places, connector: Connector, feed: Feed, table: str) -> TableVerification:
    """Compare one silver table with the rows expected from bronze.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    silver = read_silver(places, feed.name, table)
    if silver is None:
        return _not_built(places, connector, feed, table)
    since, begins = needs_from(places, connector, feed, table), begins_at(places, connector, feed, table)
    landed = landed_table(places, connector, feed, table, silver.position)
    if companion(places, feed.name, table, "aside", at=silver.rows.version).is_gone:
        why = f"the rows that it keeps aside are gone: run `silverfold rebuild {feed.name} {table}`"
        return unknown(table, why, silver, Verdict.DIFFERENT)
    placed = connector.table_kind(feed.tables[table]) is not TableKind.STATE
    try:
        fold = fold_bronze(landed, since=since)
        other = built_otherwise(places, connector, feed, table, fold.keys)
        if other is not None:
            return unknown(table, other, silver)
        degraded = degraded_rows(places, connector, feed, table, silver.rows.version)
        limits = _limits(begins, landed, landed.losses.lacking)
        found = _compare_spans(table, fold, silver, placed=placed, reason=limits, left_out=degraded)
    except (PositionGap, WireError, ProtocolError) as error:
        other = built_otherwise(places, connector, feed, table, feed.tables[table].keys)
        return unknown(table, other or explain_gap(error, landed), silver)
    wrong = without_reasons(silver.rows.more) or older_than_deletes(places, connector, feed, table, silver.rows)
    return found if wrong is None else found.model_copy(update={"verdict": Verdict.DIFFERENT, "reason": wrong})


def verify_history(places: Places, connector: Connector, feed: Feed, table: str) -> TableVerification:
    """Compare a table's history with the versions expected from bronze, at the position the history has reached.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    name, settings, silver = history_of(table), feed.tables[table], open_table(places.silver(feed.name, table))
    note, position = newest_note(silver), position_in(silver, app_id(feed.name, table))
    if silver is None or position < 0:
        return unknown(name, None, verdict=Verdict.NOT_BUILT)
    found = companion_of(places, feed.name, table, "history", silver)
    if found.committed is None:
        why = "there is none" if found.newest is None else "it is not what the newest cut was applied with"
        again = f"run `silverfold rebuild {feed.name} {table}`"
        return unknown(name, f"{why}, the table stands at {position}: {again}", verdict=Verdict.DIFFERENT)
    rows = SilverRows(places.history(feed.name, table), found.committed)
    history = Silver(position if note is None else note.last_position, rows)
    other = built_otherwise(places, connector, feed, table, settings.keys)
    if other is not None:
        return unknown(name, other, history)
    over = [each.update_position for each in quarantined(places, feed.name, table) if each.resolution == PASSED_OVER]
    since, begins = needs_from(places, connector, feed, table), begins_at(places, connector, feed, table)
    landed = landed_table(places, connector, feed, table, history.position)
    begun = history_begins_at(places, feed.name, table) if connector.has_snapshots(settings) else 0
    degraded = degraded_rows(places, connector, feed, table, silver.version())
    try:
        fold = fold_history(landed, passed_over=over, since=since, begins_at=begun)
        limits = _limits(begins, landed, landed.losses.untouched)
        return _compare_spans(name, fold, history, reason=limits, left_out=degraded)
    except (PositionGap, WireError, ProtocolError) as error:
        return unknown(name, explain_gap(error, landed), history)


def landed_table(places: Places, connector: Connector, feed: Feed, table: str, through: int) -> LandedTable:
    """Return what of bronze makes a table, up to a position. Raises StoreUnavailable."""
    left_out = {each.position for each in quarantined(places, feed.name, table) if each.is_left_out}
    losses = losses_of(places, connector, feed, table)
    base = read_base(places, connector, feed, table)
    return LandedTable(places.bronze(feed.name), connector, feed, table, through, left_out, losses, base)


def explain_gap(error: Exception, landed: LandedTable) -> str:
    """Return why a table cannot be compared, with what to do if bronze lacks positions."""
    if not isinstance(error, PositionGap) or error.advice:
        return str(error)
    if is_inside((error.first, error.last), landed.losses.taken):
        return f"{error}: what silver has of them has nothing to be compared with"
    dropped = dropped_of(landed.bronze, landed.feed.name, landed.table)
    if landed.base is None and error.last < dropped.floor and dropped.is_enough(landed.through):
        base = f"they were dropped, and the base that had them is gone: `silverfold rebuild {landed.feed.name}"
        return f"{error}: {base} {landed.table}` says how to begin anew"
    return f"{error}: `silverfold status` says what can be done"


def _compare_spans(
    table: str,
    fold: BronzeFold | HistoryFold,
    silver: Silver,
    *,
    placed: bool = False,
    reason: str | None,
    left_out: LeftOut = NOTHING_LEFT_OUT,
) -> TableVerification:
    """Compare a table with the rows expected from bronze, `ROWS_AT_ONCE` at a time if possible; see `compare_table`."""
    own_names = {caseless(name): name for name in silver.rows.names}
    keys = [own_names.get(caseless(name), name) for name in fold.keys]
    try:
        spans = silver.rows.spans(keys, ROWS_AT_ONCE) if fold.has_spans else [EVERY_KEY]
        compared = partial(compare_table, table, fold.expected, silver, placed=placed, reason=reason, left_out=left_out)
        return compared(keys=keys, spans=spans)
    except NotBySpans:
        return compared()


def _limits(begins: int, landed: LandedTable, lost: Sequence[Range]) -> str | None:
    """Return the limits of a comparison: a table may lack what was dropped or lost before it was built."""
    dropped = f"begins at position {begins}, what landed before was dropped and is not compared" if begins else ""
    begun = None if landed.base is None else f"begins with its base at position {landed.base.position}"
    base = begun and f"{begun}, what landed before was dropped"
    lacking = f"lacks positions {format_ranges(lost)}, which bronze has lost" if lost else ""
    return joined([dropped, base, lacking])


def compare_table(
    table: str,
    expected: Callable[[KeySpan], Expected],
    silver: Silver,
    *,
    keys: Sequence[str] = (),
    spans: Sequence[KeySpan] = (EVERY_KEY,),
    placed: bool = False,
    reason: str | None = None,
    left_out: LeftOut = NOTHING_LEFT_OUT,
) -> TableVerification:
    """Compare expected rows with silver's; return the result.

    Args:
        expected: Returns the rows of a span.
        keys: Columns by which silver's rows are divided into spans.
        spans: Compared one after another.
        placed: Compare ``_position`` too. A state table has this column, but its value is not part of the state: a
            snapshot leaves equal rows as they are.
        left_out: Rows that are not compared, beside those that ``expected`` leaves out. All are counted.

    Raises:
        NotBySpans: The rows cannot be divided into these spans.
    """
    result, rows, keys_left_out = Comparison(0, 0), None, left_out.keys
    for span in spans:
        rows, found = expected(span).renamed_as(silver.rows.names), silver.rows.table(keys, span)
        keys_left_out |= rows.left_out.keys
        try:
            result = result.plus(_compare_rows(rows, found, left_out, placed=placed))
        except TypeError:  # such keys cannot be ordered
            message = "its keys are of another type than those of the source: run silverfold rebuild"
            return unknown(table, message, silver, Verdict.DIFFERENT)
    assert rows is not None
    return TableVerification(
        table=table,
        verdict=Verdict.EQUAL if result.equal else Verdict.DIFFERENT,
        reason=joined([reason, LeftOut(keys=keys_left_out).reason]),
        position=_position(silver.position),
        delta_version=silver.rows.version,
        folded_from=rows.begins,
        base_position=rows.base,
        expected_rows=result.expected_rows,
        found_rows=result.found_rows,
        missing_rows=result.missing,
        extra_rows=result.extra,
        different_cells=result.cells,
        ranges=_ranges(rows.keys, result),
        differences=_differences(rows.keys, result),
        rows_aside=silver.rows.side_count,
    )


def _compare_rows(expected: Expected, found: pa.Table, left_out: LeftOut, *, placed: bool) -> Comparison:
    for each in (left_out, expected.left_out):
        expected, found = replace(expected, rows=each.others(expected.rows)), each.others_found(found)
    names = [name for name in found.column_names if placed or name != "_position"]
    found = expected.comparable(found).select(names)
    result = compare(expected.keys, expected.columns, expected.rows, found)
    if result.equal:
        return result
    return compare(expected.keys, expected.columns, as_stored(expected.rows, found.schema), found)


def unknown(
    table: str, reason: str | None, silver: Silver | None = None, verdict: Verdict = Verdict.UNKNOWN
) -> TableVerification:
    """Return a result for a table that was not compared, and why."""
    return TableVerification(
        table=table,
        verdict=verdict,
        reason=reason,
        position=_position(silver.position) if silver else None,
        delta_version=silver.rows.version if silver else None,
        found_rows=silver.rows.count if silver else None,
        rows_aside=silver.rows.side_count if silver else 0,
    )


def summarize(
    places: Places,
    feed: str,
    against: Literal["bronze", "source"],
    tables: Sequence[TableVerification],
    at: datetime,
    *,
    stopped: Mapping[str, str] = MappingProxyType({}),
) -> Verification:
    """Return the verdict on a feed; ``stopped`` gives, by table, why no build continues although nothing holds it."""
    results, equal = [], True
    for each in tables:
        held = None if each.verdict is Verdict.UNKNOWN else _holding(places, feed, each) or stopped.get(each.table)
        full = each if held is None else each.model_copy(update={"reason": joined([each.reason, held])})
        fine = full.verdict is Verdict.EQUAL or (full.verdict is Verdict.NOT_BUILT and not full.reason)
        equal &= fine and held is None
        results.append(full)
    return Verification(
        at=at, warehouse=places.warehouse, feed=feed, against=against, equal=equal, tables=tuple(results)
    )


def _holding(places: Places, feed: str, found: TableVerification) -> str | None:
    """Return the hold of a table, if any: such a table is compared as it is."""
    hold = current_hold(quarantined(places, feed, found.table), -1 if found.position is None else found.position)
    return None if hold is None else f"it is held at position {hold.position}: {hold.error_class}"


def _not_built(places: Places, connector: Connector, feed: Feed, table: str) -> TableVerification:
    cut, bronze = last_cuts(places, feed.name).get(table), places.bronze(feed.name)
    if cut is None and last_position(bronze, feed.name) < 0:
        why = f"nothing has landed for feed {feed.name} in {places.warehouse}"
        return unknown(table, why, verdict=Verdict.NOT_BUILT)
    if cut is None:
        stream = connector.stream(feed, table)
        found = read_small_columns(bronze, after=-1)
        kinds = (batch.filter(pc.equal(batch["stream"], stream))["kind"] for batch in found)
        landed = any(kind in CARRYING for each in kinds for kind in each.unique().to_pylist())
        return unknown(table, "frames of it have landed" if landed else None, verdict=Verdict.NOT_BUILT)
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
            key=_named(keys, each.key), column=each.column, expected=shown(each.expected), found=shown(each.found)
        )
        for each in result.first
    )


def _named(keys: Sequence[str], key: Key) -> dict[str, Any]:
    return {name: shown(value) for name, value in zip(keys, key, strict=True)}


def _position(position: int) -> int | None:
    return None if position < 0 else position
