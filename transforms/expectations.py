"""Judges rows by rules: SQL conditions with a name and an action, in the pass that applies them anyway.

A row meets a rule where its condition is TRUE; FALSE and NULL fail it, as in Delta's own CHECK constraints. Rules are
of whole rows, as they are about to stand: a partial update is completed first. Deletes are not judged.

That all rows meet the rules costs no job: the write itself fails where one does not (`guarded`, and the rules of
`transforms.merge.merge`, which completes partial updates). Only then are rows looked at and counted (`judged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from conf.errors import UnusableExpectation
from transforms.changes import DELETE
from transforms.faults import EXPECTATION
from transforms.merge import OP

FAILED = "_failed"
"""Column of judged rows: names of the rules they fail, in the order of the rules."""


_NAMES = "array<string>"


class Rule(NamedTuple):
    """One rule."""

    name: str
    condition: str
    """SQL on the columns of one row."""
    action: Literal["warn", "quarantine", "fail"]


def guarded(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return whole net rows unchanged, or let the job that reads them fail where one fails a rule. Lazy."""
    if not rules:
        return rows
    wrong = F.size(_failed(rules)) > 0
    return rows.where(F.when(wrong, F.raise_error(F.lit(EXPECTATION)).cast("boolean")).otherwise(F.lit(True)))


def check_rules(session: SparkSession, columns: StructType, rules: Sequence[Rule], *, table: str) -> None:
    """Refuse a rule that rows with these columns cannot be judged by. Runs no job.

    Raises:
        UnusableExpectation: The condition names a column the table lacks, or is no condition.
    """
    if not rules:
        return
    rows = session.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in columns))
    for rule in rules:
        try:
            kind = rows.select(F.expr(rule.condition).alias("met")).schema["met"].dataType
        except PySparkException as error:
            raise UnusableExpectation(f"rule {rule.name}: {error.getCondition()}", table=table) from error
        if not isinstance(kind, BooleanType):
            raise UnusableExpectation(f"rule {rule.name}: {kind.simpleString()} is no condition", table=table)


def judged(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return the net rows with the column `FAILED`. Lazy."""
    return rows.withColumn(FAILED, _failed(rules))


def failures(rows: DataFrame, rules: Sequence[Rule]) -> dict[str, int]:
    """Return by rule how many judged rows fail it; none that no row fails. Runs one Spark job."""
    if not rules:
        return {}
    counts = [F.count_if(F.array_contains(FAILED, rule.name)).alias(rule.name) for rule in rules]
    line = rows.agg(*counts).first()
    assert line is not None
    return {rule.name: line[at] for at, rule in enumerate(rules) if line[at]}


def is_kept_out(rules: Sequence[Rule]) -> Column:
    """Tell whether a judged row fails a rule that keeps it out of the table."""
    names = [rule.name for rule in rules if rule.action == "quarantine"]
    return F.arrays_overlap(FAILED, F.array(*map(F.lit, names)).cast(_NAMES))


def _failed(rules: Sequence[Rule]) -> Column:
    fails = [F.when(~F.coalesce(F.expr(rule.condition), F.lit(False)), F.lit(rule.name)) for rule in rules]
    named = F.array_compact(F.array(*fails).cast(_NAMES))
    return F.when(F.col(OP) == DELETE, F.array().cast(_NAMES)).otherwise(named)
