"""Check the rows of a cut before anything is written: keys, rules, and which rows must stay out of the table.

At every cut silver holds the source's rows that meet the rules. A row that fails a ``quarantine`` rule goes to the side
table as it is at the source. A later change of some of its columns, or of the rule, can then admit the complete row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import DuplicateKey, ExpectationFailed, NullKey
from silverfold.conf.model import LATE_PARTIAL, UNEXPLAINED
from silverfold.conf.names import caseless
from silverfold.pipelines.applying.decode import DecodedCut
from silverfold.pipelines.applying.fold_cut import FoldedCut
from silverfold.pipelines.applying.fold_statistics import counted
from silverfold.pipelines.places import REASONS
from silverfold.pipelines.storage.cuts import FAILED_RULE
from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, compute_all, struct_type
from silverfold.transforms.complete_rows import completed, row_after
from silverfold.transforms.existing_rows import by_keys, snapshot_by_keys, with_taken
from silverfold.transforms.expectations import FAILED, Rule, is_quarantined, with_failed_rules
from silverfold.transforms.merge import OP, POSITION, PRESENT, net_rows
from silverfold.transforms.sql import quoted

_NULL, _TWICE, _SINCE = "NULL keys", "doubled keys", "position of the first row refused"


@dataclass(frozen=True)
class CheckedCut:
    """The checked result of a cut.

    Args:
        rows: Net rows (`transforms.merge`). For a replacing cut, all rows of the table.
        side_rows: The complete new contents of the side table; None if it does not change.
        counters: Counts to report, by name.
    """

    rows: DataFrame
    side_rows: DataFrame | None
    counters: Mapping[str, int]


def check_cut(decoded: DecodedCut, folded: FoldedCut) -> CheckedCut:
    """Check the rows of a cut. Runs at most one Spark job; writes nothing.

    Raises:
        DuplicateKey, NullKey: Two rows share one of the table's keys, or a row has a NULL in its key.
        ExpectationFailed: A row fails a rule whose action is ``fail``, or a rule cannot be evaluated for it.
    """
    if not decoded.completes:
        return CheckedCut(_uncompleted_rows(decoded, folded), _incomplete_rows(decoded, folded), folded.counters)
    results = _result_rows(decoded, folded)
    try:
        rows = decoded.cached(with_failed_rules(results, decoded.silver.rules, decoded.later))
        failed = _failures(rows, decoded.silver.rules)
        keys = {name: F.count_if(refused) for name, refused in _refused_keys(rows).items()}
        counts = counted(rows, {**keys, **failed, **_first_refused(decoded, rows)})
    except PySparkException:
        _raise_failing_rule(decoded, results)
        raise
    _refuse(decoded, counts)
    out = is_quarantined(decoded.silver.rules)
    side_rows = _side_rows(decoded, folded, rows.where(out), counts)
    written = rows.where(~out) if decoded.cut.replaces else _without_unchanged_side_rows(rows, out)
    return CheckedCut(_flatten(decoded, written), side_rows, {**folded.counters, **counts})


def _failures(rows: DataFrame, rules: Sequence[Rule]) -> dict[str, Column]:
    """Return, by note, an aggregate that counts the rows which fail a rule, of those that the cut changes.

    Of a rule whose action is ``fail`` it counts the unchanged rows of the side table too: they went there under another
    rule, or action, and may not enter the table.
    """
    brought = F.col("changed") if "changed" in rows.columns else F.lit(True)  # a snapshot brings all rows
    return {
        f"{FAILED_RULE}{rule.name}": F.count_if(
            F.array_contains(FAILED, rule.name) & (F.lit(rule.action == "fail") | brought)
        )
        for rule in rules
    }


def _without_unchanged_side_rows(rows: DataFrame, out: Column) -> DataFrame:
    """Return the rows to merge: a failing row is deleted, unless it is in the side table and the cut leaves it there.

    Deleting those as well would cost 0.23 of 1.34 s (100 updates, 1,666 rows in the side table), and count as ignored.
    Rows the cut changes are deleted even if the table lacks them: a build with a shorter cut may just have added them.
    """
    op = F.when(out, F.lit(DELETE)).otherwise(F.col("op"))
    return rows.where(~out | F.col("changed")).withColumn("op", op)


def _uncompleted_rows(decoded: DecodedCut, folded: FoldedCut) -> DataFrame:
    """Return net rows that MERGE completes, or the rows of a snapshot."""
    net = folded.net.where(F.col("op").isin(INSERT, SNAPSHOT)) if decoded.cut.replaces else folded.net
    rows = net_rows(net, position="position")
    return rows if folded.partial and not decoded.cut.replaces else rows.drop(PRESENT)


def _result_rows(decoded: DecodedCut, folded: FoldedCut) -> DataFrame:
    """Return the rows of the cut by the table's keys: ``key``, ``op``, ``position`` and ``after``."""
    if decoded.cut.replaces:
        there = _snapshot_rows(decoded, folded.net)
        return snapshot_by_keys(there, keys=decoded.keys) if decoded.rekeyed else there
    assert folded.before is not None, "a cut that completes rows has looked them up"
    rows = completed(folded.net, folded.before, upsert=decoded.silver.upsert)
    if not decoded.rekeyed:
        return rows
    rows = decoded.cached(rows)
    moved = decoded.cached(by_keys(rows, keys=decoded.keys))
    return moved if decoded.current is None else with_taken(moved, decoded.current, rows, few=folded.few)


def _snapshot_rows(decoded: DecodedCut, net: DataFrame) -> DataFrame:
    after = row_after(net, decoded.row).alias("after")
    return net.where(F.col("op").isin(INSERT, SNAPSHOT)).select("key", F.lit(INSERT).alias("op"), "position", after)


