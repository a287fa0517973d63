"""What the planner decides, situation by situation. Every frame is written out; positions count from 0."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Cut
from silverfold.pipelines.planning.plan import Plan, Planner, State
from silverfold.pipelines.planning.rules import StreamRules
from tests.support.bronze_rows import BEGAN, bronze

NO_LIMIT = CutLimits()
TABLE = StreamRules(has_snapshots=True, resync=True)
LOG = StreamRules(has_snapshots=False, resync=True)
RESUMING = StreamRules(has_snapshots=True, resync=False)


def planner(rules: StreamRules, *batches: pa.Table) -> Planner:
    fed = Planner("market", {"quotes": rules})
    for batch in batches:
        fed.add_frames(batch)
    return fed


def plan(rules: StreamRules, *lines: str, start: int = 0, before: int | None = None) -> Plan:
    return planner(rules, bronze(*lines, start=start)).plan("quotes", NO_LIMIT, before=before)


def test_a_feed_without_frames_waits_for_a_snapshot():
    planned = Planner("market", {"quotes": TABLE}).plan("quotes", NO_LIMIT)
    assert planned == Plan(None, State.WAITING_FOR_SNAPSHOT, 0, -1, -1, 0, None, 0, None)


def test_a_whole_snapshot_replaces_the_table():
    planned = plan(
        TABLE,
        "1 - mark none",
        "1 quotes control none",
        "1 quotes snapshot begin",
        "1 quotes snapshot inside",
        "1 quotes snapshot end",
    )

    assert planned == Plan(
        cut=Cut("quotes", 1, -1, 4, spans=((2, 4),), begins=(2,), ends=(4,), replaces=True, snapshot_end=4),
        state=State.BEHIND,
        epoch=1,
        landed=4,
        applied=-1,
        backlog_updates=1,
        oldest_waiting=BEGAN + timedelta(seconds=4),
        superseded=0,
        applied_epoch=None,
    )


def test_updates_after_the_snapshot_join_its_cut():
    cut = plan(
        TABLE,
        "1 quotes snapshot begin",
        "1 quotes snapshot end",
        "1 quotes data begin",
        "1 quotes data inside",
        "1 quotes data end",
        "1 quotes data whole",
    ).cut

    ends = {"begins": (0, 2, 5), "ends": (1, 4, 5)}
    assert cut == Cut("quotes", 1, -1, 5, spans=((0, 5),), **ends, replaces=True, snapshot_end=1)


def test_an_open_snapshot_waits():
    planned = plan(TABLE, "1 quotes snapshot begin", "1 quotes snapshot inside")

    assert (planned.cut, planned.state, planned.landed) == (None, State.WAITING_FOR_SNAPSHOT, 1)
    assert (planned.backlog_updates, planned.oldest_waiting) == (0, None)


def test_an_open_update_waits():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, applied=1),
        "1 quotes snapshot end",
        "1 quotes data begin",
        "1 quotes data inside",
        start=1,
    )

    assert (planned.cut, planned.state, planned.landed) == (None, State.WAITING_FOR_UPDATE_END, 3)


def test_the_cut_ends_before_an_open_update():
    cut = plan(
        StreamRules(has_snapshots=True, resync=True, applied=1),
        "1 quotes snapshot end",
        "1 quotes data whole",
        "1 quotes data begin",
        start=1,
    ).cut

    assert cut == Cut("quotes", 1, after=1, last=2, spans=((2, 2),), begins=(2,), ends=(2,), replaces=False)


def test_a_table_that_has_everything_is_synced():
    planned = plan(StreamRules(has_snapshots=True, resync=True, applied=1), "1 quotes snapshot end", start=1)

    assert planned == Plan(None, State.SYNCED, 1, 1, 1, 0, None, 0, 1)


def test_frames_of_other_streams_may_lie_inside_an_update():
    cut = plan(
        TABLE,
        "1 quotes snapshot begin",
        "1 trades snapshot begin",
        "1 quotes snapshot inside",
        "1 - mark none",
        "1 trades snapshot end",
        "1 quotes snapshot end",
    ).cut

    assert cut == Cut("quotes", 1, -1, 5, spans=((0, 5),), begins=(0,), ends=(5,), replaces=True, snapshot_end=5)


def test_frames_of_other_streams_and_control_frames_do_not_separate_spans():
    cut = plan(
        LOG,
        "1 quotes data whole",
        "1 trades data whole",
        "1 quotes control none",
        "1 - mark none",
        "1 quotes data whole",
    ).cut

    assert cut == Cut("quotes", 1, -1, 4, spans=((0, 4),), begins=(0, 4), ends=(0, 4), replaces=False)


def test_each_stream_has_its_own_plan():
    fed = Planner("market", {"quotes": LOG, "trades": TABLE})
    fed.add_frames(
        bronze("1 trades snapshot whole", "1 quotes data whole", "1 trades data whole", "1 quotes data whole")
    )

    cuts = [fed.plan(name, NO_LIMIT).cut for name in ("quotes", "trades")]

    assert cuts == [
        Cut("quotes", 1, -1, 3, spans=((1, 3),), begins=(1, 3), ends=(1, 3), replaces=False),
        Cut("trades", 1, -1, 2, spans=((0, 2),), begins=(0, 2), ends=(0, 2), replaces=True, snapshot_end=0),
    ]


def test_an_update_whose_epoch_ended_is_void_and_outside_the_spans():
    cut = plan(
        LOG,
        "1 quotes data whole",
        "1 quotes data begin",
        "1 quotes data inside",
        "2 - mark none",
        "2 quotes data whole",
        "2 quotes data whole",
    ).cut

    assert cut == Cut("quotes", 2, -1, 5, spans=((0, 0), (4, 5)), begins=(0, 4, 5), ends=(0, 4, 5), replaces=False)


def test_an_open_update_is_void_as_soon_as_any_frame_of_a_later_epoch_has_landed():
    planned = plan(
        StreamRules(has_snapshots=False, resync=True, applied=0),
        "1 quotes data whole",
        "1 quotes data begin",
        "2 - mark none",
    )

    assert (planned.cut, planned.state) == (None, State.SYNCED)


def test_an_end_in_a_later_epoch_does_not_complete_an_update():
    planned = plan(LOG, "1 quotes data begin", "2 quotes data end")

    assert planned.cut is None


def test_an_end_without_a_begin_ends_nothing():
    cut = plan(LOG, "1 quotes data end", "1 quotes data whole", "1 quotes data end").cut

    assert cut == Cut("quotes", 1, -1, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)


@pytest.mark.parametrize("later", ["1 quotes data begin", "1 quotes snapshot begin"])
def test_a_begin_inside_an_open_update_voids_the_open_one(later: str):
    cut = plan(LOG, "1 quotes data begin", later, "1 quotes data end").cut

    assert cut == Cut("quotes", 1, -1, 2, spans=((1, 2),), begins=(1,), ends=(2,), replaces=False)


def test_a_whole_update_inside_an_open_one_voids_the_open_one():
    cut = plan(LOG, "1 quotes data begin", "1 quotes data whole", "1 quotes data end").cut

    assert cut == Cut("quotes", 1, -1, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)


def test_a_stream_without_snapshots_applies_on_across_epochs():
    cut = plan(
        StreamRules(has_snapshots=False, resync=True, applied=0), "1 quotes data whole", "2 quotes data whole"
    ).cut

    assert cut == Cut("quotes", 2, after=0, last=1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)


def test_a_new_epoch_applies_nothing_before_its_snapshot():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "2 - mark none",
        "2 quotes data whole",
    )

    assert (planned.cut, planned.state) == (None, State.WAITING_FOR_SNAPSHOT)
    assert (planned.backlog_updates, planned.oldest_waiting) == (1, BEGAN + timedelta(seconds=2))


def test_what_is_left_of_the_old_epoch_applies_while_the_new_one_has_no_snapshot():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data whole",
        "2 quotes data whole",
    )

    assert planned.cut == Cut("quotes", 1, 0, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)
    assert planned.backlog_updates == 2


def test_the_snapshot_of_a_new_epoch_skips_what_is_left_of_the_old_one():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data whole",
        "2 quotes snapshot begin",
        "2 quotes snapshot end",
        "2 quotes data whole",
    )

    assert planned.cut == Cut(
        "quotes", 2, 0, 4, spans=((2, 4),), begins=(2, 4), ends=(3, 4), replaces=True, snapshot_end=3
    )
    assert (planned.superseded, planned.backlog_updates) == (1, 2)


def test_an_epoch_that_never_completed_a_snapshot_is_skipped_and_no_backlog():
    planned = plan(
        TABLE,
        "1 quotes snapshot whole",
        "2 quotes data whole",
        "2 quotes snapshot begin",
        "3 - mark none",
    )

    assert planned.cut == Cut("quotes", 1, -1, 0, ((0, 0),), begins=(0,), ends=(0,), replaces=True, snapshot_end=0)
    assert planned.backlog_updates == 1


def test_the_first_snapshot_of_an_epoch_is_overlaid_by_what_landed_before_it():
    cut = plan(
        TABLE,
        "1 quotes data whole",
        "1 quotes data whole",
        "1 quotes snapshot begin",
        "1 quotes data whole",
        "1 quotes snapshot end",
        "1 quotes data whole",
    ).cut

    assert cut == Cut(
        "quotes", 1, -1, 5, spans=((0, 5),), begins=(0, 1, 2, 3, 5), ends=(0, 1, 4, 3, 5), replaces=True, snapshot_end=4
    )


def test_what_landed_before_a_snapshot_in_an_earlier_epoch_does_not_overlay_it():
    cut = plan(TABLE, "1 quotes data whole", "2 quotes data whole", "2 quotes snapshot whole").cut

    assert cut == Cut("quotes", 2, -1, 2, spans=((1, 2),), begins=(1, 2), ends=(1, 2), replaces=True, snapshot_end=2)


def test_the_latest_snapshot_wins_and_starts_over():
    planned = plan(
        TABLE,
        "1 quotes snapshot begin",
        "1 quotes snapshot end",
        "1 quotes data whole",
        "1 quotes snapshot begin",
        "1 quotes data whole",
        "1 quotes snapshot end",
    )

    assert planned.cut == Cut(
        "quotes", 1, -1, 5, spans=((3, 5),), begins=(3, 4), ends=(5, 4), replaces=True, snapshot_end=5
    )
    assert (planned.superseded, planned.backlog_updates) == (2, 2)


def test_a_later_snapshot_of_the_epoch_the_table_is_synced_to_is_not_overlaid_by_what_came_before():
    cut = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data whole",
        "1 quotes snapshot whole",
    ).cut

    assert cut == Cut("quotes", 1, 0, 2, spans=((2, 2),), begins=(2,), ends=(2,), replaces=True, snapshot_end=2)


def test_updates_inside_an_open_snapshot_wait_for_it():
    planned = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data whole",
        "1 quotes snapshot begin",
        "1 quotes data whole",
    )

    assert planned.cut == Cut("quotes", 1, 0, 1, spans=((1, 1),), begins=(1,), ends=(1,), replaces=False)
    assert planned.backlog_updates == 2


def test_updates_inside_a_void_snapshot_apply_without_its_frames():
    cut = plan(
        StreamRules(has_snapshots=True, resync=True, applied=0),
        "1 quotes snapshot whole",
        "1 quotes snapshot begin",
        "1 quotes data whole",
        "1 quotes snapshot inside",
        "1 quotes data whole",
        "2 - mark none",
    ).cut

    assert cut == Cut("quotes", 1, 0, 4, spans=((2, 2), (4, 4)), begins=(2, 4), ends=(2, 4), replaces=False)


def test_a_snapshot_may_begin_and_end_with_marks():
    cut = plan(TABLE, "1 quotes mark begin", "1 quotes data whole", "1 quotes snapshot inside", "1 quotes mark end").cut

    assert cut == Cut("quotes", 1, -1, 3, spans=((0, 3),), begins=(0, 1), ends=(3, 1), replaces=True, snapshot_end=3)


def test_a_snapshot_that_begins_with_a_mark_has_in_it_what_landed_before():
    cut = plan(
        TABLE,
        "1 quotes data whole",
        "1 quotes mark begin",
        "1 quotes data whole",
        "1 quotes mark begin",
        "1 quotes snapshot inside",
        "1 quotes data whole",
        "1 quotes mark end",
    ).cut

    assert cut == Cut("quotes", 1, -1, 6, spans=((3, 6),), begins=(3, 5), ends=(6, 5), replaces=True, snapshot_end=6)


def test_a_resuming_stream_goes_on_in_the_next_epoch_without_a_snapshot():
    cut = plan(
        StreamRules(has_snapshots=True, resync=False, applied=0),
        "1 quotes snapshot whole",
        "1 quotes data begin",
        "2 quotes data begin",
        "2 quotes data end",
    ).cut

    assert cut == Cut("quotes", 2, 0, 3, spans=((2, 3),), begins=(2,), ends=(3,), replaces=False)


def test_a_resuming_stream_with_snapshots_begins_with_one():
    planned = plan(RESUMING, "1 quotes snapshot begin", "2 quotes snapshot begin", "2 quotes snapshot inside")

    assert (planned.cut, planned.state) == (None, State.WAITING_FOR_SNAPSHOT)


def test_the_epoch_of_the_applied_position_is_learnt_from_its_frame():
    cut = plan(
        StreamRules(has_snapshots=True, resync=True, applied=7),
        "2 quotes data whole",
        "2 quotes data whole",
        start=7,
    ).cut

    assert cut == Cut("quotes", 2, 7, 8, spans=((8, 8),), begins=(8,), ends=(8,), replaces=False)


def test_dictionary_encoded_columns_are_read_alike():
    frames = bronze("1 quotes data whole", "1 - mark none", "1 trades data whole", "1 quotes data whole")
    encoded = frames
    for name in ("stream", "kind", "boundary"):
        encoded = encoded.set_column(encoded.schema.get_field_index(name), name, frames[name].dictionary_encode())

    cut = planner(LOG, encoded).plan("quotes", NO_LIMIT).cut

    assert cut == Cut("quotes", 1, -1, 3, spans=((0, 3),), begins=(0, 3), ends=(0, 3), replaces=False)
