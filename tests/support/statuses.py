"""The status of a table and of its last cut: what a test is not about has a plain value."""

from __future__ import annotations

from typing import Any

from silverfold.pipelines.reading.status import LastCut, TableState, TableStatus
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import COUNTS


def last_cut(**values: Any) -> LastCut:
    """Return what status says of `tests.support.cut_rows.cut_row`."""
    first = {"position": 0, "delta_version": 0, "committed_at": BEGAN, "seconds": None}
    return LastCut(**{**first, **COUNTS, **values})


def status_of(table: str, **values: Any) -> TableStatus:
    """Return the status of a table of which nothing has landed."""
    nothing = ("fault", "epoch", "landed_position", "applied_position", "rows", "last_cut")
    lag = {"lag_updates": 0, "lag_seconds": 0.0}
    return TableStatus(table=table, **{"state": TableState.NOT_BUILT, **lag, **dict.fromkeys(nothing), **values})
