"""Builds feeds as ``silverfold build`` does: opens their tables, applies cuts in turns, and reports what came of it.

The models here are printed by ``silverfold build --json``: their names and meanings must not change.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial

import structlog
from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError, SparkUnavailable, StoreUnavailable, UndecodableFrame
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.feeds import OpenFeed
from silverfold.pipelines.applying.build import FeedBuild, Step
from silverfold.pipelines.applying.turns import take_turns
from silverfold.pipelines.landing.source_change import misread_since_landed
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import places_of
from silverfold.pipelines.report import Report
from silverfold.pipelines.storage.cuts import emptied_since_whole, position_reached


class TableFault(Report):
    """Why a table holds, or could not be built."""

    error_class: str
    """Stable name (`conf.errors`)."""
    reason: str
    retryable: bool
    """A later build may succeed without any change: the store is to blame. Otherwise the table holds."""
    position: int | None
    """Position of the frame that cannot be decoded; null if it is no frame that is to blame."""


class BuiltTable(Report):
    """One silver table. Counts are of the cuts applied by this build."""

    table: str
    position: int | None
    """Position the table has reached; null before its first cut, or if it cannot be read."""
    cuts: int
    updates: int
    inserted: int
    updated: int
    deleted: int
    fault: TableFault | None
    """Null if the table has what had landed, or waits for the rest of an update or snapshot."""


class BuiltFeed(Report):
    """One feed."""

    feed: str
    landed_position: int | None
    """Newest position of bronze; null if nothing has landed, or it cannot be read."""
    tables: tuple[BuiltTable, ...]


class BuildReport(Report):
    """Everything ``silverfold build --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    complete: bool
    """No table has a ``fault``, and the build was not ``interrupted``."""
    interrupted: bool
    """It was stopped before all that had landed was applied; false for one that follows."""
    feeds: tuple[BuiltFeed, ...]


Faults = dict[tuple[str, str], SilverfoldError]
"""Errors by names of feed and table."""

Counts = MutableMapping[tuple[str, str], Counter[str]]
"""Numbers of applied cuts and of their changes, by names of feed and table."""

_COUNTED = ("updates", "inserted", "updated", "deleted")


def build_feeds(
    spark: Callable[[], SparkSession],
    settings: Settings,
    feeds: Sequence[OpenFeed],
    *,
    follow: bool = False,
    stop: threading.Event | None = None,
) -> BuildReport:
    """Apply what has landed for some feeds; with ``follow`` go on with what lands next. Runs Spark jobs.

    Safe to stop at any moment and to repeat: a table's position is in its own log. A feed, or a table, that cannot be
    read at the start is left out until the next build, and the others are built.

    Args:
        spark: Returns the session whose JVM runs the jobs. Called once, when there is work; with ``follow`` at once.
        stop: Ends the build once set, after the cuts at work.

    Raises:
        SilverfoldError: None of the feeds can be opened: the error of the first.
        SparkUnavailable: Spark does not start, or ended although the build was not stopped.
    """
    now, stop, session = datetime.now(UTC), stop or threading.Event(), _once(spark)
    faults: Faults = {}
    counts: Counts = {}
    landed: dict[str, int] = {}
    with ExitStack() as ended:
        if follow:
            session()  # start now, so that the next frames need not wait for it
        builds: list[FeedBuild] = []
        for connector, feed in feeds:
            opened, unreadable = _open_build(partial(FeedBuild.open, session, settings, connector), feed)
            builds += [ended.enter_context(each) for each in opened]
            faults |= {(feed.name, table): error for table, error in unreadable.items()}
            if opened or len(feeds) > 1:
                _log_unreadable(feed.name, unreadable, of_all=not opened)
        if not builds:
            raise next(iter(faults.values()))
        for build in builds:
            _log_start(settings, build)
        faults |= run(builds, stop, follow=follow, counts=counts)
        landed = {build.feed.name: build.landed for build in builds}
    interrupted = not follow and stop.is_set()
    return BuildReport(
        at=now,
        warehouse=settings.warehouse,
        complete=not faults and not interrupted,
        interrupted=interrupted,
        feeds=tuple(_built_feed(settings, feed, landed.get(feed.name, -1), faults, counts) for _, feed in feeds),
    )


def _once(spark: Callable[[], SparkSession]) -> Callable[[], SparkSession]:
    """Return a function that calls another at most once, whichever threads call it."""
    started, starting = cache(spark), threading.Lock()

    def session() -> SparkSession:
        with starting:
            return started()

    return session


def _built_feed(
    settings: Settings, feed: Feed, landed: int, faults: Faults, counts: Mapping[tuple[str, str], Counter[str]]
) -> BuiltFeed:
    places = places_of(settings)

    def position(table: str) -> int | None:
        with suppress(StoreUnavailable):
            return _position(position_reached(places, feed.name, table))
        return None

    def built(table: str) -> BuiltTable:
        done, fault = counts.get((feed.name, table), Counter()), faults.get((feed.name, table))
        numbers = {name: done[name] for name in ("cuts", *_COUNTED)}
        return BuiltTable(
            table=table, position=position(table), **numbers, fault=None if fault is None else _table_fault(fault)
        )

    return BuiltFeed(feed=feed.name, landed_position=_position(landed), tables=tuple(map(built, feed.tables)))


