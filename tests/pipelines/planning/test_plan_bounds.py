"""Where a plan starts, what stops it, and where its cuts end. Every frame is written out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from silverfold.conf.errors import DoubledPositions, PositionGap
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Cut
from silverfold.pipelines.landing.frame_sizes import FrameSizes
from silverfold.pipelines.planning.plan import Plan, Planner, State
from silverfold.pipelines.planning.rules import StreamRules
from tests.support.bronze_rows import bronze

NO_LIMIT = CutLimits()
TABLE = StreamRules(has_snapshots=True, resync=True)
LOG = StreamRules(has_snapshots=False, resync=True)
RESUMING = StreamRules(has_snapshots=True, resync=False)
HISTORY = StreamRules(has_snapshots=True, resync=True, every_update=True)


def planner(rules: StreamRules, *batches: pa.Table) -> Planner:
    fed = Planner("market", {"quotes": rules})
    for batch in batches:
        fed.add_frames(batch)
    return fed


def plan(rules: StreamRules, *lines: str, start: int = 0, before: int | None = None) -> Plan:
    return planner(rules, bronze(*lines, start=start)).plan("quotes", NO_LIMIT, before=before)


def test_reading_starts_at_the_smallest_applied_position():
    fed = Planner(
        "market",
        {
            "quotes": StreamRules(has_snapshots=True, resync=True, applied=40),
            "trades": StreamRules(has_snapshots=False, resync=True, applied=25),
        },
    )

    assert fed.start == 25


def test_several_tables_take_the_updates_of_one_stream_each_from_where_it_stands():
    rules = StreamRules(has_snapshots=False, resync=False, stream="7")
    fed = Planner("market", {"rows": rules, "book": replace(rules, applied=1), "quotes": LOG})
    fed.add_frames(
        bronze("1 7 data whole", "1 7 data whole", "1 quotes data whole", "1 7 data whole", "1 rows data whole")
    )

    cuts = {name: fed.plan(name, NO_LIMIT).cut for name in ("rows", "book", "quotes")}

    assert {name: (cut.stream, cut.begins) for name, cut in cuts.items()} == {
        "rows": ("7", (0, 1, 3)),
        "book": ("7", (3,)),
        "quotes": ("quotes", (2,)),
    }
    assert [fed.plan(name, NO_LIMIT).landed for name in cuts] == [3, 3, 2]


def test_rows_before_the_start_are_skipped():
    rules = StreamRules(has_snapshots=True, resync=True, applied=1)
    cut = plan(rules, "1 quotes snapshot begin", "1 quotes snapshot end", "1 quotes data whole").cut

    assert cut == Cut("quotes", 1, 1, 2, spans=((2, 2),), begins=(2,), ends=(2,), replaces=False)


def test_a_batch_fed_twice_counts_once():
    batch = bronze("1 quotes data whole", "1 quotes data whole")

    cut = planner(LOG, batch, batch).plan("quotes", NO_LIMIT).cut

    assert cut == Cut("quotes", 1, -1, 1, spans=((0, 1),), begins=(0, 1), ends=(0, 1), replaces=False)


@pytest.mark.parametrize(
    ("batches", "first", "last"),
    [
        ([bronze("1 quotes data whole", start=3)], 0, 2),
        ([bronze("1 quotes data whole"), bronze("1 quotes data whole", start=2)], 1, 1),
        ([pa.concat_tables([bronze("1 - mark none"), bronze("1 - mark none", start=5)])], 1, 4),
    ],
    ids=["at the start", "between batches", "inside a batch"],
)
def test_missing_positions_stop_the_table_and_are_named(batches: list[pa.Table], first: int, last: int):
    with pytest.raises(PositionGap) as caught:
        planner(LOG, *batches).plan("quotes", NO_LIMIT)

    assert (caught.value.feed, caught.value.first, caught.value.last) == ("market", first, last)


def test_missing_positions_that_a_table_has_passed_do_not_stop_it():
    fed = Planner(
        "market",
        {
            "quotes": StreamRules(has_snapshots=False, resync=True, applied=4),
            "trades": StreamRules(has_snapshots=False, resync=True, applied=0),
        },
    )
    fed.add_frames(bronze("1 - mark none", "1 - mark none"))
    fed.add_frames(bronze("1 quotes data whole", "1 quotes data whole", start=4))

    cut = fed.plan("quotes", NO_LIMIT).cut

    assert cut == Cut("quotes", 1, 4, 5, spans=((5, 5),), begins=(5,), ends=(5,), replaces=False)
    with pytest.raises(PositionGap, match="2 to 3"):
        fed.plan("trades", NO_LIMIT)


def test_bronze_that_ends_before_the_applied_position_is_a_gap():
    rules = StreamRules(has_snapshots=True, resync=True, applied=9)

    with pytest.raises(PositionGap, match="5 to 9"):
        plan(rules, "1 - mark none", start=4)


SNAPSHOT_THEN_DATA = (
    "1 quotes data whole",
    "1 quotes snapshot begin",
    "1 quotes snapshot inside",
    "1 quotes snapshot end",
    "1 quotes data whole",
    "1 quotes data begin",
    "1 quotes data inside",
    "1 quotes data end",
    "1 quotes data whole",
)


@pytest.mark.parametrize(
    ("max_frames", "ends"),
    [(1, (0, 3)), (4, (0, 3)), (5, (0, 3, 4)), (7, (0, 3, 4)), (8, (0, 3, 4, 7)), (9, (0, 3, 4, 7, 8))],
)
def test_a_cut_holds_as_many_frames_as_allowed_but_never_splits_a_snapshot_and_its_overlay(
    max_frames: int, ends: tuple[int, ...]
):
    fed = planner(TABLE, bronze(*SNAPSHOT_THEN_DATA))

    cut = fed.plan("quotes", CutLimits(max_frames=max_frames)).cut

    assert cut is not None
    assert (cut.ends, cut.last) == (ends, ends[-1])


def test_the_rest_of_a_bounded_cut_comes_in_the_next_one():
    fed = planner(TABLE, bronze(*SNAPSHOT_THEN_DATA))
    fed.advance_to("quotes", 4)

    planned = fed.plan("quotes", CutLimits(max_frames=1))

    assert planned.cut == Cut("quotes", 1, 4, 7, spans=((5, 7),), begins=(5,), ends=(7,), replaces=False)
    assert (planned.applied, planned.backlog_updates) == (4, 2)


@pytest.mark.parametrize(
    ("sizes", "last"), [({0: 1000.0}, 3), ({0: 100.0, 3: 2000.0}, 4), ({0: 5000.0, 1: 1.0}, 0)], ids=str
)
def test_bytes_bound_a_cut_by_the_sizes_of_its_own_frames(sizes: dict[int, float], last: int):
    fed = planner(LOG, bronze(*["1 quotes data whole"] * 10))

    cut = fed.plan("quotes", CutLimits(max_bytes=4400), sizes=FrameSizes(sizes)).cut

    assert cut is not None
    assert cut.last == last


@pytest.mark.parametrize(
    ("before", "ends"),
    [(9, (0, 3, 4, 7, 8)), (8, (0, 3, 4, 7)), (7, (0, 3, 4)), (6, (0, 3, 4)), (5, (0, 3, 4)), (4, (0, 3))],
)
def test_a_held_cut_ends_before_the_update_of_the_bad_frame(before: int, ends: tuple[int, ...]):
    cut = plan(TABLE, *SNAPSHOT_THEN_DATA, before=before).cut

    assert cut is not None
    assert cut.ends == ends


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_there_is_no_cut_when_the_bad_frame_is_in_the_snapshot_or_its_overlay(before: int):
    assert plan(TABLE, *SNAPSHOT_THEN_DATA, before=before).cut is None


def test_a_bad_frame_inside_a_snapshots_window_holds_the_whole_window():
    cut = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data whole",
        "1 quotes snapshot begin",
        "1 quotes data whole",
        "1 quotes data whole",
        "1 quotes snapshot end",
        before=4,
    ).cut

    assert cut == Cut("quotes", 1, 0, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)


def test_a_snapshot_before_the_bad_frame_still_replaces_when_a_later_snapshot_is_bad():
    cut = plan(TABLE, "1 quotes snapshot whole", "1 quotes data whole", "1 quotes snapshot whole", before=2).cut

    assert cut == Cut("quotes", 1, -1, 1, spans=((0, 1),), begins=(0, 1), ends=(0, 1), replaces=True, snapshot_end=0)


def test_a_table_moved_on_by_another_process_is_planned_from_there():
    fed = planner(TABLE, bronze("1 quotes snapshot whole", "1 quotes data begin"))
    fed.advance_to("quotes", 3)
    fed.add_frames(bronze("1 quotes data inside", "2 quotes snapshot whole", "2 quotes data whole", start=2))

    cut = fed.plan("quotes", NO_LIMIT).cut

    assert cut == Cut("quotes", 2, 3, 4, spans=((4, 4),), begins=(4,), ends=(4,), replaces=False)


def test_a_table_that_has_taken_nothing_begins_where_bronze_is_kept_from():
    fed = Planner("market", {"quotes": TABLE}, floor=40)
    fed.add_frames(bronze("1 - control none", start=2))  # kept, though it is below
    fed.add_frames(bronze("1 quotes snapshot begin", "1 quotes snapshot end", start=40))

    cut = fed.plan("quotes", NO_LIMIT).cut

    assert fed.start == 42
    assert cut == Cut("quotes", 1, -1, 41, spans=((40, 41),), begins=(40,), ends=(41,), replaces=True, snapshot_end=41)


def test_positions_missing_above_where_bronze_is_kept_from_stop_the_table():
    fed = Planner("market", {"quotes": TABLE}, floor=40)
    fed.add_frames(bronze("1 quotes data whole", start=42))

    with pytest.raises(PositionGap) as stopped:
        fed.plan("quotes", NO_LIMIT)

    assert (stopped.value.first, stopped.value.last) == (40, 41)


def cut_off(rules: StreamRules, *lines: str) -> Planner:
    """A table that had reached 30, and frames from 40 on."""
    fed = Planner("market", {"quotes": replace(rules, applied=30, applied_epoch=1)}, floor=40)
    fed.add_frames(bronze(*lines, start=40))
    return fed


def test_a_table_below_where_bronze_is_kept_from_waits_for_a_snapshot():
    planned = cut_off(TABLE, "1 quotes data whole").plan("quotes", NO_LIMIT)

    assert (planned.cut, planned.state, planned.applied) == (None, State.WAITING_FOR_SNAPSHOT, 30)


def test_a_table_below_where_bronze_is_kept_from_goes_on_with_a_snapshot_of_a_later_epoch():
    fed = cut_off(TABLE, "1 quotes data whole", "2 quotes data whole", "2 quotes snapshot whole", "2 quotes data whole")

    cut = fed.plan("quotes", NO_LIMIT).cut

    assert cut == Cut(
        "quotes", 2, 30, 43, spans=((41, 43),), begins=(41, 42, 43), ends=(41, 42, 43), replaces=True, snapshot_end=42
    )
    fed.advance_to("quotes", 43)
    assert fed.plan("quotes", NO_LIMIT).state is State.SYNCED


@pytest.mark.parametrize("rules", [TABLE, RESUMING, HISTORY])
@pytest.mark.parametrize(
    ("lines", "spans"),
    [
        (["quotes snapshot whole", "quotes data whole"], ((40, 41),)),
        (["quotes data whole", "quotes mark begin", "quotes snapshot inside", "quotes snapshot end"], ((41, 43),)),
        (["quotes data whole", "quotes snapshot whole", "quotes data whole"], None),
        (["quotes data whole", "quotes snapshot whole", "quotes data whole", "quotes snapshot whole"], ((43, 43),)),
        (["quotes snapshot end", "quotes data whole", "quotes snapshot whole"], None),
    ],
    ids=["nothing before it", "asked for", "updates before it", "a second one", "one that began before"],
)
def test_a_snapshot_of_which_bronze_no_longer_tells_whether_it_was_the_first_is_passed(
    rules: StreamRules, lines: list[str], spans: tuple[tuple[int, int], ...] | None
):
    fed = Planner("market", {"quotes": rules}, floor=40)
    fed.add_frames(bronze(*(f"1 {line}" for line in lines), start=40))

    cut = fed.plan("quotes", NO_LIMIT).cut

    assert (cut and cut.spans) == spans


@pytest.mark.parametrize(
    ("rules", "advice"),
    [
        (
            LOG,
            "they were dropped while the table was not in the feed. To begin anew at position 40, remove it",
        ),
        (
            HISTORY,
            "its history lacks what was dropped. To begin that anew at position 40, remove it and run "
            "`silverfold rebuild market quotes`",
        ),
    ],
)
def test_what_needs_every_update_stops_below_where_bronze_is_kept_from_and_says_what_to_do(
    rules: StreamRules, advice: str
):
    with pytest.raises(PositionGap) as stopped:
        cut_off(rules, "1 quotes snapshot whole").plan("quotes", NO_LIMIT)

    assert str(stopped.value) == f"bronze of feed market lacks positions 31 to 39: {advice}"


def test_positions_that_are_there_twice_stop_the_tables_that_have_yet_to_pass_them():
    fed = Planner("market", {"quotes": LOG, "trades": replace(LOG, applied=3)})
    lines = ["1 quotes data whole", "1 trades data whole", "1 quotes data whole"]
    fed.add_frames(pa.concat_tables([bronze(*lines), bronze(*lines, start=1)]).sort_by("frame_seq"))

    with pytest.raises(DoubledPositions) as stopped:
        fed.plan("quotes", NO_LIMIT)

    assert (stopped.value.feed, stopped.value.first, stopped.value.last) == ("market", 1, 2)
    assert str(stopped.value) == (
        "bronze of feed market has frames twice from position 1 to 2: `silverfold maintain market` removes the second "
        "of each"
    )
    assert fed.plan("trades", NO_LIMIT).cut is None


def test_with_history_each_snapshot_has_a_cut_of_its_own_after_what_came_before_it():
    fed = planner(
        StreamRules(has_snapshots=True, resync=True, applied=0, every_update=True),
        bronze(
            "1 quotes snapshot whole",
            "1 quotes data whole",
            "1 quotes snapshot begin",
            "1 quotes data whole",
            "1 quotes snapshot end",
            "2 quotes data whole",
            "2 quotes snapshot whole",
            "2 quotes data whole",
        ),
    )
    cuts = list[Cut]()
    while (planned := fed.plan("quotes", NO_LIMIT)).cut is not None:
        cuts.append(planned.cut)
        assert planned.superseded == 0
        fed.advance_to("quotes", planned.cut.last)

    assert cuts == [
        Cut("quotes", 1, 0, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False),
        Cut("quotes", 1, 1, 4, spans=((2, 4),), begins=(2, 3), ends=(4, 3), replaces=True, snapshot_end=4),
        Cut("quotes", 2, 4, 7, spans=((5, 7),), begins=(5, 6, 7), ends=(5, 6, 7), replaces=True, snapshot_end=6),
    ]


def test_with_history_what_waits_for_earlier_snapshots_counts_as_backlog():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, every_update=True),
        "1 quotes snapshot whole",
        "2 quotes snapshot whole",
        "2 quotes data whole",
        "3 quotes snapshot whole",
    )

    assert (planned.backlog_updates, planned.cut and planned.cut.last) == (4, 0)


@pytest.mark.parametrize(("past", "spans"), [(None, ((1, 2),)), (1, ((3, 6),)), (6, ((7, 7),)), (7, None)])
def test_with_history_only_what_cannot_be_taken_is_passed_by_the_next_snapshot(
    past: int | None, spans: tuple[tuple[int, int], ...] | None
):
    fed = planner(
        StreamRules(has_snapshots=True, resync=True, applied=0, every_update=True),
        bronze(
            "1 quotes snapshot whole",
            "1 quotes data whole",
            "1 quotes data whole",
            "1 quotes snapshot whole",
            "2 - mark none",
            "2 - mark none",
            "1 quotes data whole",
            "1 quotes snapshot whole",
        ),
    )

    cut = fed.plan("quotes", NO_LIMIT, past=past).cut

    assert (cut and cut.spans) == spans


def test_a_cut_that_is_to_pass_a_position_takes_the_update_behind_it_however_long_that_is():
    long = ["1 quotes data begin", *["1 quotes data none"] * 9, "1 quotes data end"]
    fed = planner(LOG, bronze("1 quotes data whole", *long, "1 quotes data whole"))
    few = CutLimits(max_frames=3)

    cuts = [fed.plan("quotes", few, beyond=beyond).cut for beyond in (-1, 0, 11, 12)]

    assert [cut and cut.last for cut in cuts] == [0, 11, 12, 0]
