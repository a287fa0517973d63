"""What Prometheus reads, from readings of the store and from totals of a process that are made by hand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from silverfold.jobs.metrics.collectors import FeedCollector, ReceiverCollector
from silverfold.jobs.metrics.definitions import METRICS, PREFIX, metrics_of
from silverfold.jobs.metrics.readings import CutTotals, FeedReading
from silverfold.pipelines.landing.totals import LandingTotals
from silverfold.pipelines.reading.status import (
    Fault,
    FeedStatus,
    ReceiverState,
    ReceiverStatus,
    TableState,
)
from tests.support.statuses import last_cut, status_of

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
QUOTES = status_of(
    "quotes",
    state=TableState.HELD,
    fault=Fault(error_class="UNDECODABLE_FRAME", reason="ends at byte 40", position=117, since=NOON),
    epoch=2,
    landed_position=119,
    applied_position=110,
    lag_updates=3,
    lag_seconds=4.25,
    rows=1234,
    rows_aside=2,
    skipped_positions=(7, 9),
    last_cut=last_cut(
        position=110,
        delta_version=8,
        committed_at=NOON - timedelta(hours=3),
        seconds=1.5,
        updates=2,
        inserted=5,
        deleted=1,
    ),
)
NEW = status_of("trades", rows_aside=None)
MARKET = FeedStatus(
    feed="market",
    connector="hstreamdb",
    epoch=2,
    landed_position=120,
    landed_at=NOON - timedelta(milliseconds=250),
    receiver=ReceiverStatus(state=ReceiverState.CONNECTED, since=NOON, reason=None, error_class=None),
    tables=(QUOTES, NEW),
    source={
        "shard 7": {"batches_behind": 3, "records_behind_about": 30, "seconds_behind": 1.5},
        "table orders": {"updates_behind": 4, "seconds_behind": 0.0},
        "subscription": {"records_unacknowledged": 9},
    },
)
CUTS = {
    "quotes": CutTotals(
        timed=3, seconds=4.5, inserted=50, updated=6, deleted=1, failures={"positive": 2, 'named "so"': 0}
    ),
    "trades": CutTotals(),
}
NEW_FEED = FeedStatus(
    feed="new", connector="tengi", epoch=None, landed_position=None, landed_at=None, receiver=None, tables=()
)
READINGS = (
    FeedReading("market", True, MARKET, CUTS),
    FeedReading("gone"),
    FeedReading("new", True, NEW_FEED),
)

STORE = """\
# TYPE silverfold_feed_up gauge
silverfold_feed_up{feed="market"} 1.0
silverfold_feed_up{feed="gone"} 0.0
silverfold_feed_up{feed="new"} 1.0
# TYPE silverfold_receiver_connected gauge
silverfold_receiver_connected{feed="market"} 1.0
# TYPE silverfold_last_received_timestamp_seconds gauge
silverfold_last_received_timestamp_seconds{feed="market"} 1.71456479975e+09
# TYPE silverfold_epochs_total counter
silverfold_epochs_total{feed="market"} 2.0
# TYPE silverfold_source_lag_seconds gauge
silverfold_source_lag_seconds{feed="market",stream="shard 7"} 1.5
silverfold_source_lag_seconds{feed="market",stream="table orders"} 0.0
# TYPE silverfold_source_lag_updates gauge
silverfold_source_lag_updates{feed="market",stream="shard 7"} 30.0
silverfold_source_lag_updates{feed="market",stream="table orders"} 4.0
# TYPE silverfold_lag_seconds gauge
silverfold_lag_seconds{feed="market",table="quotes"} 4.25
silverfold_lag_seconds{feed="market",table="trades"} 0.0
# TYPE silverfold_lag_updates gauge
silverfold_lag_updates{feed="market",table="quotes"} 3.0
silverfold_lag_updates{feed="market",table="trades"} 0.0
# TYPE silverfold_table_state gauge
silverfold_table_state{feed="market",state="stopped",table="quotes"} 0.0
silverfold_table_state{feed="market",state="held",table="quotes"} 1.0
silverfold_table_state{feed="market",state="not_built",table="quotes"} 0.0
silverfold_table_state{feed="market",state="behind",table="quotes"} 0.0
silverfold_table_state{feed="market",state="waiting_for_snapshot",table="quotes"} 0.0
silverfold_table_state{feed="market",state="waiting_for_update_end",table="quotes"} 0.0
silverfold_table_state{feed="market",state="synced",table="quotes"} 0.0
silverfold_table_state{feed="market",state="stopped",table="trades"} 0.0
silverfold_table_state{feed="market",state="held",table="trades"} 0.0
silverfold_table_state{feed="market",state="not_built",table="trades"} 1.0
silverfold_table_state{feed="market",state="behind",table="trades"} 0.0
silverfold_table_state{feed="market",state="waiting_for_snapshot",table="trades"} 0.0
silverfold_table_state{feed="market",state="waiting_for_update_end",table="trades"} 0.0
silverfold_table_state{feed="market",state="synced",table="trades"} 0.0
# TYPE silverfold_quarantined_frames gauge
silverfold_quarantined_frames{feed="market",table="quotes"} 3.0
silverfold_quarantined_frames{feed="market",table="trades"} 0.0
# TYPE silverfold_rows_aside gauge
silverfold_rows_aside{feed="market",table="quotes"} 2.0
# TYPE silverfold_last_cut_timestamp_seconds gauge
silverfold_last_cut_timestamp_seconds{feed="market",table="quotes"} 1.714554e+09
# TYPE silverfold_cut_seconds summary
silverfold_cut_seconds_count{feed="market",table="quotes"} 3.0
silverfold_cut_seconds_sum{feed="market",table="quotes"} 4.5
silverfold_cut_seconds_count{feed="market",table="trades"} 0.0
silverfold_cut_seconds_sum{feed="market",table="trades"} 0.0
# TYPE silverfold_changes_total counter
silverfold_changes_total{feed="market",op="insert",table="quotes"} 50.0
silverfold_changes_total{feed="market",op="update",table="quotes"} 6.0
silverfold_changes_total{feed="market",op="delete",table="quotes"} 1.0
silverfold_changes_total{feed="market",op="insert",table="trades"} 0.0
silverfold_changes_total{feed="market",op="update",table="trades"} 0.0
silverfold_changes_total{feed="market",op="delete",table="trades"} 0.0
# TYPE silverfold_rule_failures_total counter
silverfold_rule_failures_total{feed="market",rule="positive",table="quotes"} 2.0
silverfold_rule_failures_total{feed="market",rule="named \\"so\\"",table="quotes"} 0.0
"""

PROCESS = """\
# TYPE silverfold_receiver_connected gauge
silverfold_receiver_connected{feed="market"} 1.0
silverfold_receiver_connected{feed="new"} 0.0
# TYPE silverfold_last_received_timestamp_seconds gauge
silverfold_last_received_timestamp_seconds{feed="market"} 1.71456479975e+09
# TYPE silverfold_epochs_total counter
silverfold_epochs_total{feed="market"} 2.0
silverfold_epochs_total{feed="new"} 0.0
# TYPE silverfold_snapshot_running gauge
silverfold_snapshot_running{feed="market",stream="Quotes"} 1.0
silverfold_snapshot_running{feed="market",stream="Trades"} 0.0
# TYPE silverfold_received_frames_total counter
silverfold_received_frames_total{feed="market"} 5.0
silverfold_received_frames_total{feed="new"} 0.0
# TYPE silverfold_received_bytes_total counter
silverfold_received_bytes_total{feed="market"} 700.0
silverfold_received_bytes_total{feed="new"} 0.0
# TYPE silverfold_held_bytes gauge
silverfold_held_bytes{feed="market"} 300.0
silverfold_held_bytes{feed="new"} 0.0
# TYPE silverfold_commit_seconds summary
silverfold_commit_seconds_count{feed="market"} 4.0
silverfold_commit_seconds_sum{feed="market"} 0.5
silverfold_commit_seconds_count{feed="new"} 0.0
silverfold_commit_seconds_sum{feed="new"} 0.0
# TYPE silverfold_commit_failures_total counter
silverfold_commit_failures_total{feed="market"} 1.0
silverfold_commit_failures_total{feed="new"} 0.0
"""


def exposed(collector: Collector) -> str:
    """Return the text served, without its documentation."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# HELP"))