def _refused_keys(rows: DataFrame) -> dict[str, Column]:
    """Return conditions for refused keys, by reason; none where the table uses the source's own keys."""
    if "claims" not in rows.columns:
        return {}
    null = reduce(or_, (F.col(f"key.{quoted(name)}").isNull() for name in struct_type(rows, "key").names))
    twice = (F.col("claims") > 1) | (F.col("taken") if "taken" in rows.columns else F.lit(False))
    return {_NULL: null & (F.col("claims") > 0), _TWICE: ~null & twice}


def _first_refused(decoded: DecodedCut, rows: DataFrame) -> dict[str, Column]:
    """Return the aggregate for the first refused position: cuts from there to the end of this one are refused too.

    A row keeps its final state from its last change on. None where positions are not those of frames.
    """
    forbidden = [F.array_contains(FAILED, rule.name) for rule in decoded.silver.rules if rule.action == "fail"]
    refused = [*_refused_keys(rows).values(), *forbidden]
    if decoded.silver.connector.source_ordered or not refused:
        return {}
    return {_SINCE: F.min(F.when(reduce(or_, refused), F.col("position")))}


def _refuse(decoded: DecodedCut, counts: Mapping[str, int]) -> None:
    table, since = decoded.silver.name, counts.get(_SINCE)
    if _NULL in counts:
        raise NullKey("a row of the source has a NULL key", table=table, since=since)
    if _TWICE in counts:
        raise DuplicateKey("two rows of the source have the same key", table=table, since=since)
    forbidden = {rule.name: f"{FAILED_RULE}{rule.name}" for rule in decoded.silver.rules if rule.action == "fail"}
    failed = ", ".join(f"{rule}: {counts[name]}" for rule, name in forbidden.items() if name in counts)
    if failed:
        raise ExpectationFailed(f"rows fail rules that none may fail: {failed}", table=table, since=since)


def _raise_failing_rule(decoded: DecodedCut, results: DataFrame) -> None:
    """Raise ExpectationFailed if a rule causes the evaluation of the rows to fail. Runs Spark jobs.

    Spark does not report the failing row, so the position of the first one is found by bisection.
    """
    rows, rules = decoded.cached(results), decoded.silver.rules
    compute_all(rows)  # unrelated errors are raised as they are
    positions = sorted(line.position for line in rows.select("position").distinct().collect())
    first = bisect_left(
        positions,
        True,
        key=lambda last: _evaluation_error(decoded, rows.where(F.col("position") <= last), rules) is not None,
    )
    for rule in rules if first < len(positions) else ():
        error = _evaluation_error(decoded, rows.where(F.col("position") == positions[first]), [rule])
        if error is not None:
            reason = f"rule {rule.name} cannot be judged of a row: {error.getCondition()} (try_cast and such give NULL)"
            since = None if decoded.silver.connector.source_ordered else positions[first]
            raise ExpectationFailed(reason, table=decoded.silver.name, since=since) from error


def _evaluation_error(decoded: DecodedCut, rows: DataFrame, rules: Sequence[Rule]) -> PySparkException | None:
    """Return the error raised by evaluating the rules on the rows, or None. Runs a Spark job."""
    try:
        compute_all(with_failed_rules(rows, rules, decoded.later))
    except PySparkException as error:
        return error
    return None


def _side_rows(
    decoded: DecodedCut, folded: FoldedCut, failing: DataFrame, counts: Mapping[str, int]
) -> DataFrame | None:
    """Return the new contents of the side table; None if there are none and were none before."""
    has_quarantined = any(
        f"{FAILED_RULE}{rule.name}" in counts for rule in decoded.silver.rules if rule.action == "quarantine"
    )
    incomplete = _incomplete_rows(decoded, folded)
    if decoded.side_rows is None and incomplete is None and not has_quarantined:
        return None
    unsent = F.lit(None).cast("array<string>").alias(PRESENT)
    rows = failing.select("after.*", F.col("position").alias(POSITION), unsent, F.col(FAILED).alias(REASONS))
    return rows if incomplete is None else rows.unionByName(incomplete, allowMissingColumns=True)


def _incomplete_rows(decoded: DecodedCut, folded: FoldedCut) -> DataFrame | None:
    """Return the side-table rows that are not rows of the source: pending updates, and marks of degraded keys."""
    found: list[DataFrame] = []
    if folded.pending is not None:
        reasons = F.array(F.lit(UNEXPLAINED)).alias(REASONS)
        found.append(net_rows(folded.pending, reasons, position="position").drop(OP))
    if folded.degraded is not None:
        reasons = F.array(F.lit(LATE_PARTIAL)).alias(REASONS)
        position, unsent = F.col("position").alias(POSITION), F.lit(None).cast("array<string>").alias(PRESENT)
        others = [field for field in decoded.row if field.name not in decoded.key.names]
        unknown = (F.lit(None).cast(field.dataType).alias(field.name) for field in others)
        found.append(folded.degraded.select("key.*", *unknown, position, unsent, reasons))
    return reduce(DataFrame.unionByName, found) if found else None


def _flatten(decoded: DecodedCut, rows: DataFrame) -> DataFrame:
    """Return checked rows as net rows that carry complete rows."""
    keys = {caseless(name): name for name in struct_type(rows, "key").names}

    def cell(field: T.StructField) -> Column:
        key = keys.get(caseless(field.name))
        after = F.col(f"after.{quoted(field.name)}")
        return (after if key is None else F.coalesce(F.col(f"key.{quoted(key)}"), after)).alias(field.name)

    return rows.select(F.col("op").alias(OP), F.col("position").alias(POSITION), *map(cell, decoded.row))
