"""Tables of several feeds take turns: what runs when, by builds whose steps are told in advance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, pairwise
from unittest.mock import Mock

import pytest

from silverfold.conf.errors import SilverfoldError, StoreUnavailable
from silverfold.pipelines.applying.build import Step
from silverfold.pipelines.applying.turns import LONGEST_WAIT, take_turns
from silverfold.pipelines.planning.plan import Plan


@dataclass
class ScriptedBuild:
    """Each table has so many cuts to apply; frames that land bring one more each."""

    name: str
    cuts: dict[str, int]
    order: list[str] = field(default_factory=list)
    faults: Mapping[str, SilverfoldError] = field(default_factory=dict)
    landed: int = 0
    work: Callable[[str], None] = lambda _: None
    plan: Plan | None = None

    @property
    def tables(self) -> Mapping[str, int]:
        return self.cuts

    def step(self, table: str) -> Step:
        self.order.append(f"{self.name}.{table}")
        self.work(table)
        if table in self.faults or not self.cuts[table]:
            return Step(table, self.plan, error=self.faults.get(table))
        self.cuts[table] -= 1
        return Step(table, None, unfinished=True)


def turns(*builds: ScriptedBuild, at_once: int = 1, **more: object) -> None:
    for _ in take_turns(builds, threading.Event(), at_once=at_once, **more):  # type: ignore[arg-type]  # scripted
        pass


def test_one_table_far_behind_and_one_that_holds_keep_nobody_waiting_for_more_than_a_cut() -> None:
    order: list[str] = []
    far = ScriptedBuild("far", {"a": 4}, order)
    other = ScriptedBuild("other", {"held": 1, "b": 2}, order, {"held": StoreUnavailable("no")})

    turns(far, other)

    assert order == ["far.a", "other.held", "other.b", "far.a", "other.b", "far.a", "other.b", "far.a", "far.a"]


def test_a_slow_cut_keeps_the_other_worker_going() -> None:
    slow, others = threading.Event(), []

    def work(table: str) -> None:
        if table == "slow":
            assert slow.wait(30)
        else:
            others.append(table)
            if len(others) == 4:
                slow.set()

    turns(ScriptedBuild("m", {"slow": 1, "quick": 3}, work=work), at_once=2)

    assert slow.is_set()


def test_what_lands_meanwhile_is_taken_though_another_table_still_has_much_to_do() -> None:
    stop, looks = threading.Event(), []
    far, near = ScriptedBuild("far", {"a": 1_000_000}), ScriptedBuild("near", {"b": 0})

    def refresh(build: ScriptedBuild) -> None:
        looks.append(build.name)
        if build is near and len(near.order) < 4:
            near.landed += 1
            near.cuts["b"] += 1

    following = take_turns([far, near], stop, at_once=1, follow=refresh, poll_seconds=0.001)  # type: ignore[list-item, arg-type]  # scripted
    for _ in following:
        if len(near.order) >= 4:
            stop.set()

    assert far.cuts["a"] > 0
    assert {"far", "near"} == set(looks)


def test_a_table_that_has_nothing_to_do_is_left_alone_until_something_lands_and_a_failed_one_is_tried_again() -> None:
    stop = threading.Event()
    idle, failed = ScriptedBuild("m", {"idle": 0}), ScriptedBuild("m", {"t": 0}, faults={"t": StoreUnavailable("no")})

    def refresh(_: ScriptedBuild) -> None:
        if len(failed.order) == 5:
            stop.set()

    for _ in take_turns([idle, failed], stop, at_once=2, follow=refresh, poll_seconds=0.001):  # type: ignore[list-item, arg-type]  # scripted
        pass

    assert (len(idle.order), len(failed.order)) == (1, 5)


def test_a_cut_that_fails_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, tried, clock = threading.Event(), list[int](), count()  # each look at the clock takes a second
    monkeypatch.setattr("silverfold.pipelines.applying.turns.monotonic", lambda: next(clock))
    planned = Mock(cut="of all that landed")
    failing = ScriptedBuild("m", {"t": 0}, faults={"t": StoreUnavailable("no")}, plan=planned)
    failing.work = lambda _: tried.append(next(clock))

    def refresh(build: ScriptedBuild) -> None:
        build.landed += 1
        if next(clock) > 2000:
            stop.set()

    for _ in take_turns([failing], stop, at_once=1, follow=refresh, poll_seconds=0.001):  # type: ignore[list-item, arg-type]  # scripted
        pass

    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert min(waits[:4]) < LONGEST_WAIT  # each may take longer on a busy machine
    assert waits[-1] >= LONGEST_WAIT
    assert len(tried) < 120


def test_what_runs_when_it_is_stopped_is_told() -> None:
    stop, begun = threading.Event(), threading.Event()

    def work(_: str) -> None:
        begun.set()
        assert stop.wait(30)

    build = ScriptedBuild("m", {"t": 9}, work=work)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: list(take_turns([build], stop, at_once=1)))  # type: ignore[list-item]  # scripted
        assert begun.wait(30)
        stop.set()

        assert [step.unfinished for _, step in future.result(30)] == [True]


def test_what_a_step_raises_ends_all() -> None:
    def work(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns(ScriptedBuild("m", {"t": 1}, work=work))
