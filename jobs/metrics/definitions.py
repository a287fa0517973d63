"""The metrics: their names, types, labels, and what they mean, in units of Prometheus: seconds, bytes, and counts.

All names begin with ``silverfold_``. The documentation of each, which Prometheus shows too, also says when it is
absent: a metric is left out where nothing is known, never guessed. A counter may restart, as Prometheus expects of
counters: with the process that counts, or with the record that it is derived from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from prometheus_client.core import Metric

PREFIX: Final = "silverfold_"

_FEED: Final = ("feed",)
_STREAM: Final = ("feed", "stream")
_TABLE: Final = ("feed", "table")


class Definition(NamedTuple):
    """One metric."""

    type: Literal["gauge", "counter", "summary"]
    labels: tuple[str, ...]
    documentation: str


BY_STORE: Final = {
    "feed_up": Definition("gauge", _FEED, "1 if all of the feed could be read from the store, else 0."),
    "source_lag_seconds": Definition(
        "gauge",
        _STREAM,
        "Age of what landed last while the source has more, by the receiver's last report, for each part that it "
        "names. Absent without a report, as with sources that do not tell it.",
    ),
    "source_lag_updates": Definition(
        "gauge",
        _STREAM,
        "Updates, or about as many records, that the source has and that have not landed; absent as its seconds are.",
    ),
    "lag_seconds": Definition(
        "gauge", _TABLE, "Age of the oldest update that landed and is not applied, 0 if all are. Absent: unreadable."
    ),
    "lag_updates": Definition("gauge", _TABLE, "Updates that landed and are not applied. Absent: unreadable."),
    "table_state": Definition(
        "gauge", (*_TABLE, "state"), "1 for the state that the table is in, 0 for all others. Absent: unreadable."
    ),
    "quarantined_frames": Definition(
        "gauge",
        _TABLE,
        "Frames that hold the table, or that it went on without and no snapshot has passed. Absent: unreadable.",
    ),
    "rows_aside": Definition(
        "gauge", _TABLE, "Rows beside the table, for failed rules or pending updates. Absent: not known, or unreadable."
    ),
    "last_cut_timestamp_seconds": Definition(
        "gauge", _TABLE, "When the last cut was committed, in seconds since 1970. Absent before the first cut."
    ),
    "cut_seconds": Definition(
        "summary", _TABLE, "Seconds that cuts took, planning and committing included, over the list of all cuts."
    ),
    "changes_total": Definition(
        "counter",
        (*_TABLE, "op"),
        "Rows that cuts inserted, updated or deleted, over the list of all cuts, those of rebuilds included. Restarts "
        "if the list is made anew.",
    ),
    "rule_failures_total": Definition(
        "counter",
        (*_TABLE, "rule"),
        "Rows that failed the rule, as often as cuts brought them, over the list of all cuts. Absent: no such rule.",
    ),
}
"""What `silverfold metrics` reads from the store."""

BY_BOTH: Final = {
    "receiver_connected": Definition(
        "gauge",
        _FEED,
        "1 if something came in the newest epoch and it has not ended, else 0. In the store that is the receiver's "
        "last report: one that was killed reports no end. Absent: no receiver ever reported.",
    ),
    "last_received_timestamp_seconds": Definition(
        "gauge",
        _FEED,
        "When the newest frame was received, in seconds since 1970; in the store one that landed, a receiver's own "
        "marks included. Absent: none yet.",
    ),
    "epochs_total": Definition(
        "counter", _FEED, "Connections begun: in the store of all time, in a process since it began."
    ),
}
"""What both serve: where both are scraped, take the largest or the smallest by feed, not the sum."""

BY_RECEIVER: Final = {
    "snapshot_running": Definition(
        "gauge", _STREAM, "1 while a snapshot of the stream is coming in over several frames, else 0."
    ),
    "received_frames_total": Definition("counter", _FEED, "Frames received since the process began."),
    "received_bytes_total": Definition("counter", _FEED, "Bytes of these frames."),
    "held_bytes": Definition("gauge", _FEED, "Memory of received frames that are not committed to bronze, about."),
    "commit_seconds": Definition("summary", _FEED, "Seconds that commits to bronze took, since the process began."),
    "commit_failures_total": Definition(
        "counter", _FEED, "Commits to bronze that failed, and were tried again, since the process began."
    ),
}
"""What `silverfold receive --metrics-port` counts in its process; all absent unless that runs."""

METRICS: Final = {**BY_STORE, **BY_BOTH, **BY_RECEIVER}
"""All metrics, by name without the prefix."""

Sample: TypeAlias = tuple[str, float, *tuple[str, ...]]
"""Name, value and labels. A summary has two, whose names end with ``_count`` and ``_sum``."""


def metrics_of(samples: Iterable[Sample]) -> Iterable[Metric]:
    """Return samples as the metrics they are of, in the order of the first sample of each."""
    found: dict[str, Metric] = {}
    for sample, value, *labels in samples:
        name = sample.removesuffix("_count").removesuffix("_sum")
        defined = METRICS[name]
        if name not in found:
            found[name] = Metric(PREFIX + name.removesuffix("_total"), defined.documentation, defined.type)
        found[name].add_sample(PREFIX + sample, dict(zip(defined.labels, labels, strict=True)), value)
    return found.values()
