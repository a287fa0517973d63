"""Checks the rows a cut comes to, before anything is written: keys, rules, and which rows may not be in the table.

Silver is the source's rows that meet the rules, at every cut. A row that fails one that quarantines is kept aside as it
is at the source, so that a change of some of its columns, or of the rule, lets it in again, whole.
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

from conf.errors import DuplicateKey, ExpectationFailed, NullKey
from conf.names import folded
from pipelines.applying.cut_job import CutJob
from pipelines.applying.fold_cut import Folded
from pipelines.applying.fold_statistics import counted
from transforms.changes import DELETE, INSERT, SNAPSHOT, compute_all, struct_type
from transforms.complete_rows import completed, row_after
from transforms.expectations import FAILED, Rule, failures, is_quarantined, with_failed_rules
from transforms.merge import OP, POSITION, PRESENT, net_rows
from transforms.rekey import by_keys, snapshot_by_keys, with_taken
from transforms.side_table import REASONS, UNEXPLAINED
from transforms.sql import quoted

_NULL, _TWICE, _SINCE = "NULL keys", "doubled keys", "position of the first row refused"


@dataclass(frozen=True)
class Checked:
    """What a cut comes to.

    Args:
        rows: Net rows (`transforms.merge`). Of a cut that replaces, the rows there are.
        aside: The rows to be kept aside from then on; None where the side table stays as it is.
        notes: Counts worth telling, by name.
    """

    rows: DataFrame
    aside: DataFrame | None
    notes: Mapping[str, int]


def check_cut(job: CutJob, folded: Folded) -> Checked:
    """Check the rows a cut comes to. Runs at most one Spark job; writes nothing.

    Raises:
        DuplicateKey, NullKey: Two rows claim one of the table's keys, or one has none.
        ExpectationFailed: A row fails a rule whose action is ``fail``, or a rule cannot be judged of it.
    """
    if not job.completes and folded.waiting is None:
        return Checked(_as_they_are(job, folded), None, folded.notes)
    unjudged = _rows(job, folded)
    try:
        rows = job.cached(with_failed_rules(unjudged, job.target.rules, job.later))
        failed = {f"failed.{name}": count for name, count in failures(job.target.rules).items()}
        keys = {name: F.count_if(refused) for name, refused in _refused_keys(rows).items()}
        counts = counted(rows, {**keys, **failed, **_since(job, rows)})
    except PySparkException:
        _name_the_rule(job, unjudged)
        raise
    _refuse(job, counts)
    out = is_quarantined(job.target.rules)
    op = F.when(out, F.lit(DELETE)).otherwise(F.col("op"))
    written = rows.where(~out) if job.cut.replaces else rows.withColumn("op", op)
    aside = _aside(job, rows.where(out), folded.waiting, counts)
    return Checked(_flat(job, written), aside, {**folded.notes, **counts})


def _as_they_are(job: CutJob, folded: Folded) -> DataFrame:
    """Return net rows that MERGE completes, or the rows of a snapshot."""
    net = folded.folds.where(F.col("op").isin(INSERT, SNAPSHOT)) if job.cut.replaces else folded.folds
    rows = net_rows(net, position="position")
    return rows if folded.partial and not job.cut.replaces else rows.drop(PRESENT)


def _rows(job: CutJob, folded: Folded) -> DataFrame:
    """Return the rows the cut comes to, by the table's keys: ``key``, ``op``, ``position`` and ``after``."""
    if job.cut.replaces:
        there = _snapshot_rows(job, folded.folds)
        return snapshot_by_keys(there, keys=job.keys) if job.rekeyed else there
    assert folded.before is not None, "a cut that completes rows has looked them up"
    rows = completed(folded.folds, folded.before, upsert=job.target.upsert)
    if not job.rekeyed:
        return rows
    rows = job.cached(rows)
    moved = job.cached(by_keys(rows, keys=job.keys))
    return moved if job.current is None else with_taken(moved, job.current, rows, few=folded.few)


def _snapshot_rows(job: CutJob, net: DataFrame) -> DataFrame:
    after = row_after(net, job.row).alias("after")
    return net.where(F.col("op").isin(INSERT, SNAPSHOT)).select("key", F.lit(INSERT).alias("op"), "position", after)


