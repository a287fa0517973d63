"""Builds rows of the list of cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from silverfold.pipelines.storage.cuts import CutRow
from tests.support.bronze_rows import BEGAN

COUNTS: Final[Mapping[str, Any]] = {
    "replaced": False, "updates": 1, "inserted": 1, "updated": 0, "deleted": 0, "ignored": 0,
}  # fmt: skip


def cut_row(**values: Any) -> CutRow:
    """Return the first cut of ``quotes``: one update, at position 0, of one row; its time was not taken."""
    first = {"table": "quotes", "delta_version": 0, "epoch": 1, "first_position": 0, "last_position": 0}
    times = {"landed_at": None, "committed_at": BEGAN, "seconds": None, "notes": {}}
    return CutRow(**{**first, **COUNTS, **times, **values})


CUT = cut_row(
    last_position=2,
    replaced=True,
    inserted=3,
    landed_at=BEGAN,
    committed_at=BEGAN + timedelta(seconds=4),
    seconds=1.25,
    notes={"failed.small": 2, "late changes": 9},
)
"""A snapshot of quotes, of three rows."""


def cut_after(cut: CutRow, *, wait: timedelta = timedelta(seconds=10), **changes: Any) -> CutRow:
    """Return the next cut of a table, with as much lag."""
    at = {} if cut.landed_at is None else {"landed_at": cut.landed_at + wait}
    then: dict[str, Any] = {
        "delta_version": cut.delta_version + 1,
        "first_position": cut.last_position + 1,
        "last_position": cut.last_position + 1,
        "replaced": False,
        "committed_at": cut.committed_at + wait,
        **at,
    }
    return replace(cut, **then | changes)


def cuts(count: int, **changes: Any) -> list[CutRow]:
    """Return so many cuts of a table, oldest first; all have the changes."""
    found = [replace(CUT, **changes)]
    while len(found) < count:
        found.append(cut_after(found[-1]))
    return found
