"""Compares the engine's commits with the oracle: every version of silver, its history, and the side table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from silverfold.conf.errors import SilverfoldError
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import app_id, position_in
from silverfold.pipelines.store import open_table
from tests.matrix.landing import TABLE
from tests.matrix.layout import Layout
from tests.matrix.oracle import Oracle, State, comparable

START, END = "__START_AT", "__END_AT"
POSITION, ROW_KEY = "_position", "_row_key"
SIDE_COLUMNS = ("_present", "_reasons", POSITION)
"""Columns that the engine adds to rows in the side table."""

HOLDS = {
    "none": (),
    "skip": (),
    "mended": ("UNDECODABLE_FRAME",),
    "snapshot": ("UNDECODABLE_FRAME",),
    "conflict": ("UNEXPLAINED", "DUPLICATE_KEY", "NULL_KEY"),
}
"""Error classes that may hold a table, by fault of its source."""


class Different(AssertionError):
    """The engine and the oracle differ.

    Args:
        kind: Short description, equal for equal mistakes.
    """

    def __init__(self, kind: str, detail: object = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(frozen=True)
class Phase:
    """Settings that may change during a story."""

    mended: bool = False
    loose: bool = False


class Checks:
    """Compares one table with its oracle, version by version."""

    def __init__(self, layout: Layout, places: Places, feed: str, oracle: Oracle) -> None:
        self.layout, self.settings, self.oracle = layout, layout.settings, oracle
        self._places, self._feed = places, feed
        self._judged: list[Phase] = []
        """By table version, the rules that its rows were checked against."""
        self._phase = Phase()
        self.position = -1
        """Position that the table had reached at the last `look`."""

    def look(self, phase: Phase, *, rebuilt: bool = False) -> None:
        """Compare every version committed since the last call, by processes with these settings.

        Args:
            rebuilt: One of the commits was a rebuild, which checks all rows against the rules again.
        """
        self._phase = phase
        opened = open_table(self._place())
        newest = -1 if opened is None else opened.version()
        for version in range(len(self._judged), newest + 1):
            table = DeltaTable(self._place().url, version=version)
            reached = position_in(table, app_id(self._feed, TABLE))
            anew = rebuilt or reached != self.position or not self._judged
            self._judged.append(phase if anew else self._judged[-1])
            self.position = reached
            expected = self._silver(self._state(reached), self._judged[-1])
            self._same(f"silver at position {reached}", self._found(table), expected)
        self.oracle.reached(self.position)

    def _state(self, position: int) -> State:
        if position < 0:
            return {}
        truth = self.oracle.replay()
        if position not in truth.at:
            raise Different("silver is at no update's end it may reach", f"{position}, not of {list(truth.at)}")
        if self._is_wrong(truth.at[position]):
            raise Different("silver is at an update that it must not show", position)
        return truth.at[position]

    def compare(self, faults: Mapping[str, SilverfoldError]) -> None:
        """Compare the table's position, its hold, its history and its side table."""
        truth = self.oracle.replay()
        least, most = self._bounds(truth.at, truth.restarts)
        found = {name: f"{error.error_class}: {error}" for name, error in faults.items()}
        allowed = (*HOLDS[self.settings.fault], *(["EXPECTATION_FAILED"] if self.settings.rules == "fail" else []))
        strange = [error for error in faults.values() if error.error_class not in allowed]
        if strange:
            raise Different(f"held by {strange[0].error_class}", strange[0])
        if not least <= self.position <= most:
            raise Different("the table did not come as far", f"{self.position}, not {least} to {most}; {found}")
        if not truth.blocked and self.position == truth.last and found:
            raise Different("something holds the table, and nothing may", found)
        if self.position >= 0:
            self._compare_side_table()
            self._compare_history()

    def _bounds(self, at: Mapping[int, State], restarts: Collection[int]) -> tuple[int, int]:
        """Return the lowest and highest position at which the table may be.

        The table must reach the last update after which it may be shown. Where cuts end on their own, or where the
        source's order hides the first update after which it may not be shown, reaching that update is enough.
        """
        least, stuck = -1, False
        right = [end for end, state in at.items() if not self._is_wrong(state)]
        for end in at:
            stuck = (stuck and end not in restarts) or end not in right
            least = least if stuck else end
        most = max(right, default=-1)
        return (least if self._grows() or self.settings.kind == "sequenced" else most), most

    def _grows(self) -> bool:
        return self.settings.schema != "same" and not self.settings.snapshots

    def _is_wrong(self, state: State) -> bool:
        """Return whether the state is forbidden: two rows with one key, or a row that fails a rule it must meet."""
        unique = self.layout.source.unique
        named = [tuple(comparable({name: row[name]}) for name in unique) for row in state.values()] if unique else []
        if len(set(named)) < len(named) or any(row[name] is None for row in state.values() for name in unique):
            return True
        refuses = self.settings.rules == "fail" and not self._phase.mended
        return refuses and any(self._fails(row, self._phase) for row in state.values())

    def _fails(self, row: Mapping[str, Any], phase: Phase) -> bool:
        return any(not rule.met(row) for rule in self.layout.rules(loose=phase.loose).values())

    def _silver(self, state: State, phase: Phase, *, in_side_table: bool = False) -> list[Any]:
        """Return the rows of the table, or those of its side table."""
        quarantines = self.settings.rules in ("quarantine", "loosened")
        out = {key for key, row in state.items() if quarantines and self._fails(row, phase)}
        return [self._row(key, row) for key, row in state.items() if (key in out) is in_side_table]

    def _row(self, key: Sequence[Any], row: Mapping[str, Any], **others: Any) -> Any:
        named = {ROW_KEY: key[0]} if self.settings.deephaven else dict(zip(self.layout.keys, key, strict=True))
        return comparable({**named, **row, **others})

    def _compare_side_table(self) -> None:
        opened = companion(self._places, self._feed, TABLE, "aside").committed
        found = [] if opened is None else [self._whole(row, leave=SIDE_COLUMNS) for row in self._rows(opened)]
        self._same("rows aside", found, self._silver(self._state(self.position), self._judged[-1], in_side_table=True))

    def _compare_history(self) -> None:
        if not self.settings.keeps_history:
            return
        truth = self.oracle.replay(through=self.position)
        opened = open_table(self._places.history(self._feed, TABLE))
        found = [] if opened is None else self._rows(opened)
        moment: Callable[[Any], int] = int if self.settings.kind == "sequenced" else _end_of(sorted(truth.at))
        shown = [{**row, **{name: row[name] and moment(row[name]) for name in (START, END)}} for row in found]
        expected = [
            self._row(key, row, **{START: start, END: end}) for key, row, start, end in truth.versions if start != end
        ]
        self._same("history", [self._whole(row) for row in shown if row[START] != row[END]], expected)

    def _place(self) -> Place:
        return self._places.silver(self._feed, TABLE)

    def _found(self, table: DeltaTable) -> list[Any]:
        return [self._whole(row, leave=(POSITION,)) for row in self._rows(table)]

    def _rows(self, table: DeltaTable) -> list[dict[str, Any]]:
        query = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        rows: list[dict[str, Any]] = pa.table(query.read_all()).to_pylist()
        return rows

    def _whole(self, row: Mapping[str, Any], leave: Collection[str] = ()) -> Any:
        """Return a row with the columns that are added later."""
        coming = dict.fromkeys(self.layout.later)
        return comparable({**coming, **{name: value for name, value in row.items() if name not in leave}})

    def _same(self, what: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
        here, there = sorted(found, key=repr), sorted(expected, key=repr)
        if here != there:
            surplus, lacking = (_shown(rows) for rows in (_without(here, there), _without(there, here)))
            kind = what.split(" at ", maxsplit=1)[0]
            raise Different(f"{kind} differs", f"{what}\n  found, not expected: {surplus}\n  expected: {lacking}")


def _end_of(ends: Sequence[int]) -> Callable[[int], int]:
    """Return a function from a position to the end of its update."""
    return lambda position: next((end for end in ends if end >= position), position)


def _without(rows: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    left = Counter(map(repr, rows))
    left.subtract(map(repr, others))
    return [row for row in rows if left[repr(row)] > 0]


def _shown(rows: Sequence[Any]) -> str:
    return "".join(f"\n    {row!r}"[:300] for row in rows[:3]) or "nothing"
