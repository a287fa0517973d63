"""Draws a story from a seed: the steps in the life of one table, by its settings.

A story has: a snapshot, or the first changes; updates; a fault; its repair, unless the next snapshot passes it; a new
epoch, possibly with other columns and another snapshot; upkeep; and updates in between. The setting ``cuts`` determines
the builds. A short story has fewer updates and builds.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

from tests.matrix.lanes import Lane, What
from tests.matrix.layout import Layout
from tests.matrix.settings import Settings
from tests.matrix.steps import (
    Away,
    Build,
    Change,
    Columns,
    Connect,
    Death,
    Ends,
    Loosen,
    Mend,
    Snapshot,
    Step,
    Update,
    Upkeep,
)

LANES = 12
"""Lanes per table."""


def story(settings: Settings, seed: int, lanes: Collection[int] = range(LANES), *, short: bool = False) -> list[Step]:
    """Return the steps. Only the given lanes are active; the absence of others does not affect them."""
    return list(Story(settings, seed, lanes, short=short).steps())


class Story:
    """The story of one table."""

    def __init__(self, settings: Settings, seed: int, lanes: Collection[int], *, short: bool) -> None:
        self.settings, self.layout, self.short = settings, Layout(settings), short
        self.rng = random.Random(f"{seed}/story")
        judged = settings.fault == "conflict" and not self.layout.carries_keys
        explained = judged or self.rng.random() < 0.5
        self.lanes = [Lane(seed, number, self.layout, explained=explained) for number in lanes]
        self._fails = settings.rules == "fail"
        held = settings.fault in ("mended", "conflict") and not self._fails
        self._passed = held and self._comes_anew and random.Random(f"{seed}/passed").random() < 0.5
        self._log: list[Change] = []
        self._late: list[Change] = []

    def steps(self) -> Iterator[Step]:
        """Yield the steps."""
        yield from self._opening()
        yield from self._updates(1 if self.short else 2)
        yield from self._may_build(0.5 if self.short else 0.9 if self.settings.cuts == "one" else 1.0)
        yield from self._trouble()
        yield from self._news()
        yield from self._updates(0 if self.short else 2)
        late = self.settings.upkeep == "rebuild" and (self.settings.death == "yes" or self.rng.random() < 0.5)
        if self.settings.rules == "loosened" and not late:
            yield Loosen()
        yield from self._updates(1)
        yield from self._may_build(1.0)
        if self.settings.rules == "loosened" and late:
            yield Loosen()
        if self.settings.upkeep == "maintain":
            yield Upkeep("maintain", self._death(8))
        if self.settings.upkeep == "rebuild":
            yield Upkeep("rebuild", self._death(7, first=2))  # most of the earlier commits are beside the table
        if not self.short and self.settings.death == "yes" and self.settings.rules in ("quarantine", "loosened"):
            yield from self._undone()
        yield self._one_frame([change for lane in self.lanes[:1] for change in lane.change()])

    @property
    def _comes_anew(self) -> bool:
        """Whether an epoch with another snapshot follows."""
        settings = self.settings
        needed = settings.schema != "same" or settings.fault == "snapshot" or settings.upkeep == "put-back"
        return settings.snapshots and (needed or settings.again != "none")

    def _opening(self) -> Iterator[Step]:
        yield Connect(0)
        first = self.settings.first
        for lane in self.lanes:
            lane.good = self.settings.rules != "none" and (first != "snapshot" or self._fails)
        if not self.settings.snapshots:
            yield self._update()
            return
        for lane in self.lanes:
            lane.fill()
        if first == "snapshot" and self._fails:
            self._fail("insert")
        yield from self._snapshot(overlaid=True)
        if first == "snapshot" and self._fails:
            yield from self._may_build(0.7)
            yield from self._mended()

    def _updates(self, count: int) -> Iterator[Step]:
        for _ in range(count):
            yield self._update()
            yield from self._may_build(0.35 if self.settings.cuts == "some" else 0)

    def _may_build(self, chance: float) -> Iterator[Step]:
        if self.rng.random() < chance:
            yield Build(self._death())

    def _death(self, last: int = 4, *, first: int = 0) -> Death | None:
        if self.settings.death == "no" or self.rng.random() < 0.2:
            return None
        return Death(self.rng.choice([first, first + 1, *range(first, last + 1)]), self.rng.random() < 0.5)

    def _undone(self) -> Iterator[Step]:
        """Quarantine a single row in a process that dies; the row is deleted before the next process starts."""
        yield Build()
        lane, commit = self.lanes[0], 2 if self.settings.kind == "sequenced" else 0  # tombstones are written before
        failing = lane.fails(self.rng.choice(["insert", "update"]), {self.layout.number: 3})
        yield self._one_frame(failing)
        yield Build(Death(commit, after=True), alone=True)
        yield self._one_frame(lane.deletes(failing))
        yield Build()

    def _trouble(self) -> Iterator[Step]:
        """Faults: rows that fail the rules, unless in a snapshot; undecodable frames; inconsistent changes."""
        first: What = "insert" if self.settings.first == "insert" else "update"
        if self.settings.rules != "none" and self.settings.first != "snapshot":
            yield self._one_frame(self._fail(first))
            if self._fails:
                yield from self._may_build(0.8)
                yield self._one_frame([change for lane in self.lanes for change in lane.mends()])
                yield self._one_frame(self._fail(first))  # a cut may end at the update before, but not here
                yield from self._may_build(0.8)
                yield from self._mended()
        for lane in self.lanes:
            lane.good = lane.good and self._fails
        if self.settings.fault == "conflict":
            yield from self._conflict()
        elif self.settings.fault != "none":
            yield self._bad()
            yield from self._updates(1)
            yield from self._may_build(0.9)
            if self.settings.fault == "mended" and not self._passed:
                yield Mend()

    def _fail(self, what: What) -> list[Change]:
        """Let rows fail the rules: one if that holds the table, else one in every second lane."""
        wrong: dict[str, Any] = {self.layout.number: 3}
        if self.settings.values == "nasty" and self.rng.random() < 0.5:
            wrong = {self.layout.text: "it's"}
        some = self.lanes[:1] if self._fails else self.lanes[::2]
        return [change for lane in some for change in lane.fails(what, wrong)]

    def _mended(self) -> Iterator[Step]:
        """A table held by a rule is repaired by the source or by operators."""
        if self.rng.random() < 0.5:
            yield self._one_frame([change for lane in self.lanes for change in lane.mends()])
        else:
            yield Mend()

    def _conflict(self) -> Iterator[Step]:
        yield self._one_frame([change for lane in self.lanes[:1] for change in lane.conflicts()])
        yield from self._updates(1)
        yield from self._may_build(1.0)
        if self.layout.carries_keys:
            yield self._one_frame([change for lane in self.lanes for change in lane.parts()])
        elif not self._passed:
            yield Mend()

    def _news(self) -> Iterator[Step]:
        """A new epoch, possibly with other columns, and its snapshot."""
        settings = self.settings
        if settings.history == "yes" and not self._passed:
            yield Mend()
        if not settings.snapshots:
            if settings.schema != "same":
                self._change_columns()
                yield Columns()
            return
        if not self._comes_anew:
            return
        if settings.upkeep == "put-back":
            yield from (Build(), Away())  # only a table that was built can be away
        yield from self._next_epoch()

    def _next_epoch(self) -> Iterator[Step]:
        torn = self._changes() if self.rng.random() < 0.3 else []
        if self.settings.schema != "same":
            self._change_columns()
        yield Connect(1 if self.settings.schema != "same" else 0, tuple(torn))
        if self.settings.again == "changed":
            self._changes()
        if self.settings.again == "empty":
            for lane in self.lanes:
                lane.clear()
        yield from self._snapshot(overlaid=self.settings.again == "changed")
        if self.settings.again == "empty" and self.settings.upkeep == "rebuild":
            yield from (Build(), Upkeep("rebuild"))

    def _change_columns(self) -> None:
        for lane in self.lanes:
            lane.version = 1
            for row in lane.rows.values():
                for name in self.layout.later:
                    row.setdefault(name)

    def _snapshot(self, *, overlaid: bool) -> Iterator[Step]:
        """A snapshot, with a change before it and one inside it, if the source sends such."""
        if overlaid and not self.settings.deephaven:
            yield Update((tuple(self._changes(moves=False)),))
        rows = {key: dict(row) for lane in self.lanes for key, row in lane.rows.items()}
        overlay = (Update((tuple(self._changes(moves=False)),)),) if overlaid and not self.settings.deephaven else ()
        yield Snapshot(rows, overlay)

    def _changes(self, *, moves: bool = True) -> list[Change]:
        return [change for lane in self.lanes for change in lane.changes(moves=moves)]

    def _update(self) -> Update:
        if self.settings.kind == "sequenced":
            return self._delivery(self._changes())
        if self.settings.deephaven:
            return Update((tuple(self._changes()),))
        return Update(tuple(tuple(self._changes()) for _ in range(self.rng.choice([1, 1, 2]))))

    def _one_frame(self, changes: list[Change]) -> Update:
        return self._delivery(changes) if self.settings.kind == "sequenced" else Update((tuple(changes),))

    def _delivery(self, changes: list[Change]) -> Update:
        """Deliver changes in the source's order, some repeatedly; or complete rows in any order, some later."""
        count = len(self._log)
        self._log += [change._replace(sequence=count + at) for at, change in enumerate(changes)]
        sent = self._log[max(0, count - self.rng.choice([0, 0, 5, 20])) :]
        if self.settings.sends == "whole":
            sent += self._late
            self.rng.shuffle(sent)
            self._late = sent[: len(sent) // 2]
            sent = sent[len(sent) // 2 :]
        return Update((tuple(sent),))

    def _bad(self) -> Update:
        """Return an update with an undecodable frame, whose changes are lost if it is skipped."""
        if self.settings.deephaven:
            return Update((tuple(self._changes()), ()), 1, self._ends())
        frames = (tuple(self._changes()), tuple(self._changes()), tuple(self._changes()))
        if self.settings.kind == "sequenced":
            return Update(self._delivery([each for frame in frames for each in frame]).frames, 0, self._ends())
        return Update(frames, 1, self._ends())

    def _ends(self) -> Ends:
        if self.settings.fault == "skip":
            return "skip"
        if self.settings.fault == "snapshot":
            return "snapshot"
        if self.settings.kind == "sequenced" and self.settings.sends == "partial":
            return "fix"  # a skipped change would arrive late
        return "hand" if self.settings.deephaven or self.rng.random() < 0.5 else "fix"
