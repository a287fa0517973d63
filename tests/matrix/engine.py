"""Lives a story through with the engine, and holds every committed version against the oracle."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from conf.errors import SilverfoldError
from conf.load import load_settings
from conf.model import Build as BuildSettings
from conf.model import CutLimits, Maintain
from conf.model import Settings as Conf
from connectors.base import Feed
from jobs.build import run
from pipelines.build import FeedBuild
from pipelines.cuts import app_id
from pipelines.held import holds, skip
from pipelines.maintain import Maintenance
from pipelines.places import Place, Places
from pipelines.rebuild import Rebuild
from pipelines.store import open_table
from pipelines.verify import Verdict, verify_history, verify_table
from tests.matrix.landing import OTHER, TABLE, landing
from tests.matrix.layout import Layout
from tests.matrix.oracle import Oracle, State, comparable
from tests.matrix.settings import Settings
from tests.matrix.steps import Away, Build, Columns, Connect, Death, Loosen, Mend, Snapshot, Step, Update, Upkeep
from tests.support.commits import dying_at_commit
from tests.support.deaths import Died

START, END = "__START_AT", "__END_AT"
POSITION, ROW_KEY = "_position", "_row_key"

HOLDS = {
    "none": (),
    "skip": (),
    "mended": ("UNDECODABLE_FRAME",),
    "snapshot": ("UNDECODABLE_FRAME",),
    "conflict": ("UNEXPLAINED", "DUPLICATE_KEY", "NULL_KEY"),
}
"""What may hold a table, by what is wrong with its source."""


class Different(AssertionError):
    """The engine did something else than the oracle says.

    Args:
        kind: In a few words, the same for the same mistake.
    """

    def __init__(self, kind: str, detail: object = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(frozen=True)
class Phase:
    """What of the settings may change while the story lasts."""

    mended: bool = False
    loose: bool = False


class Life:
    """One table's life, in a warehouse of its own."""

    def __init__(self, spark: SparkSession, folder: Path, settings: Settings, seed: int) -> None:
        self.spark, self.settings, self.layout = spark, settings, Layout(settings)
        self.places = Places(str(folder))
        self.landing = landing(self.layout, self.places)
        self.oracle = Oracle(self.layout.source)
        self.phase, self.away = Phase(), False
        self._tables: tuple[str, ...] = (TABLE,)
        self._builds: FeedBuild | None = None
        self._judged: list[Phase] = []
        """By version of the table, the rules its rows were judged by."""
        self._position, self._rng = -1, random.Random(f"{seed}/life")

    def live(self, steps: Iterable[Step]) -> None:
        """Take the steps; then put right what is wrong, build, and verify.

        Raises:
            Different: Something is not as the oracle says.
        """
        with time_zone(self.settings.zone):
            for step in steps:
                self.take(step)
            for step in (Mend(), Build()):
                self.take(step)
            self._verify()

    @singledispatchmethod
    def take(self, step: Step) -> None:
        """Take one step."""
        raise TypeError(step)

    @take.register
    def _(self, step: Connect) -> None:
        self.landing.connect(step)
        self.oracle.connect()

    @take.register
    def _(self, step: Columns) -> None:
        self.landing.columns()

    @take.register
    def _(self, step: Update) -> None:
        self.oracle.land(self.landing.update(step), step)

    @take.register
    def _(self, step: Snapshot) -> None:
        self.oracle.land(self.landing.snapshot(step), step)

    @take.register
    def _(self, step: Build) -> None:
        self.landing.land()
        faults = self._dying(step.death, self._build)
        if faults is None:
            self._builds = None
            self._look()
            if self._rng.random() < 0.5:
                return
            faults = self._build()
        self._look()
        self._compare(faults)

    @take.register
    def _(self, step: Upkeep) -> None:
        if self._position < 0:
            return
        self._dying(step.death, self._maintain if step.what == "maintain" else self._rebuild)
        self._look(rebuilt=step.what == "rebuild")

    @take.register
    def _(self, step: Away) -> None:
        self.landing.other()
        self.landing.land()
        self._builds, self._tables = None, (OTHER,)
        self._build()
        self._maintain()
        self._tables = (TABLE, OTHER)

    @take.register
    def _(self, step: Loosen) -> None:
        self.phase, self._builds = Phase(self.phase.mended, loose=True), None

    @take.register
    def _(self, step: Mend) -> None:
        by_hand = self.settings.fault == "mended" and self.landing.bad
        if by_hand and not self.phase.mended:
            self.take(Build())
        for hold in holds(self.places, self.landing.feed_name, TABLE):
            if hold.position in self.landing.bad and self.settings.fault == "mended":
                skip(self.places, self.landing.feed_name, TABLE, hold, now=datetime.now(UTC))
        self.phase, self._builds = Phase(mended=True, loose=self.phase.loose), None
        self.oracle.mended = True

    def _dying(self, death: Death | None, work: Any) -> Any:
        """Return what the work returns; None where the process dies of it."""
        if death is None:
            return work()
        try:
            with dying_at_commit(death.commit, after=death.after):
                return work()
        except Died:
            return None

    def _build(self) -> Mapping[str, SilverfoldError]:
        build = self._builds or FeedBuild(self.spark, self._conf(), self._connector(), self._feed())
        self._builds = build if self.settings.process == "same" else None
        build.refresh()
        return run(build, threading.Event(), follow=False, poll_seconds=1)

    def _maintain(self) -> None:
        now = datetime.now(UTC)
        done = list(Maintenance(self.spark, self._conf(), self._connector(), self._feed(), now).run())
        failed = [each for each in done if each.failed]
        if failed:
            raise Different("maintain failed", failed)

    def _rebuild(self) -> None:
        token = f"{self._rng.random()}"
        Rebuild(self.spark, self._conf(whole=True), self._connector(), self._feed(), TABLE, token).run()

    def _connector(self) -> Any:
        return self.landing.connector(misreads=not self.phase.mended)

    def _feed(self) -> Feed:
        judges = self.layout.source.judges and not self.phase.mended
        return self.landing.feed(
            self._tables,
            {
                "stored_as_scd_type": 2 if self.settings.keeps_history else 1,
                "on_bad_frame": "skip" if self.settings.fault == "skip" else "hold",
                "on_unexplained": "error" if judges else "count",
                "expect": {
                    name: {"condition": rule.sql, "action": self._action()}
                    for name, rule in self.layout.rules(loose=self.phase.loose).items()
                },
            },
        )

    def _action(self) -> str:
        strict = "warn" if self.phase.mended else "fail"
        return strict if self.settings.rules == "fail" else "quarantine"

    def _conf(self, *, whole: bool = False) -> Conf:
        tiny = self.settings.cuts == "tiny" and not self.phase.mended and not whole
        frames = (12 if self.settings.deephaven else 3) if tiny else 200_000
        changed = {
            "warehouse": self.places.warehouse,
            "build": BuildSettings(cut=CutLimits(max_frames=frames)),
            "maintain": Maintain(bronze_days=0),
        }
        return load_settings(None, "local", {}).model_copy(update=changed)

    def _look(self, *, rebuilt: bool = False) -> None:
        """Compare every version that was committed since the last look."""
        opened = open_table(self._place())
        newest = -1 if opened is None else opened.version()
        for version in range(len(self._judged), newest + 1):
            table = DeltaTable(self._place().url, version=version)
            position = table.transaction_version(app_id(self.landing.feed_name, TABLE))
            reached = -1 if position is None else position
            anew = rebuilt or reached != self._position or not self._judged
            self._judged.append(self.phase if anew else self._judged[-1])
            self._position = reached
            expected = self._silver(self._state(reached), self._judged[-1])
            self._same(f"silver at position {reached}", self._found(table), expected)
        self.oracle.reached(self._position)

    def _state(self, position: int) -> State:
        if position < 0:
            return {}
        truth = self.oracle.replay()
        if position not in truth.at:
            raise Different("silver is at no update's end it may reach", f"{position}, not of {list(truth.at)}")
        if self._is_wrong(truth.at[position]):
            raise Different("silver is at an update that it must not show", position)
        return truth.at[position]

    def _compare(self, faults: Mapping[str, SilverfoldError]) -> None:
        """Compare how far the table came, its history, and the rows aside."""
        truth = self.oracle.replay()
        least, most = self._bounds(truth.at, truth.restarts)
        found = {name: f"{error.error_class}: {error}" for name, error in faults.items()}
        if not least <= self._position <= most:
            raise Different("the table did not come as far", f"{self._position}, not {least} to {most}; {found}")
        if not truth.blocked and self._position == truth.last and found:
            raise Different("something holds the table, and nothing may", found)
        allowed = (*HOLDS[self.settings.fault], *(["EXPECTATION_FAILED"] if self.settings.rules == "fail" else []))
        strange = [error for error in faults.values() if error.error_class not in allowed]
        if strange:
            raise Different(f"held by {strange[0].error_class}", strange[0])
        if self._position >= 0:
            self._compare_aside()
            self._compare_history()

    def _bounds(self, at: Mapping[int, State], restarts: Collection[int]) -> tuple[int, int]:
        """Return between which positions the table must be.

        It must come to what it may not show, if nothing later puts that right; to the end, where it may show that and
        takes all in one cut.
        """
        least, stuck = -1, False
        right = [end for end, state in at.items() if not self._is_wrong(state)]
        for end in at:
            stuck = (stuck and end not in restarts) or end not in right
            least = least if stuck else end
        most = max(right, default=-1)
        tiny = self.settings.cuts == "tiny" and not self.phase.mended
        return (most if most == max(at, default=-1) and not tiny and not self._grows() else least), most

    def _grows(self) -> bool:
        return self.settings.schema != "same" and not self.settings.snapshots

    def _is_wrong(self, state: State) -> bool:
        """Tell whether the table may not be like this: two rows on a key, or one that fails a rule it must not."""
        unique = self.layout.source.unique
        named = [tuple(comparable({name: row[name]}) for name in unique) for row in state.values()] if unique else []
        if len(set(named)) < len(named) or any(row[name] is None for row in state.values() for name in unique):
            return True
        return self._action() == "fail" and any(self._fails(row, self.phase) for row in state.values())

    def _fails(self, row: Mapping[str, Any], phase: Phase) -> bool:
        return any(not rule.met(row) for rule in self.layout.rules(loose=phase.loose).values())

    def _silver(self, state: State, phase: Phase, *, aside: bool = False) -> list[Any]:
        """Return the rows a table has, or keeps aside."""
        out = {key for key, row in state.items() if self._fails(row, phase)} if self._keeps_out() else set()
        return [self._row(key, row) for key, row in state.items() if (key in out) is aside]

    def _keeps_out(self) -> bool:
        return self.settings.rules in ("quarantine", "loosened")

    def _row(self, key: Sequence[Any], row: Mapping[str, Any], **others: Any) -> Any:
        named = {ROW_KEY: key[0]} if self.settings.deephaven else dict(zip(self.layout.keys, key, strict=True))
        return comparable({**named, **row, **others})

    def _compare_aside(self) -> None:
        opened = open_table(self.places.aside(self.landing.feed_name, TABLE))
        at = self._position
        expected = self._silver(self._state(at), self._judged[-1], aside=True)
        rows = [] if opened is None else self._rows(opened, f"_since <= {at} AND (_over IS NULL OR _over > {at})")
        ours = ("_since", "_over", "_present", "_reasons", POSITION)
        self._same("rows aside", [self._whole(row, leave=ours) for row in rows], expected)

    def _compare_history(self) -> None:
        if not self.settings.keeps_history:
            return
        truth = self.oracle.replay(through=self._position)
        opened = open_table(self.places.history(self.landing.feed_name, TABLE))
        found = [] if opened is None else self._rows(opened)
        moment = int if self.settings.kind == "sequenced" else self._moment(sorted(truth.at))
        shown = [{**row, **{name: row[name] and moment(row[name]) for name in (START, END)}} for row in found]
        expected = [
            self._row(key, row, **{START: start, END: end}) for key, row, start, end in truth.versions if start != end
        ]
        self._same("history", [self._whole(row) for row in shown if row[START] != row[END]], expected)

    def _moment(self, ends: Sequence[int]) -> Any:
        """Return what tells the update's end from a position inside it."""
        return lambda position: next((end for end in ends if end >= position), position)

    def _place(self) -> Place:
        return self.places.silver(self.landing.feed_name, TABLE)

    def _found(self, table: DeltaTable) -> list[Any]:
        return [self._whole(row, leave=(POSITION,)) for row in self._rows(table)]

    def _rows(self, table: DeltaTable, where: str = "TRUE") -> list[dict[str, Any]]:
        query = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {where}")
        rows: list[dict[str, Any]] = pa.table(query.read_all()).to_pylist()
        return rows

    def _whole(self, row: Mapping[str, Any], leave: Collection[str] = ()) -> Any:
        """Return a row with the columns that are still to come."""
        coming = dict.fromkeys(self.layout.later)
        return comparable({**coming, **{name: value for name, value in row.items() if name not in leave}})

    def _same(self, what: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
        here, there = sorted(found, key=repr), sorted(expected, key=repr)
        if here != there:
            surplus, lacking = (_shown(rows) for rows in (_without(here, there), _without(there, here)))
            kind = what.split(" at ", maxsplit=1)[0]
            raise Different(
                f"{kind} differs", f"{what}\n  found, not expected: {surplus[:3]}\n  expected: {lacking[:3]}"
            )

    def _verify(self) -> None:
        for verify in (verify_table, verify_history)[: 2 if self.settings.keeps_history else 1]:
            found = verify(self.places, self._connector(), self._feed(), TABLE)
            if found.verdict is not Verdict.EQUAL and self._position >= 0:
                raise Different(f"{verify.__name__} says {found.verdict}", f"{found.reason} {found.differences[:2]}")


def _without(rows: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    left = list(others)
    return [row for row in rows if row not in left or left.remove(row)]


def _shown(rows: Sequence[Any]) -> str:
    return "".join(f"\n    {row!r}"[:300] for row in rows[:3]) or "nothing"


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    """Let the process be in a time zone inside the block."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
