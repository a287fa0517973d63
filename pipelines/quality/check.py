"""Judge the rows of silver tables by their rules, in one aggregate a table. Writes nothing.

The models here are printed by ``silverfold check --json``: their names and meanings must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from silverfold.conf.errors import ApplyError, SilverfoldError, StoreUnavailable, UnusableExpectation
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.quality.judged_rows import IS_ASIDE, JudgedRows, judged_rows
from silverfold.pipelines.report import Report
from silverfold.transforms.expectations import FAILED, Rule, check_rules, failures, rules_of, with_failed_rules
from silverfold.transforms.spark_errors import named_errors


class Verdict(StrEnum):
    """What came of a table's rules."""

    PASSED = "passed"
    """No row fails a rule whose action is ``fail``."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """A rule cannot be evaluated, or the table cannot be read now."""
    NOT_BUILT = "not_built"
    """There is no silver table yet."""


class RuleCheck(Report):
    """One rule. Counts are of the source's complete rows: those of the table, and those kept aside."""

    rule: str
    condition: str
    action: Literal["warn", "quarantine", "fail"]
    failed: int
    """Rows for which the condition is not true."""
    failed_aside: int
    """How many of them are kept aside. A ``quarantine`` rule that changed may have failing rows in the table, too."""


class TableCheck(Report):
    """One table."""

    table: str
    verdict: Verdict
    reason: str | None = None
    """Why the verdict is ``unknown``."""
    retryable: bool = False
    """A later check may succeed without any change: the store is unavailable."""
    delta_version: int | None = None
    """Version of the table that was checked; null without one."""
    rows: int | None = None
    rows_aside: int | None = None
    """How many of them are kept aside."""
    rules: tuple[RuleCheck, ...] = ()


class Check(Report):
    """Everything ``silverfold check --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    passed: bool
    """Every table passed."""
    tables: tuple[TableCheck, ...]
    """Those that have rules."""


def check_feed(spark: Callable[[], SparkSession], settings: Settings, feed: Feed, tables: Sequence[str]) -> Check:
    """Judge the rows of those of some tables that have rules, by the rules of today. Runs one Spark job a table.

    Args:
        spark: Called once, if a table has rules.
    """
    now, ruled = datetime.now(UTC), [name for name in tables if feed.tables[name].expect]
    found = tuple(check_tables(spark(), places_of(settings), feed, ruled)) if ruled else ()
    passed = all(each.verdict is Verdict.PASSED for each in found)
    return Check(at=now, warehouse=settings.warehouse, feed=feed.name, passed=passed, tables=found)


def check_tables(session: SparkSession, places: Places, feed: Feed, tables: Sequence[str]) -> Iterator[TableCheck]:
    """Yield the check of each table that has rules. Runs one Spark job a table."""
    for name in tables:
        rules = rules_of(feed.tables[name])
        if rules:
            yield _check_table(session, places, feed.name, name, rules)


def _check_table(session: SparkSession, places: Places, feed: str, table: str, rules: Sequence[Rule]) -> TableCheck:
    judged: JudgedRows | None = None
    try:
        judged = judged_rows(session, places, feed, table)
        if judged is None:
            return TableCheck(table=table, verdict=Verdict.NOT_BUILT)
        check_rules(session, judged.row, rules, table=table)
        counts = _counts(judged, rules, table)
    except SilverfoldError as error:
        unread = isinstance(error, StoreUnavailable)
        reason = str(error)
        if judged is not None and not unread and not isinstance(error, UnusableExpectation):
            reason = failing_rule(judged, rules, table) or reason
        return TableCheck(table=table, verdict=Verdict.UNKNOWN, reason=reason, retryable=unread)
    checks = tuple(_rule_check(rule, counts) for rule in rules)
    failed = any(each.failed for each in checks if each.action == "fail")
    return TableCheck(
        table=table,
        verdict=Verdict.FAILED if failed else Verdict.PASSED,
        delta_version=judged.version,
        rows=counts[_ROWS],
        rows_aside=counts[_ROWS_ASIDE],
        rules=checks,
    )


_ROWS, _ROWS_ASIDE = "all rows", "rows aside"
"""Names of counts; no rule's name has a space."""


def _counts(judged: JudgedRows, rules: Sequence[Rule], table: str) -> Mapping[str, int]:
    """Count rows, and by rule those that fail it. Runs a Spark job."""
    rows = with_failed_rules(judged.rows, rules)
    failed = failures(rules)
    on_side = {f"{name} aside": F.count_if(F.col(IS_ASIDE) & F.array_contains(FAILED, name)) for name in failed}
    totals: dict[str, Column] = {_ROWS: F.count(F.lit(1)), _ROWS_ASIDE: F.count_if(IS_ASIDE)}
    counted = (column.alias(name) for name, column in {**totals, **failed, **on_side}.items())
    with named_errors(table):
        return rows.agg(*counted).head(1)[0].asDict()


def failing_rule(judged: JudgedRows, rules: Sequence[Rule], table: str) -> str | None:
    """Return which rule cannot be evaluated for some row, and why; None for none. Runs a Spark job for each rule."""
    for rule in rules:
        try:
            _counts(judged, [rule], table)
        except ApplyError as error:
            return f"rule {rule.name}: {error} (try_cast and such give NULL)"
    return None


def _rule_check(rule: Rule, counts: Mapping[str, int]) -> RuleCheck:
    return RuleCheck(
        rule=rule.name,
        condition=rule.condition,
        action=rule.action,
        failed=counts[rule.name],
        failed_aside=counts[f"{rule.name} aside"],
    )
