"""A cut's row and the status of a table: what a test is not about has a plain value."""

from __future__ import annotations

from typing import Any

from silverfold.pipelines.reading.status import LastCut, TableState, TableStatus
from silverfold.pipelines.storage.cuts import CutRow
from tests.support.bronze_rows import BEGAN

_COUNTS: dict[str, Any] = {"replaced": False, "updates": 1, "inserted": 1, "updated": 0, "deleted": 0, "ignored": 0}


def cut_row(**values: Any) -> CutRow:
    """Return the first cut of ``quotes``: one update, at position 0, of one row; its time was not taken."""
    first = {"table": "quotes", "delta_version": 0, "epoch": 1, "first_position": 0, "last_position": 0}
    times = {"landed_at": None, "committed_at": BEGAN, "seconds": None, "notes": {}}
    return CutRow(**{**first, **_COUNTS, **times, **values})


def last_cut(**values: Any) -> LastCut:
    """Return what status says of `cut_row`."""
    first = {"position": 0, "delta_version": 0, "committed_at": BEGAN, "seconds": None}
    return LastCut(**{**first, **_COUNTS, **values})


def status_of(table: str, **values: Any) -> TableStatus:
    """Return the status of a table of which nothing has landed."""
    nothing = ("fault", "epoch", "landed_position", "applied_position", "rows", "last_cut")
    lag = {"lag_updates": 0, "lag_seconds": 0.0}
    return TableStatus(table=table, **{"state": TableState.NOT_BUILT, **lag, **dict.fromkeys(nothing), **values})