def _refused_keys(rows: DataFrame) -> dict[str, Column]:
    """Return what tells of a row that its key is refused, and why; none where the source itself names rows by them."""
    if "claims" not in rows.columns:
        return {}
    null = reduce(or_, (F.col(f"key.{quoted(name)}").isNull() for name in struct_type(rows, "key").names))
    twice = (F.col("claims") > 1) | (F.col("taken") if "taken" in rows.columns else F.lit(False))
    return {_NULL: null & (F.col("claims") > 0), _TWICE: ~null & twice}


def _since(job: CutJob, rows: DataFrame) -> dict[str, Column]:
    """Return the aggregate that tells the position behind which every cut is refused, as far as this one goes.

    A row stays as the cut leaves it from its last change on. Not known where positions are not those of frames.
    """
    forbidden = [F.array_contains(FAILED, rule.name) for rule in job.target.rules if rule.action == "fail"]
    refused = [*_refused_keys(rows).values(), *forbidden]
    if job.target.connector.source_ordered or not refused:
        return {}
    return {_SINCE: F.min(F.when(reduce(or_, refused), F.col("position")))}


def _refuse(job: CutJob, counts: Mapping[str, int]) -> None:
    table, since = job.target.name, counts.get(_SINCE)
    if _NULL in counts:
        raise NullKey("a row of the source has a NULL key", table=table, since=since)
    if _TWICE in counts:
        raise DuplicateKey("two rows of the source have the same key", table=table, since=since)
    forbidden = {rule.name: f"failed.{rule.name}" for rule in job.target.rules if rule.action == "fail"}
    failed = ", ".join(f"{rule}: {counts[name]}" for rule, name in forbidden.items() if name in counts)
    if failed:
        raise ExpectationFailed(f"rows fail rules that none may fail: {failed}", table=table, since=since)


def _name_the_rule(job: CutJob, unjudged: DataFrame) -> None:
    """Raise ExpectationFailed if a rule is to blame for rows that cannot be judged. Runs Spark jobs.

    Spark does not tell which row it was: the position of the first one is found by halves, in the rows there are.
    """
    rows, rules = job.cached(unjudged), job.target.rules
    compute_all(rows)  # what else is wrong is raised as it is
    positions = sorted(line.position for line in rows.select("position").distinct().collect())
    first = bisect_left(
        positions, True, key=lambda last: _error(job, rows.where(F.col("position") <= last), rules) is not None
    )
    for rule in rules if first < len(positions) else ():
        error = _error(job, rows.where(F.col("position") == positions[first]), [rule])
        if error is not None:
            reason = f"rule {rule.name} cannot be judged of a row: {error.getCondition()} (try_cast and such give NULL)"
            since = None if job.target.connector.source_ordered else positions[first]
            raise ExpectationFailed(reason, table=job.target.name, since=since) from error


def _error(job: CutJob, rows: DataFrame, rules: Sequence[Rule]) -> PySparkException | None:
    """Return the error that judging the rows raises, None if it raises none. Runs a Spark job."""
    try:
        compute_all(with_failed_rules(rows, rules, job.later))
    except PySparkException as error:
        return error
    return None


def _aside(job: CutJob, failing: DataFrame, waiting: DataFrame | None, counts: Mapping[str, int]) -> DataFrame | None:
    """Return the rows to be kept aside; None where there are none, and were none."""
    quarantines = any(f"failed.{rule.name}" in counts for rule in job.target.rules if rule.action == "quarantine")
    if job.aside is None and waiting is None and not quarantines:
        return None
    unsent = F.lit(None).cast("array<string>").alias(PRESENT)
    rows = failing.select("after.*", F.col("position").alias(POSITION), unsent, F.col(FAILED).alias(REASONS))
    if waiting is None:
        return rows
    reasons = F.array(F.lit(UNEXPLAINED)).alias(REASONS)
    return rows.unionByName(net_rows(waiting, reasons, position="position").drop(OP), allowMissingColumns=True)


def _flat(job: CutJob, rows: DataFrame) -> DataFrame:
    """Return checked rows as net rows with whole rows."""
    keys = {folded(name): name for name in struct_type(rows, "key").names}

    def cell(field: T.StructField) -> Column:
        key = keys.get(folded(field.name))
        after = F.col(f"after.{quoted(field.name)}")
        return (after if key is None else F.coalesce(F.col(f"key.{quoted(key)}"), after)).alias(field.name)

    return rows.select(F.col("op").alias(OP), F.col("position").alias(POSITION), *map(cell, job.row))
