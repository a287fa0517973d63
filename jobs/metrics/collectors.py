"""Collectors for a registry of prometheus_client: one of feeds as the store has them, one of a receiver's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from silverfold.jobs.metrics.definitions import Sample, metrics_of

if TYPE_CHECKING:
    from silverfold.jobs.metrics.readings import CutTotals, FeedReading
    from silverfold.pipelines.landing.totals import LandingTotals
    from silverfold.pipelines.reading.status import FeedStatus, TableStatus

FRESH: Final = 1.0
"""Seconds for which a reading of the store serves further requests."""

_SOURCE_LAG: Final = {
    "seconds_behind": "source_lag_seconds",
    "updates_behind": "source_lag_updates",
    "records_behind_about": "source_lag_updates",
}
"""Metric of each measure of a source, as connectors name them, that is one of lag."""


class FeedCollector(Collector):
    """Reads feeds anew for each request, but at most once in `FRESH` seconds.

    Args:
        read: Reads all feeds from the store.
    """

    def __init__(self, read: Callable[[], Sequence[FeedReading]], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock, self._lock = read, clock, threading.Lock()
        self._found: Sequence[FeedReading] = ()
        self._read_at = float("-inf")

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all feeds."""
        with self._lock:
            if self._clock() >= self._read_at + FRESH:
                self._found, self._read_at = self._read(), self._clock()
            found = self._found
        return metrics_of(sample for each in found for sample in samples_of_reading(each))


class ReceiverCollector(Collector):
    """Tells the totals of this process's receivers.

    Args:
        totals: By feed.
    """

    def __init__(self, totals: Mapping[str, LandingTotals]) -> None:
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all receivers."""
        return metrics_of(
            sample for feed, totals in self._totals.items() for sample in samples_of_receiver(feed, totals)
        )


def samples_of_reading(reading: FeedReading) -> Iterator[Sample]:
    """Yield what a reading of the store says of one feed and its tables."""
    feed, status = reading.feed, reading.status
    yield "feed_up", reading.is_whole, feed
    if status is None:
        return
    yield from _samples_of_feed(status)
    for table in status.tables:
        yield from _samples_of_table(feed, table)
        yield from _samples_of_cuts(feed, table.table, reading.cuts[table.table])


def _samples_of_feed(status: FeedStatus) -> Iterator[Sample]:
    if status.receiver is not None:
        yield "receiver_connected", status.receiver.state == "connected", status.feed
    if status.landed_at is not None:
        yield "last_received_timestamp_seconds", status.landed_at.timestamp(), status.feed
    if status.epoch is not None:
        yield "epochs_total", status.epoch, status.feed
    for part, measures in status.source.items():
        for measure, metric in _SOURCE_LAG.items():
            if measure in measures:
                yield metric, measures[measure], status.feed, part


def _samples_of_table(feed: str, table: TableStatus) -> Iterator[Sample]:
    name = table.table
    yield "lag_seconds", table.lag_seconds, feed, name
    yield "lag_updates", table.lag_updates, feed, name
    for state in type(table.state):
        yield "table_state", state is table.state, feed, name, state.value
    yield "quarantined_frames", len(table.skipped_positions) + (table.state == "held"), feed, name
    if table.rows_aside is not None:
        yield "rows_aside", table.rows_aside, feed, name
    if table.last_cut is not None:
        yield "last_cut_timestamp_seconds", table.last_cut.committed_at.timestamp(), feed, name


def _samples_of_cuts(feed: str, table: str, totals: CutTotals) -> Iterator[Sample]:
    yield "cut_seconds_count", totals.timed, feed, table
    yield "cut_seconds_sum", totals.seconds, feed, table
    yield "changes_total", totals.inserted, feed, table, "insert"
    yield "changes_total", totals.updated, feed, table, "update"
    yield "changes_total", totals.deleted, feed, table, "delete"
    for rule, count in totals.failures.items():
        yield "rule_failures_total", count, feed, table, rule


def samples_of_receiver(feed: str, totals: LandingTotals) -> Iterator[Sample]:
    """Yield what a process has counted of one feed."""
    yield "receiver_connected", totals.is_connected, feed
    if totals.received_at is not None:
        yield "last_received_timestamp_seconds", totals.received_at / 1e6, feed
    yield "epochs_total", totals.epochs, feed
    for stream, runs in totals.snapshots.items():
        yield "snapshot_running", runs, feed, stream
    yield "received_frames_total", totals.frames, feed
    yield "received_bytes_total", totals.bytes, feed
    yield "held_bytes", totals.held_bytes, feed
    yield "commit_seconds_count", totals.commits, feed
    yield "commit_seconds_sum", totals.commit_seconds, feed
    yield "commit_failures_total", totals.commit_failures, feed
