"""``silverfold quality``: judge silver tables by suites of Great Expectations, with pages of results.

With ``--json`` one object is printed, with stable names and meanings: `pipelines.quality.suites`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.text import Text

from silverfold.conf.errors import ConfigError
from silverfold.jobs.check import COLOURS, finish
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, console_on
from silverfold.jobs.common.context import Tables, invocation
from silverfold.pipelines.places import places_of

if TYPE_CHECKING:
    from silverfold.pipelines.quality.suites import ExpectationResult, Quality, SuiteResult


def quality(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    *,
    table: Tables = None,
    project: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder that holds the project `gx`; it is made if it is not there.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Judge silver tables by their rules and your own suites, with pages of results.

    Needs Great Expectations: `silverfold[quality]`. The rules of a table, `expect` in its settings, are the suite
    FEED.TABLE of the project, written anew at each run. They judge the rows that `silverfold check` judges, with the
    same verdict: a rule that is to `fail` is critical, to `quarantine` a warning, to `warn` information. Suites of your
    own called FEED.TABLE.ANYTHING judge the table as queries see it: what is unique, how many rows, how fresh. Results
    and their pages stay in the project, which no network is needed for.

    Exit code 1 when a critical expectation is not met, one cannot be evaluated, or a table is not built; 3 when nothing
    but the store is to blame.
    """
    from silverfold.connectors.feeds import chosen_tables  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.pipelines.quality.check import Verdict  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    try:
        from silverfold.pipelines.quality.suites import Quality, QualityProject  # noqa: PLC0415 - takes seconds
    except ModuleNotFoundError as error:
        wanted = "its packages: install silverfold[quality]"
        raise ConfigError(file="command line", key="quality", found=error.name, allowed=wanted) from error
    run = invocation(ctx)
    settings, now = run.settings(), datetime.now(UTC)
    _, opened = run.feed(feed, settings)
    tables = chosen_tables(opened, table)
    with Console(stderr=True).status("opening the project") as status:
        suites = QualityProject.open(project)
        status.update("starting Spark")
        spark = start_spark(settings, app=f"silverfold quality {feed}")
        status.update("judging")
        found = tuple(suites.run(spark, places_of(settings), opened, tables))
    passed = all(each.verdict is Verdict.PASSED for each in found)
    judged = Quality(at=now, warehouse=settings.warehouse, feed=feed, passed=passed, docs=suites.docs, suites=found)
    finish(judged, found, None if as_json else partial(show, judged))


def show(judged: Quality, out: TextIO) -> None:
    """Print the result for users: a line per suite and expectation, and where the pages are."""
    console = console_on(out)
    if not judged.suites:
        console.print(f"no suites: no table of feed {judged.feed} has rules, nor a suite of its own in the project")
    for suite in judged.suites:
        console.print(_line(suite))
        for each in suite.expectations:
            console.print(_expectation_line(each))
    if judged.suites:
        console.print(f"pages: {judged.docs}")


def _line(suite: SuiteResult) -> Text:
    text = Text.assemble(f"{suite.suite}: ", (suite.verdict.value, COLOURS[suite.verdict.value]))
    if suite.reason is not None:
        text.append(f": {suite.reason}")
    if suite.delta_version is not None:
        text.append(f": {suite.table} at version {suite.delta_version}")
    return text


def _expectation_line(each: ExpectationResult) -> Text:
    if each.success:
        return Text(f"  {each.expectation}: met")
    what = f": {each.unexpected:,} unexpected" if each.unexpected is not None else ""
    why = f": {each.error}" if each.error is not None else ""
    return Text(
        f"  {each.expectation}: not met ({each.severity}){what}{why}",
        "red" if each.severity == "critical" else "yellow",
    )


if __name__ == "__main__":
    main_of("quality")