def _table_fault(error: SilverfoldError) -> TableFault:
    position = error.position if isinstance(error, UndecodableFrame) else None
    return TableFault(error_class=error.error_class, reason=str(error), retryable=error.retryable, position=position)


def _position(position: int) -> int | None:
    return None if position < 0 else position


def _open_build(
    build_of: Callable[[Feed], FeedBuild], feed: Feed
) -> tuple[Sequence[FeedBuild], Mapping[str, SilverfoldError]]:
    """Return the build of a feed, or of its readable tables, if any, and the errors of the other tables by name."""

    def refreshed(feed: Feed) -> FeedBuild:
        found = build_of(feed)
        try:
            found.refresh()
        except BaseException:
            found.close()
            raise
        return found

    try:
        return [refreshed(feed)], {}
    except SilverfoldError as error:
        if len(feed.tables) == 1 or not isinstance(error, StoreUnavailable):
            return [], dict.fromkeys(feed.tables, error)
        of_all = error
    readable, faults = {}, dict[str, SilverfoldError]()
    for name, table in feed.tables.items():
        try:
            refreshed(replace(feed, tables={name: table})).close()
        except SilverfoldError as error:
            faults[name] = error
        else:
            readable[name] = table
    if not readable:
        return [], dict.fromkeys(feed.tables, of_all)
    return [refreshed(replace(feed, tables=readable))], faults


def _log_start(settings: Settings, build: FeedBuild) -> None:
    """Log what a build begins with, and what is wrong with it."""
    feed, log = build.feed.name, get_logger("build").bind(feed=build.feed.name)
    change = misread_since_landed(settings, build.connector, build.feed)
    if change is not None:
        log.warning(change.summary, advice="`silverfold config check` names what changed")
    for table in build.tables:
        version = None
        with suppress(StoreUnavailable):  # the table's cuts report it
            version = emptied_since_whole(places_of(settings), feed, table)
        if version is not None:
            advice = "`silverfold verify` tells what is missing, `silverfold rebuild` brings it back"
            log.warning("a commit is an empty file: rows may be missing", table=table, version=version, advice=advice)
    if build.landed < 0:
        log.warning(_nothing_to_build(settings, build), advice="start `silverfold receive` (again)")
    else:
        log.info("building", tables=len(build.tables), landed=build.landed)


def _nothing_to_build(settings: Settings, build: FeedBuild) -> str:
    """Return a message that there is nothing to build from, or nothing new."""
    name = build.feed.name
    if all(table.position() < 0 for table in build.tables.values()):
        return f"nothing has landed for feed {name} in {places_of(settings).bronze(name)}"
    return f"bronze of feed {name} ends before the position that its tables have reached"


def _log_unreadable(feed: str, faults: Mapping[str, SilverfoldError], *, of_all: bool) -> None:
    """Log what is left out until the build is restarted, each error once."""
    what = "feed cannot be read" if of_all else "a table cannot be read, the others are built"
    for reason, error in {str(error): error for error in faults.values()}.items():
        get_logger("build").error(what, feed=feed, error_class=error.error_class, reason=reason)


def run(
    builds: Sequence[FeedBuild],
    stop: threading.Event | None = None,
    *,
    follow: bool = False,
    counts: Counts | None = None,
) -> Faults:
    """Apply cuts until nothing more has landed or ``stop`` is set, with ``follow`` until ``stop`` is set.

    Args:
        builds: Builds that have been refreshed once.
        counts: Is added to.

    Returns:
        The error that holds each table.

    Raises:
        SparkUnavailable: Spark does not start, or ended although the build was not stopped.
    """
    log = get_logger("build")
    faults: Faults = {}
    conf = builds[0].settings.build
    turns = take_turns(
        builds,
        stop or threading.Event(),
        at_once=conf.tables_at_once,
        follow=partial(_refresh, log=log) if follow else None,
        poll_seconds=conf.poll_ms / 1000,
    )
    for build, step in turns:
        if isinstance(step.error, SparkUnavailable):
            if stop is not None and stop.is_set():
                continue  # the signal that stops this process has also reached Spark's
            raise step.error
        table = build.feed.name, step.table
        if step.applied is not None and counts is not None:
            found = counts.setdefault(table, Counter())
            found.update(cuts=1, **{name: getattr(step.applied, name) for name in _COUNTED})
        _log(log.bind(feed=build.feed.name), step, table, faults)
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
    faults: Faults,
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
    if step.error is None and cut is None and step.unfinished:
        return  # undecided: a shorter cut is tried next
    before = faults.pop(table, None)
    if step.error is not None:
        faults[table] = step.error
        if before is None or before.error_class != step.error.error_class:
            log.error("table holds", table=step.table, error_class=step.error.error_class, reason=str(step.error))
            log.debug("traceback", table=step.table, exc_info=step.error)
    elif before is not None:
        log.info("table goes on", table=step.table)
