"""``silverfold build``: apply landed frames to the silver tables of some feeds, once or continuously."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console

from silverfold.conf.errors import SilverfoldError, SparkUnavailable, StoreUnavailable, UndecodableFrame
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import Every, Names, invocation
from silverfold.jobs.common.source_change import misread_since_landed
from silverfold.jobs.common.ways_on import advice_for
from silverfold.pipelines.places import places_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Feed
    from silverfold.pipelines.applying.build import FeedBuild, Step


def build(
    ctx: typer.Context,
    feeds: Names = None,
    every: Every = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on with what lands next, or end with what has landed by now.")
    ] = False,
) -> None:
    """Bring the silver tables of some feeds up to what has landed.

    Safe to stop and start at any moment, also by SIGKILL: a table's position is in its own log.
    Spark is started once there is something to apply. Tables take turns, one cut each.
    Exit code 1 when a table holds because of something it could not take; status says what. 3 when nothing but the
    store is to blame; 130 when `--once` is stopped before its end. A feed, or a table, that cannot be read at the start
    is told, and the others are built; a mistake in the settings of any feed named is told before anything is built.
    """
    settings = invocation(ctx).settings()
    opened = invocation(ctx).chosen_feeds(settings, feeds, every)
    from silverfold.pipelines.applying.build import FeedBuild  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    @cache
    def start() -> SparkSession:
        with Console(stderr=True).status("starting Spark"):
            return start_spark(settings, app=f"silverfold build {', '.join(feed.name for _, feed in opened)}")

    starting = threading.Lock()

    def spark() -> SparkSession:
        with starting:
            return start()

    with stopped_by_signals() as stop, ExitStack() as ended:
        if follow:
            spark()  # start now, so that the next frames need not wait for it
        builds: list[FeedBuild] = []
        unreadable: list[SilverfoldError] = []
        for connector, feed in opened:
            found, faults_of = _open_builds(partial(FeedBuild.open, spark, settings, connector), feed)
            builds += [ended.enter_context(each) for each in found]
            unreadable += faults_of
            if found or len(opened) > 1:
                _log_unreadable(feed.name, faults_of, of_all=not found)
        for feed_build in builds:
            _warn_if_misread(settings, feed_build)
            _warn_if_emptied(settings, feed_build)
            if feed_build.landed < 0:
                print(f"silverfold: {_nothing_to_build(settings, feed_build)}: start `silverfold receive` (again)")
            else:
                _log_start(feed_build)
        faults = run(builds, stop, follow=follow) if builds else {}
    _print_held(faults, of_several=len(opened) > 1)
    if unreadable:
        raise unreadable[0]
    if faults:
        raise typer.Exit(3 if all(fault.retryable for fault in faults.values()) else 1)


def _open_builds(build_of: Callable[[Feed], FeedBuild], feed: Feed) -> tuple[list[FeedBuild], list[SilverfoldError]]:
    """Return the build of a feed, or of its readable tables, if any, and the errors of the others."""

    def refreshed(feed: Feed) -> FeedBuild:
        found = build_of(feed)
        try:
            found.refresh()
        except BaseException:
            found.close()
            raise
        return found

    try:
        return [refreshed(feed)], []
    except SilverfoldError as error:
        if len(feed.tables) == 1 or not isinstance(error, StoreUnavailable):
            return [], [error]
        of_all = error
    readable, faults = {}, dict[str, SilverfoldError]()
    for name, table in feed.tables.items():
        try:
            refreshed(replace(feed, tables={name: table})).close()
        except SilverfoldError as error:
            faults.setdefault(str(error), error)
        else:
            readable[name] = table
    if not readable:
        return [], [of_all]
    return [refreshed(replace(feed, tables=readable))], list(faults.values())


def _log_start(feed_build: FeedBuild) -> None:
    log = structlog.get_logger("build").bind(feed=feed_build.feed.name)
    log.info("building", tables=len(feed_build.tables), landed=feed_build.landed)


def _warn_if_misread(settings: Settings, feed_build: FeedBuild) -> None:
    """Warn if the current settings misread frames that have landed."""
    feed = feed_build.feed
    change = misread_since_landed(settings, feed_build.connector, feed)
    if change is not None:
        advice = "`silverfold config check` names what changed"
        structlog.get_logger("build").warning(change.summary, feed=feed.name, advice=advice)


def _warn_if_emptied(settings: Settings, feed_build: FeedBuild) -> None:
    """Warn if a power cut may have lost rows of a table that have not been restored since."""
    from silverfold.pipelines.storage.cuts import emptied_since_whole  # noqa: PLC0415 - --help must not load what jobs run on

    feed = feed_build.feed.name
    for name in feed_build.tables:
        version = None
        with suppress(StoreUnavailable):  # the table's cuts report it
            version = emptied_since_whole(places_of(settings), feed, name)
        if version is not None:
            advice = "`silverfold verify` tells what is missing, `silverfold rebuild` brings it back"
            log = structlog.get_logger("build").bind(feed=feed, table=name, version=version)
            log.warning("a commit is an empty file: rows may be missing", advice=advice)


def _nothing_to_build(settings: Settings, feed_build: FeedBuild) -> str:
    """Return a message that there is nothing to build from, or nothing new."""
    name = feed_build.feed.name
    if all(table.position() < 0 for table in feed_build.tables.values()):
        return f"nothing has landed for feed {name} in {places_of(settings).bronze(name)}"
    return f"bronze of feed {name} ends before the position that its tables have reached"


def _log_unreadable(feed: str, faults: Sequence[SilverfoldError], *, of_all: bool) -> None:
    """Log what is left out until the build is restarted."""
    what = "feed cannot be read" if of_all else "a table cannot be read, the others are built"
    for error in faults:
        log = structlog.get_logger("build")
        log.error(what, feed=feed, error_class=error.error_class, reason=str(error))


def _print_held(faults: Mapping[tuple[str, str], SilverfoldError], *, of_several: bool) -> None:
    """Print what holds each table, and how to continue."""
    for (feed, table), fault in sorted(faults.items()):
        name = f"{feed}.{table}" if of_several else table
        print(f"silverfold: {name} {'cannot be built now' if fault.retryable else 'holds'}: {fault}")
        position = fault.position if isinstance(fault, UndecodableFrame) else -1
        if advice := advice_for(fault.error_class, feed=feed, table=table, position=position):
            print(f"silverfold: {advice}")


def run(
    builds: Sequence[FeedBuild], stop: threading.Event | None = None, *, follow: bool = False
) -> dict[tuple[str, str], SilverfoldError]:
    """Apply cuts until nothing more has landed, or with ``follow`` until ``stop`` is set.

    Args:
        builds: Builds that have been refreshed once.

    Returns:
        The error that holds each table, by names of feed and table.

    Raises:
        SparkUnavailable: Spark does not start, or ended although the build was not stopped.
        typer.Exit: With 130: without ``follow``, ``stop`` was set before all was applied.
    """
    from silverfold.pipelines.applying.turns import take_turns  # noqa: PLC0415 - as above

    log = structlog.get_logger("build")
    faults: dict[tuple[str, str], SilverfoldError] = {}
    conf = builds[0].settings.build
    turns = take_turns(
        builds,
        stop or threading.Event(),
        at_once=conf.tables_at_once,
        follow=partial(_refresh, log=log) if follow else None,
        poll_seconds=conf.poll_ms / 1000,
    )
    for feed_build, step in turns:
        if isinstance(step.error, SparkUnavailable):
            if stop is not None and stop.is_set():
                continue  # the signal that stops this process has also reached Spark's
            raise step.error
        name = feed_build.feed.name
        _log(log.bind(feed=name), step, (name, step.table), faults)
    if not follow and stop is not None and stop.is_set():
        print("silverfold: interrupted: what had landed may not all be built", file=sys.stderr)
        raise typer.Exit(130)
    return faults


def _refresh(feed_build: FeedBuild, *, log: structlog.typing.FilteringBoundLogger) -> None:
    try:
        feed_build.refresh()
    except SilverfoldError as error:
        if not error.retryable:
            raise
        reason = str(error)
        log.warning("store unavailable", feed=feed_build.feed.name, error_class=error.error_class, reason=reason)


def _log(
    log: structlog.typing.FilteringBoundLogger,
    step: Step,
    table: tuple[str, str],
    faults: dict[tuple[str, str], SilverfoldError],
) -> None:
    """Log an applied cut, and a table that newly holds or continues, one line each."""
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
    if step.error is None and cut is None and step.moved:
        return  # undecided: a shorter cut is tried next
    before = faults.pop(table, None)
    if step.error is not None:
        faults[table] = step.error
        if before is None or before.error_class != step.error.error_class:
            log.error("table holds", table=step.table, error_class=step.error.error_class, reason=str(step.error))
            log.debug("traceback", table=step.table, exc_info=step.error)
    elif before is not None:
        log.info("table goes on", table=step.table)


if __name__ == "__main__":
    main_of("build")
