"""Run a feed's receiver, epoch by epoch, and record the state of the connection in bronze.

Every epoch begins with a mark ``opened`` and ends with a mark ``closed`` with the reason, so that no gap is silent. A
stop during the wait for the next epoch closes the last one again: the newest mark is the receiver's present state.
Retryable errors are followed by a growing, randomised wait; any other ends the feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.transport import Address, listening_error
from silverfold.connectors.frames import Frame, Receiver, Resume, mark
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.landing.batch import WARNING
from silverfold.pipelines.landing.sink import BronzeSink
from silverfold.pipelines.landing.totals import LandingTotals
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.silver_position import SilverPosition, silver_positions, source_positions

_Result = TypeVar("_Result")

PATIENCE: Final = 30.0
"""Seconds that a stop waits for a receiver to hand over its frames and end."""


async def receive(
    feed: Feed,
    connector: Connector,
    places: Places,
    *,
    stop: asyncio.Event,
    clock: Callable[[], int],
    rng: Random,
    log: FilteringBoundLogger,
    totals: LandingTotals | None = None,
) -> int | None:
    """Land a feed's frames until ``stop`` is set; return the last position, with everything received committed.

    The position is None if ``stop`` came before the address to listen on was free: nothing was opened.

    Args:
        clock: Microseconds since 1970, UTC.
        rng: Spreads waits, and gives this writer its token.
        totals: Counts what is received and landed, for other threads to read.

    Raises:
        ConfigError: A setting turned out wrong.
        SourceRefused: The source will not serve the feed at all.
        Fenced: Another process took the feed over.
        StoreUnavailable: The store did not answer at the start, or not in time at the end.
    """
    log = log.bind(feed=feed.name)
    backoff = Backoff(feed.reconnect.first, feed.reconnect.longest, rng)
    if (address := connector.listens_at(feed)) is not None:
        await _until_free(address, backoff, stop, log)
        if stop.is_set():
            return None
    place = places.bronze(feed.name)
    tables = await asyncio.to_thread(silver_positions, places, feed.name, feed.tables)
    silver = await asyncio.to_thread(farthest, places, feed.name, tables)
    token = f"{rng.getrandbits(128):032x}"
    writer = await asyncio.to_thread(partial(BronzeWriter.open, place, feed.name, token=token, silver=silver))
    landed = Resume(writer.epoch)
    if connector.continuity == "resume":
        landed = await asyncio.to_thread(writer.resume, connector, source_positions(tables))
    log.info("receiving", connector=connector.name, last=writer.last, epoch=writer.epoch)
    if writer.emptied:
        log.warning(
            "bronze's newest commits are empty files: what they landed, if anything, is lost", commits=writer.emptied
        )
    async with BronzeSink(writer, place, feed.commit, clock=clock, rng=rng, log=log, totals=totals) as sink:
        if writer.lost is not None:
            sink.take(_lost_marks(connector, feed, *writer.lost))
        await _epochs(connector.receiver(feed), sink, landed, backoff, stop)
    log.info("stopped", last=sink.last, epoch=sink.epoch)
    return sink.last


async def _until_free(address: Address, backoff: Backoff, stop: asyncio.Event, log: FilteringBoundLogger) -> None:
    """Wait until an address can be listened on: opening the writer would fence the receiver that listens there."""
    while not stop.is_set() and (error := await listening_error(address)) is not None:
        wait = backoff.next_wait()
        log.warning("cannot listen yet", address=str(address), reason=error, next_in=round(wait, 3))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)
    backoff.reset()


def _lost_marks(connector: Connector, feed: Feed, first: int, last: int) -> list[Frame]:
    """Return marks for frames that bronze has lost, one per stream: they may have been of any."""
    streams = sorted({connector.stream(feed, table) for table in feed.tables})
    return [mark("frames lost", stream=stream, level=WARNING, first=first, last=last) for stream in [None, *streams]]


async def _epochs(receiver: Receiver, sink: BronzeSink, landed: Resume, backoff: Backoff, stop: asyncio.Event) -> None:
    while not stop.is_set():
        known = {**landed.source_positions, **sink.source_positions}
        resume = replace(landed, epoch=sink.begin_epoch(), source_positions=known)
        sink.take([mark("opened")])
        sink.totals.is_open = True
        ended = await _epoch(receiver, sink, resume, stop)
        sink.totals.end_epoch()
        if sink.progressed:
            backoff.reset()
        is_over = isinstance(ended, Exception) and not _is_retryable(ended)
        was_stopped = stop.is_set()
        wait = 0.0 if was_stopped or is_over else backoff.next_wait()
        sink.take([_closed_mark(ended, stopped=was_stopped, wait=None if is_over else wait)])
        if isinstance(ended, Exception) and is_over:
            raise ended
        await _run_until(stop, sink, _flush_and_wait(sink, wait))
        if stop.is_set() and not was_stopped:  # while it waited: the mark before promises another connection
            sink.take([_closed_mark(None, stopped=True, wait=0.0)])


async def _epoch(receiver: Receiver, sink: BronzeSink, resume: Resume, stop: asyncio.Event) -> Exception | str | None:
    """Run one epoch until it ends or is stopped; return the error that ended it, or the result of `Receiver.run`."""
    try:
        return await _run_until(stop, sink, receiver.run(sink, resume))
    except asyncio.CancelledError:
        sink.take([_closed_mark(None, stopped=True, wait=0.0)])
        raise
    except Exception as error:
        return error


async def _flush_and_wait(sink: BronzeSink, wait: float) -> None:
    """Commit the epoch's frames, then wait: without a store, a new connection would be useless."""
    await sink.flush()
    await asyncio.sleep(wait)


