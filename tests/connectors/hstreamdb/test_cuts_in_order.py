"""Cuts of a source in its own order end where nothing older follows, whatever limits and stops there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silverfold.conf.errors import ExpectationFailed, UndecodableFrame, Unexplained
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Cut
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.feed_plan import FeedPlan
from tests.support.hstreamdb.landed import STREAM, feed_of, table_of

SHOP = feed_of(orders=table_of({"keys": ["id"], "columns": {"id": "bigint"}}))
FAILED = ExpectationFailed("a row fails", table="orders")
BAD = UndecodableFrame(table="orders", position=3, cause_class="INVALID_VALUE", reason="bad_json")


def planned(warehouse: Path, batches: list[int], *, max_frames: int = 200_000, floor: int = 0) -> FeedPlan:
    """Return the plan of frames with these batches, behind a control frame if a floor is given."""
    place = Places(str(warehouse)).bronze(SHOP.name)
    writer = BronzeWriter.open(place, SHOP.name, token="test")
    landed = Batch(writer.last + 1)
    frames = [Frame(b"", Kind.DATA, Boundary.WHOLE, STREAM, f"7-{batch}-0") for batch in batches]
    committed = json.dumps({"created": "1", "offsets": {"7": str(floor)}}).encode()
    landed.add([*[Frame(committed, Kind.CONTROL)] * (floor > 0), *frames], 1, 1_700_000_000)
    writer.append(landed.prepare().table)
    return reading(warehouse, max_frames=max_frames)


def reading(
    warehouse: Path, *, max_frames: int = 200_000, before: int | None = None, sees_later: bool = False
) -> FeedPlan:
    """Return the plan of what has landed."""
    limits = CutLimits(max_frames=max_frames)
    plan = FeedPlan(CONNECTOR, SHOP, Places(str(warehouse)), limits, before, None, sees_later).begin()
    plan.refresh()
    return plan


def next_cut(plan: FeedPlan) -> Cut:
    cut = plan.cut("orders").cut
    assert cut is not None
    return cut


@pytest.mark.parametrize(
    ("batches", "most", "ends"),
    [
        ([1, 2, 3, 4], 3, [2, 3]),
        ([1, 12, 10, 13], 2, [0, 2, 3]),
        ([12, 11, 13], 1, [1, 2]),
        ([12, 11, 10, 13], 1, [0, 2, 3]),
        ([5, 3, 4, 6], 1, [1, 2, 3]),
        ([2, 3, 4, 5, 6, 7, 8, 9, 1], 2, [1, 3, 4, 8]),
        ([2, 3, 12, 10, 13, 14, 1], 2, [1, 3, 6]),
        ([2, 3, 12, 10, 13, 14, 15, 16, 17, 1], 2, [1, 3, 5, 9]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 1], 2, [1, 3, 5, 7, 8]),
        ([1, 1, 2, 2, 1], 1, [0, 1, 2, 3, 4]),
        ([3, 1, 6, 2, 9, 5, 12, 8, 15, 11, 18, 14], 2, [1, 3, 5, 7, 11]),
        ([9, 1, 10, 2, 11, 3, 12, 4, 13, 5, 14], 2, [1, 3, 5, 9, 10]),
        ([1, 1, 2, 2], 1, [0, 1, 2, 3]),
    ],
)
def test_limits_end_a_cut_sooner_or_later_than_inside(
    tmp_path: Path, batches: list[int], most: int, ends: list[int]
) -> None:
    plan, found = planned(tmp_path, batches, max_frames=most), list[int]()
    while (cut := plan.cut("orders").cut) is not None:
        found.append(cut.last)
        plan.advance_to("orders", cut.last)
    assert found == ends


@pytest.mark.parametrize(
    ("batches", "last"),
    [([1, 2, 12, 13, 10], 1), ([1, 2, 3, 4, 10], 2), ([1, 2, 3, 4, 1], 2), ([12, 2, 3, 4, 5], None)],
)
def test_a_bad_frame_stops_a_table_before_what_must_not_be_applied_apart(
    tmp_path: Path, batches: list[int], last: int | None
) -> None:
    plan = planned(tmp_path, batches)
    plan.bisections["orders"].hold(3, next_cut(plan), BAD)
    cut = plan.cut("orders").cut
    assert (None if cut is None else cut.last) == last
    assert plan.bisections["orders"].fault is BAD


def test_what_is_unexplained_is_tried_again_once_more_has_landed(tmp_path: Path) -> None:
    plan = planned(tmp_path, [1, 5])
    fault = Unexplained("inserts over row: 1", table="orders")
    plan.bisections["orders"].hold(1, next_cut(plan), fault, in_source_order=True)
    assert next_cut(plan).last == 0
    planned(tmp_path, [4])
    plan.refresh()
    assert next_cut(plan).last == 2


def test_an_update_that_comes_later_joins_those_that_were_held(tmp_path: Path) -> None:
    plan = planned(tmp_path, [1, 12, 10])
    assert plan.bisections["orders"].shorten(plan.joined(next_cut(plan)), None) == 1
    assert next_cut(plan).last == 0
    plan.advance_to("orders", 0)
    plan.bisections["orders"].drop_passed(0)
    held = next_cut(plan)
    assert (held.last, plan.bisections["orders"].shorten(plan.joined(held), None)) == (2, None)
    plan.bisections["orders"].hold(1, held, FAILED)
    assert plan.cut("orders").cut is None
    planned(tmp_path, [13, 11])
    plan.refresh()
    assert next_cut(plan).last == 4


@pytest.mark.parametrize(("floor", "last"), [(8, None), (9, 2)])
def test_what_a_committed_floor_covers_came_before(tmp_path: Path, floor: int, last: int | None) -> None:
    plan = planned(tmp_path, [10, 11, 12, 9], floor=floor)
    plan.bisections["orders"].hold(3, next_cut(plan), BAD)
    cut = plan.cut("orders").cut
    assert (None if cut is None else cut.last) == last


def test_what_an_earlier_cut_took_may_come_again_behind_a_bad_frame(tmp_path: Path) -> None:
    plan = planned(tmp_path, [1, 2, 3, 4, 5, 6, 1], max_frames=2)
    plan.advance_to("orders", 2)
    plan.bisections["orders"].hold(5, next_cut(plan), BAD)
    assert next_cut(plan).last == 4


@pytest.mark.parametrize(("batches", "last"), [([1, 2, 12, 10], 1), ([1, 2, 3, 4], 2), ([12, 13, 14, 1], 2)])
def test_what_ends_at_a_position_may_heed_what_is_behind_it(tmp_path: Path, batches: list[int], last: int) -> None:
    planned(tmp_path, batches)
    assert next_cut(reading(tmp_path, before=3)).last == 2
    assert next_cut(reading(tmp_path, before=3, sees_later=True)).last == last
