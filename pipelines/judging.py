"""Judges the rows a cut comes to by the table's rules, and keeps aside those that may not stand.

Silver then is the source's rows that meet the rules, at every cut. A row that fails one is kept aside as it is at the
source, so that a change of some of its columns, or of the rule, lets it stand again, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from conf.errors import ExpectationFailed
from pipelines.work import Work
from transforms.aside import REASONS, keep_aside
from transforms.changes import DELETE, INSERT, cached
from transforms.expectations import FAILED, Rule, failures, is_kept_out, judged
from transforms.merge import OP, VACATED


def rows_to_write(work: Work, rows: DataFrame, rules: Sequence[Rule], waiting: DataFrame | None) -> DataFrame:
    """Return the rows to write: those that may not stand are deletes. Writes what is kept aside. Runs Spark jobs.

    Args:
        rows: Net rows; inserts of whole rows and deletes where there are rules, or rows kept aside.
        waiting: Net rows that wait for their row, to be kept aside too; None for none.

    Raises:
        ExpectationFailed: A row fails a rule whose action is ``fail``.
    """
    all_rows = work.kept.enter_context(cached(_with_those_aside(work, rows)))
    found = judged(all_rows, rules)
    counts = failures(found, rules)
    _refuse(work, [rule for rule in rules if rule.action == "fail"], counts)
    work.notes.update({f"failed.{name}": count for name, count in counts.items()})
    out = is_kept_out(rules)
    if counts or waiting is not None or work.aside is not None:
        failing = found.where(out).withColumnRenamed(FAILED, REASONS).drop(OP, VACATED)
        _keep_aside(work, [failing, *([] if waiting is None else [waiting])], found)
    return found.withColumn(OP, F.when(out, F.lit(DELETE)).otherwise(F.col(OP))).drop(FAILED)


def _refuse(work: Work, strict: Sequence[Rule], counts: dict[str, int]) -> None:
    told = ", ".join(f"{rule.name}: {counts[rule.name]}" for rule in strict if rule.name in counts)
    if told:
        raise ExpectationFailed(f"rows fail rules that none may fail: {told}", table=work.target.name)


def _with_those_aside(work: Work, rows: DataFrame) -> DataFrame:
    """Add the rows that fail rules and the cut does not speak of: the rules may have changed."""
    if work.failing is None or work.cut.replaces:
        return rows
    kept = work.kept.enter_context(cached(rows))
    others = work.failing.join(kept.select(*work.keys), list(work.keys), "left_anti").withColumn(OP, F.lit(INSERT))
    stays = {VACATED: F.lit(False)} if VACATED in rows.columns else {}
    return kept.unionByName(others.withColumns(stays), allowMissingColumns=True)


def _keep_aside(work: Work, coming: Sequence[DataFrame], touched: DataFrame) -> None:
    told = [touched, *([] if work.waiting is None else [work.waiting])]  # what waited was looked at again
    over = None if work.cut.replaces else reduce(DataFrame.unionByName, (rows.select(*work.keys) for rows in told))
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), coming)
    keep_aside(work.aside, rows, over, work.target.aside.url, position=work.cut.last)