async def _run_until(stop: asyncio.Event, sink: BronzeSink, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """Run ``work`` to its end; cancel it when ``stop`` is set or the sink can no longer commit.

    Returns its result, or None if it was cancelled; it has ended. Raises the sink's failure, or else an error of
    ``work``.
    """
    running = asyncio.create_task(work)
    running.add_done_callback(_retrieve_exception)
    watching = [asyncio.create_task(stop.wait()), asyncio.create_task(sink.failed())]
    try:
        await asyncio.wait([running, *watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, *watching):
            task.cancel()
        await asyncio.wait([running, *watching], timeout=PATIENCE)
    sink.check()
    return running.result() if running.done() and not running.cancelled() else None


def _retrieve_exception(task: asyncio.Task[_Result]) -> None:
    """Retrieve a task's exception: if it fails while cancelled nobody else does, and asyncio would complain."""
    if not task.cancelled():
        task.exception()


def _is_retryable(error: Exception) -> bool:
    return isinstance(error, SilverfoldError) and error.retryable


def _closed_mark(ended: Exception | str | None, *, stopped: bool, wait: float | None) -> Frame:
    """Return the mark that ends an epoch; without ``wait`` there is no next one."""
    if stopped:
        return mark("closed", reason="stopped here", error_class=None)
    name = None
    if isinstance(ended, Exception):
        name = ended.error_class if isinstance(ended, SilverfoldError) else type(ended).__name__
    reason = "the source ended the connection" if ended is None else str(ended)
    level = {} if name is None else {"level": WARNING}
    return mark("closed", reason=reason, error_class=name, next_in=None if wait is None else round(wait, 3), **level)


def farthest(places: Places, feed: str, tables: Mapping[str, SilverPosition]) -> SilverPosition:
    """Return the farthest position known from some tables of a feed and their quarantines, and the newest epoch.

    Raises:
        StoreUnavailable: The quarantine cannot be read now.
    """
    bad = (each.position for table in tables for each in quarantined(places, feed, table))
    positions = (-1, *(each.position for each in tables.values()), *bad)
    return SilverPosition(max(positions), max((each.epoch for each in tables.values()), default=0))
