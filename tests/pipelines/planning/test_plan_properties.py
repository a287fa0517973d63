"""Laws of planning, over random histories of frames: also such as no receiver of ours would land."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Cut
from silverfold.pipelines.planning.plan import Planner, State
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.verifying.landed_updates import whole_updates
from silverfold.pipelines.verifying.reference_history import steps
from tests.support.bronze_rows import Row, small_columns
from tests.support.naive_planner import Pairs, naive_plan

NO_LIMIT = CutLimits()
STREAM = "quotes"

FRAMES = st.tuples(
    st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1]),  # epochs passed since the frame before
    st.sampled_from([STREAM, STREAM, STREAM, "trades", None]),
    st.sampled_from(["data", "data", "snapshot", "snapshot", "control", "mark"]),
    st.sampled_from(["begin", "begin", "end", "end", "whole", "inside", "none"]),
)
RULES = st.builds(StreamRules, has_snapshots=st.booleans(), resync=st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    history: list[Row] = []
    epoch = 1
    for passed, stream, kind, boundary in draw(st.lists(FRAMES, max_size=40)):
        epoch += passed
        history.append(Row(len(history), epoch, stream, kind, boundary))
    return history


BLOCKS = {
    "snapshot": ["snapshot begin", "data whole", "snapshot end"],
    "small snapshot": ["snapshot whole"],
    "torn snapshot": ["snapshot begin", "data whole"],
    "update": ["data begin", "data end"],
    "small update": ["data whole"],
    "torn update": ["data begin"],
    "connect": ["mark none"],
}


@st.composite
def stories(draw: st.DrawFn) -> list[Row]:
    """Histories as receivers land them, with many snapshots."""
    history, epoch = list[Row](), 0
    for name in ["connect", *draw(st.lists(st.sampled_from(sorted(BLOCKS)), max_size=20))]:
        epoch += name == "connect"
        for frame in BLOCKS[name]:
            history.append(Row(len(history), epoch, STREAM, *frame.split()))
    return history


@st.composite
def pieces(draw: st.DrawFn, whole: Callable[[], st.SearchStrategy[list[Row]]] = histories) -> list[list[Row]]:
    history = draw(whole())
    bounds = sorted(draw(st.sets(st.integers(0, len(history)), max_size=8)) | {0, len(history)})
    return [history[first:last] for first, last in pairwise(bounds)]


def planner(rules: StreamRules, batches: Sequence[Sequence[Row]]) -> Planner:
    fed = Planner("market", {STREAM: rules})
    for batch in batches:
        fed.add_frames(small_columns(batch))
    return fed


def joined(batches: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


@given(batches=pieces(), rules=RULES)
def test_a_plan_does_not_depend_on_where_batches_end(batches: list[list[Row]], rules: StreamRules):
    whole = planner(rules, [joined(batches)])

    in_pieces = planner(rules, batches)

    assert in_pieces.plan(STREAM, NO_LIMIT) == whole.plan(STREAM, NO_LIMIT)


@given(history=histories(), rules=RULES)
def test_a_plan_is_what_the_rules_say_frame_by_frame(history: list[Row], rules: StreamRules):
    expected = naive_plan(history, STREAM, rules)

    plan = planner(rules, [history]).plan(STREAM, NO_LIMIT)

    assert (plan.state, plan.backlog_updates) == (expected.state, expected.backlog)
    assert _contents(plan.cut) == (expected.updates, expected.spans, expected.replaces)


@given(batches=pieces(), rules=RULES, applied_share=st.floats(0, 1))
def test_planning_from_an_applied_position_is_what_the_rules_say(
    batches: list[list[Row]], rules: StreamRules, applied_share: float
):
    history = joined(batches)
    first = planner(rules, batches).plan(STREAM, CutLimits(max_frames=max(1, int(applied_share * len(history))))).cut
    reached = StreamRules(rules.has_snapshots, rules.resync, applied=first.last if first else -1)
    expected = naive_plan(history, STREAM, reached)

    plan = planner(reached, batches).plan(STREAM, NO_LIMIT)

    assert (plan.state, plan.backlog_updates) == (expected.state, expected.backlog)
    assert _contents(plan.cut) == (expected.updates, expected.spans, expected.replaces)


@given(history=histories(), rules=RULES, frames=st.integers(1, 12))
def test_bounded_cuts_cover_the_same_updates_in_the_same_order(history: list[Row], rules: StreamRules, frames: int):
    expected = naive_plan(history, STREAM, rules)

    cuts = _cuts(planner(rules, [history]), CutLimits(max_frames=frames))

    assert tuple(sorted(pair for cut in cuts for pair in _contents(cut)[0])) == expected.updates
    assert [cut.last for cut in cuts] == sorted({cut.last for cut in cuts})
    assert [cut.after for cut in cuts] == [-1, *(cut.last for cut in cuts)][:-1]
    assert [cut.replaces for cut in cuts] == [expected.replaces, *[False] * len(cuts)][: len(cuts)]
    assert not cuts or cuts[0].last >= expected.unsplit_end


@given(batches=pieces(), rules=RULES, frames=st.integers(1, 12))
def test_what_a_table_holds_does_not_depend_on_when_it_was_planned(
    batches: list[list[Row]], rules: StreamRules, frames: int
):
    at_the_end = _held_after(_cuts(planner(rules, batches), NO_LIMIT))
    fed, cuts = planner(rules, []), list[Cut]()

    for batch in batches:
        fed.add_frames(small_columns(batch))
        cuts += _cuts(fed, CutLimits(max_frames=frames))

    assert _held_after(cuts) == at_the_end


@given(batches=pieces(stories) | pieces(), resync=st.booleans(), snapshots=st.booleans(), frames=st.integers(1, 12))
def test_with_history_every_update_takes_effect_in_its_turn_whenever_it_was_planned(
    batches: list[list[Row]], resync: bool, snapshots: bool, frames: int
):
    fed, cuts = planner(StreamRules(snapshots, resync, every_update=True), []), list[Cut]()

    for batch in batches:
        fed.add_frames(small_columns(batch))
        cuts += _cuts(fed, CutLimits(max_frames=frames))

    reached = max((cut.last for cut in cuts), default=-1)
    columns = small_columns([row for row in joined(batches) if row.position <= reached]).to_batches()
    whole = list(whole_updates(columns, STREAM))
    in_turn = steps(whole, resync=resync) if snapshots else [(update,) for update in whole]
    assert [taken for cut in cuts for taken in _in_turn(cut)] == [{each[:2] for each in step} for step in in_turn]


@given(history=histories(), rules=RULES, before=st.integers(0, 40))
def test_holding_before_a_position_touches_no_update_that_reaches_it(
    history: list[Row], rules: StreamRules, before: int
):
    plan = planner(rules, [history]).plan(STREAM, NO_LIMIT, before=before)

    assert plan.cut is None or all(end < before for end in plan.cut.ends)


@given(history=histories(), rules=RULES)
def test_holding_before_nothing_changes_nothing(history: list[Row], rules: StreamRules):
    fed = planner(rules, [history])

    assert fed.plan(STREAM, NO_LIMIT, before=len(history)) == fed.plan(STREAM, NO_LIMIT)


@given(history=histories(), rules=RULES)
def test_a_table_that_has_taken_everything_has_no_cut_left(history: list[Row], rules: StreamRules):
    fed = planner(rules, [history])
    _cuts(fed, NO_LIMIT)

    assert fed.plan(STREAM, NO_LIMIT).state is not State.BEHIND


@pytest.mark.parametrize("streams", [1, 3])
def test_a_long_history_in_odd_batches_keeps_count(streams: int):
    names = [f"s{index}" for index in range(streams)]
    shape = ["begin", "inside", "inside", "end", "whole"]
    history = [Row(at, 1, names[(at // 5) % streams], "data", shape[at % 5]) for at in range(5 * streams * 400)]
    fed = Planner("market", {name: StreamRules(has_snapshots=False, resync=True) for name in names})
    for first in range(0, len(history), 333):
        fed.add_frames(small_columns(history[first : first + 333]))

    plans = [fed.plan(name, NO_LIMIT) for name in names]

    assert [plan.backlog_updates for plan in plans] == [800] * streams
    assert [plan.cut.spans for plan in plans if plan.cut] == [
        ((5 * index, len(history) - 5 * (streams - index) + 4),) for index in range(streams)
    ]


def _contents(cut: Cut | None) -> tuple[Pairs, Pairs, bool]:
    if cut is None:
        return (), (), False
    return tuple(zip(cut.begins, cut.ends, strict=True)), cut.spans, cut.replaces


def _in_turn(cut: Cut) -> list[set[tuple[int, int]]]:
    """Return the updates of a cut, those together that take effect at once."""
    pairs = sorted(_contents(cut)[0], key=itemgetter(1))
    snapshot_end = -1 if cut.snapshot_end is None else cut.snapshot_end
    first = {pair for pair in pairs if pair[1] <= snapshot_end}
    return [*([first] if first else []), *({pair} for pair in pairs if pair[1] > snapshot_end)]


def _cuts(fed: Planner, limits: CutLimits) -> list[Cut]:
    """Plan and apply until nothing is left."""
    cuts: list[Cut] = []
    while (cut := fed.plan(STREAM, limits).cut) is not None:
        cuts.append(cut)
        fed.advance_to(STREAM, cut.last)
    return cuts


def _held_after(cuts: Sequence[Cut]) -> list[tuple[int, int]]:
    """Return the updates a table consists of: those since it was last replaced, in order."""
    since = max((index for index, cut in enumerate(cuts) if cut.replaces), default=0)
    return sorted(pair for cut in cuts[since:] for pair in _contents(cut)[0])
