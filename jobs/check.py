"""``silverfold check``: judge the rows of silver tables by the tables' rules.

With ``--json`` one object is printed, with stable names and meanings: `pipelines.quality.check`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.text import Text

from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, console_on, print_json
from silverfold.jobs.common.context import Tables, invocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from silverfold.pipelines.quality.check import Check, RuleCheck, TableCheck
    from silverfold.pipelines.quality.suites import SuiteResult
    from silverfold.pipelines.report import Report

COLOURS = {"passed": "green", "failed": "red", "unknown": "red", "not_built": "yellow"}
"""Colour of a verdict."""


def check(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    *,
    table: Tables = None,
    as_json: AsJson = False,
) -> None:
    """Judge the rows of silver tables by their rules, `expect` in the settings.

    A build judges rows as they change. This judges all rows there are, by the rules of today: those of the table and
    those that a rule keeps aside, in one Spark job a table. A table without rules is left out.

    Exit code 1 when rows fail a rule whose action is `fail`, or a table that has rules cannot be judged or is not
    built; 3 when nothing but the store is to blame. Rows that fail a `warn` or `quarantine` rule are told.
    """
    from silverfold.connectors.feeds import chosen_tables  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.pipelines.quality.check import check_feed  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    run = invocation(ctx)
    settings = run.settings()
    _, opened = run.feed(feed, settings)
    tables = chosen_tables(opened, table)
    with Console(stderr=True).status("checking") as status:

        def start() -> SparkSession:
            status.update("starting Spark")
            session = start_spark(settings, app=f"silverfold check {feed}")
            status.update("checking")
            return session

        checked = check_feed(start, settings, opened, tables)
    finish(checked, checked.tables, None if as_json else partial(show, checked))


def finish(result: Report, parts: Sequence[TableCheck | SuiteResult], show: Callable[[TextIO], None] | None) -> None:
    """Print a result, by default as JSON, and end by the verdicts of its parts.

    Raises:
        typer.Exit: Not all passed: 3 if nothing but the store is to blame, else 1.
    """
    if show is None:
        print_json(result)
    else:
        show(sys.stdout)
    bad = [each for each in parts if each.verdict.value != "passed"]
    if bad:
        raise typer.Exit(3 if all(each.retryable for each in bad) else 1)


def show(checked: Check, out: TextIO) -> None:
    """Print the result for users: a line per table, and one per rule."""
    console = console_on(out)
    if not checked.tables:
        console.print(f"no rules: `expect` of a table of feed {checked.feed} is where they are set")
    for table in checked.tables:
        console.print(_line(table))
        for rule in table.rules:
            console.print(_rule_line(rule))


def _line(table: TableCheck) -> Text:
    text = Text.assemble(f"{table.table}: ", (table.verdict.value, COLOURS[table.verdict.value]))
    if table.reason is not None:
        text.append(f": {table.reason}")
    if table.rows is not None:
        side = f", {table.rows_aside:,} of them kept aside," if table.rows_aside else ""
        text.append(f": {counted(table.rows, 'row')}{side} at version {table.delta_version}")
    return text


def _rule_line(rule: RuleCheck) -> Text:
    if not rule.failed:
        return Text(f"  {rule.rule}: all rows meet it")
    verb = "fails" if rule.failed == 1 else "fail"
    side = f", {rule.failed_aside:,} of them kept aside" if rule.failed_aside else ""
    text = Text(f"  {rule.rule}: {counted(rule.failed, 'row')} {verb} it{side} ({rule.action}): {rule.condition}")
    text.stylize("red" if rule.action == "fail" else "yellow")
    return text


if __name__ == "__main__":
    main_of("check")
