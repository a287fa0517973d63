"""``silverfold build``: bring a feed's silver tables up to what has landed, once or for good."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console

from conf.errors import SilverfoldError
from jobs.cli import main_of
from jobs.context import invocation
from jobs.stopping import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.build import FeedBuild, Step


def build(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on with what lands next, or end with what has landed by now.")
    ] = False,
) -> None:
    """Bring a feed's silver tables up to what has landed.

    Safe to stop and start at any moment, also by SIGKILL: a table's position is in its own log.
    Spark is started once there is something to apply.
    Exit code 1 when a table holds because of something it could not take; status says what.
    """
    settings = invocation(ctx).settings()
    connector, opened = invocation(ctx).feed(feed, settings)
    from pipelines.build import FeedBuild  # noqa: PLC0415 - --help must not load Spark
    from pipelines.spark import start_spark  # noqa: PLC0415 - as above

    @cache
    def spark() -> SparkSession:
        with Console(stderr=True).status("starting Spark"):
            return start_spark(settings, app=f"silverfold build {feed}")

    with stopped_by_signals() as stop:
        if follow:
            spark()  # what lands next is not to wait for it
        feed_build = FeedBuild(spark, settings, connector, opened)
        faults = run(feed_build, stop, follow=follow, poll_seconds=settings.build.poll_ms / 1000)
    for name, fault in sorted(faults.items()):
        print(f"silverfold: {name} holds: {fault}")
    if faults:
        raise typer.Exit(1)


def run(
    feed_build: FeedBuild, stop: threading.Event, *, follow: bool, poll_seconds: float
) -> dict[str, SilverfoldError]:
    """Apply cuts until nothing more has landed, or until ``stop`` with ``follow``; return what holds which table.

    Raises:
        StoreUnavailable: Bronze cannot be read, and ``follow`` is off.
    """
    log = structlog.get_logger("build").bind(feed=feed_build.feed.name)
    faults: dict[str, SilverfoldError] = {}
    feed_build.refresh()
    while not stop.is_set():
        moved = False
        for step in feed_build.step():
            moved |= step.moved
            _log(log, step, faults)
        if moved:
            continue
        if not follow:
            break
        stop.wait(poll_seconds)
        _refresh(feed_build, log)
    return faults


def _refresh(feed_build: FeedBuild, log: structlog.typing.FilteringBoundLogger) -> None:
    try:
        feed_build.refresh()
    except SilverfoldError as error:
        if not error.retryable:
            raise
        log.warning("store unavailable", error_class=error.error_class, reason=str(error))


def _log(log: structlog.typing.FilteringBoundLogger, step: Step, faults: dict[str, SilverfoldError]) -> None:
    """Log what moved and what newly holds, one line each."""
    cut = step.applied
    if cut is not None:
        log.info(
            "cut applied",
            table=step.table,
            epoch=cut.epoch,
            first_position=cut.first_position,
            last_position=cut.last_position,
            replaced=cut.replaced,
            updates=cut.updates,
            inserted=cut.inserted,
            updated=cut.updated,
            deleted=cut.deleted,
            seconds=cut.seconds,
            **cut.notes,
        )
    before = faults.pop(step.table, None)
    if step.error is not None:
        faults[step.table] = step.error
        if str(before) != str(step.error):
            log.error("table holds", table=step.table, error_class=step.error.error_class, reason=str(step.error))
    elif before is not None:
        log.info("table goes on", table=step.table)


if __name__ == "__main__":
    main_of("build")
