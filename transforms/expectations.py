"""Checks rows against rules: conditions in Spark SQL, each with a name and an action.

A row meets a rule if the condition is TRUE; FALSE and NULL fail it, as in Delta's CHECK constraints. Rules apply to
complete rows after a cut: a partial update is completed first. Deletes are not checked.

Spark parses a condition once per cut, on a DataFrame that has the row's columns and one of ours with a unique name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from silverfold.conf.errors import UnusableExpectation
from silverfold.conf.model import Table
from silverfold.transforms.changes import struct_type

FAILED = "failed"
"""Column of checked rows: names of the rules they fail, in the order of the rules."""

_NAMES = "array<string>"


class Rule(NamedTuple):
    """One rule."""

    name: str
    condition: str
    """SQL on the columns of one row."""
    action: Literal["warn", "quarantine", "fail"]


def rules_of(table: Table) -> tuple[Rule, ...]:
    """Return a table's rules, in the order of its settings."""
    return tuple(Rule(name, each.condition, each.action) for name, each in table.expect.items())


def rules_digest(rules: Sequence[Rule]) -> str:
    """Return a digest that changes whenever the rules do."""
    found = sorted((rule.name, rule.condition, rule.action) for rule in rules)
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def check_rules(session: SparkSession, row: StructType, rules: Sequence[Rule], *, table: str) -> None:
    """Refuse a rule that cannot be evaluated on rows with these columns. Runs no job.

    Raises:
        UnusableExpectation: The condition names a missing column, or is not boolean.
    """
    if not rules:
        return
    from silverfold.conf.conditions import functions_for_columns  # noqa: PLC0415 - slow import, and most tables have no rules

    rows = session.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in row))
    for rule in rules:
        try:
            kind = rows.select(F.expr(rule.condition).alias("met")).schema["met"].dataType
        except PySparkException as error:
            what = (error.getMessageParameters() or {}).get("objectName", "")
            raise UnusableExpectation(
                f"rule {rule.name}: {error.getCondition()} {what}".rstrip(), table=table
            ) from error
        for function in functions_for_columns(rule.condition, row.names):
            raise UnusableExpectation(f"rule {rule.name}: there is no column {function}", table=table)
        if not isinstance(kind, BooleanType):
            raise UnusableExpectation(f"rule {rule.name}: {kind.simpleString()} is no condition", table=table)


def with_failed_rules(rows: DataFrame, rules: Sequence[Rule], later: Iterable[StructField] = ()) -> DataFrame:
    """Return the rows with the column `FAILED` added. Lazy.

    Args:
        rows: With the column ``after``: a struct of the row after the cut; NULL for a delete.
        later: Columns that rows lack as yet but rules may name: NULL.
    """
    if not rules:
        return rows.withColumn(FAILED, F.array().cast(_NAMES))
    absent = {field.name: F.lit(None).cast(field.dataType).alias(field.name) for field in later}
    ours = _unlike([*struct_type(rows, "after").names, *absent])
    flat = rows.select(F.struct(*rows.columns).alias(ours), "after.*", *absent.values())
    fails = (F.when(~F.coalesce(F.expr(rule.condition), F.lit(False)), F.lit(rule.name)) for rule in rules)
    named = F.array_compact(F.array(*fails).cast(_NAMES))
    failed = F.when(F.col(f"{ours}.after").isNull(), F.array().cast(_NAMES)).otherwise(named)
    return flat.select(f"{ours}.*", failed.alias(FAILED))


def failures(rules: Sequence[Rule]) -> dict[str, Column]:
    """Return, by rule, an aggregate that counts the checked rows which fail it."""
    return {rule.name: F.count_if(F.array_contains(FAILED, rule.name)) for rule in rules}


def is_quarantined(rules: Sequence[Rule]) -> Column:
    """Return whether a checked row fails a rule whose action is ``quarantine``."""
    names = [rule.name for rule in rules if rule.action == "quarantine"]
    return F.arrays_overlap(FAILED, F.array(*map(F.lit, names)).cast(_NAMES))


def _unlike(names: Iterable[str]) -> str:
    """Return a name that is longer than all the given names."""
    return "_" * (1 + max(map(len, names), default=0))