def test_the_store_is_told_metric_by_metric_and_nothing_of_what_is_not_known():
    assert exposed(FeedCollector(lambda: READINGS)) == STORE


def test_a_process_tells_its_own_totals():
    totals = LandingTotals(
        frames=5,
        bytes=700,
        held_bytes=300,
        received_at=1_714_564_799_750_000,
        commits=4,
        commit_seconds=0.5,
        commit_failures=1,
        epochs=2,
        is_open=True,
        is_connected=True,
        snapshots={"Quotes": True, "Trades": False},
    )

    assert exposed(ReceiverCollector({"market": totals, "new": LandingTotals()})) == PROCESS


def test_every_metric_is_among_these_and_documented():
    shown = {line.split()[2].removeprefix(PREFIX) for line in (STORE + PROCESS).splitlines() if line[0] == "#"}

    assert shown == set(METRICS)
    assert all(defined.documentation.endswith(".") for defined in METRICS.values())


def test_a_sample_with_too_few_labels_is_a_bug():
    with pytest.raises(ValueError, match="shorter"):
        metrics_of([("lag_seconds", 1.0, "market")])


def test_requests_within_a_second_share_a_reading():
    now, readings = [100.0], iter(READINGS)
    collector = FeedCollector(lambda: [next(readings)], clock=lambda: now[0])

    first = exposed(collector)
    now[0] += 0.999
    assert exposed(collector) == first
    now[0] += 0.001
    assert 'silverfold_feed_up{feed="gone"} 0.0' in exposed(collector)


def test_requests_at_once_read_the_store_one_after_the_other_and_once():
    inside, go_on, calls = threading.Event(), threading.Event(), []

    def read() -> Sequence[FeedReading]:
        calls.append(1)
        inside.set()
        assert go_on.wait(30)
        return READINGS

    collector = FeedCollector(read)
    requests = [threading.Thread(target=exposed, args=(collector,)) for _ in range(3)]
    for each in requests:
        each.start()
    assert inside.wait(30)
    go_on.set()
    for each in requests:
        each.join()

    assert calls == [1]
