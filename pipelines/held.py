"""What a silver table could not take: held positions, with the reason, in ``_silverfold/<feed>/quarantine/<table>``.

A frame that cannot be decoded holds its table at the last good update. The ledger is a log of events: a row without
``resolved_at`` says that a position is held, one with it that the hold is over. Of each position the newest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import pyarrow as pa

from pipelines import ledger
from pipelines.places import Places

SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("update_position", pa.int64()),
        ("error_class", pa.string()),
        ("reason", pa.string()),
        ("found_at", pa.timestamp("us", "UTC")),
        ("resolved_at", pa.timestamp("us", "UTC")),
        ("resolution", pa.string()),
    ]
)

PASSED = "passed"
"""The table went beyond the position: a fixed decoder read it, or a snapshot made it needless."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """One position that holds, or held, a table.

    Args:
        position: frame_seq of the bad frame.
        update_position: Position of the first frame of the update it belongs to: the table stands before it.
        error_class: Stable name of what is wrong (`conf.errors`).
        resolution: How it ended; None while it holds.
    """

    position: int
    update_position: int
    error_class: str
    reason: str
    found_at: datetime
    resolved_at: datetime | None = None
    resolution: str | None = None


def hold(places: Places, feed: str, table: str, found: Hold) -> None:
    """Note that a position holds the table. Safe to repeat: what is noted already is not noted again.

    Raises:
        StoreUnavailable: The quarantine cannot be read or written now.
    """
    same = (found.position, found.error_class, found.reason)
    if same in {(known.position, known.error_class, known.reason) for known in holds(places, feed, table)}:
        return
    ledger.append(places.quarantine(feed, table), SCHEMA, [asdict(found)])


def holds(places: Places, feed: str, table: str) -> Sequence[Hold]:
    """Return what holds the table now, by position; nothing when it is not held. Raises StoreUnavailable."""
    return [known for known in _newest(places, feed, table) if known.resolved_at is None]


def release(
    places: Places, feed: str, table: str, *, through: int, now: datetime, resolution: str = PASSED
) -> Sequence[Hold]:
    """End every hold up to and including a position; return those that ended. Safe to repeat.

    Raises:
        StoreUnavailable: The quarantine cannot be read or written now.
    """
    over = [
        replace(known, resolved_at=now, resolution=resolution)
        for known in holds(places, feed, table)
        if known.position <= through
    ]
    if over:
        ledger.append(places.quarantine(feed, table), SCHEMA, [asdict(ended) for ended in over])
    return over


def _newest(places: Places, feed: str, table: str) -> list[Hold]:
    """Return the newest event of each position, by position."""
    events = ledger.read(places.quarantine(feed, table), SCHEMA).to_pylist()
    newest: dict[int, Hold] = {}
    for event in sorted((Hold(**event) for event in events), key=_when):
        newest[event.position] = event
    return [newest[position] for position in sorted(newest)]


def _when(event: Hold) -> tuple[datetime, bool]:
    return event.resolved_at or event.found_at, event.resolved_at is not None
