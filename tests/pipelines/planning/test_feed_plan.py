"""Where the cuts of a feed's tables end beyond what the planner knows: at control frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.conf.model import CutLimits
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.feed_plan import FeedPlan
from tests.support.tengi.landed import feed_of

SNAPSHOT, CHANGE = (Frame(b"", kind, Boundary.WHOLE, "orders") for kind in (Kind.SNAPSHOT, Kind.DATA))
FIRST, SECOND = (Frame(body, Kind.CONTROL, stream="orders") for body in (b"1", b"2"))


@pytest.mark.parametrize(
    ("frames", "ends"),
    [
        ([FIRST, SNAPSHOT, CHANGE, SECOND, CHANGE], [2, 4]),
        ([FIRST, SNAPSHOT, CHANGE, FIRST, CHANGE], [4]),
        ([FIRST, CHANGE, SECOND, SNAPSHOT, CHANGE], [4]),
    ],
    ids=["news", "no news", "before the snapshot"],
)
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_cut_ends_before_other_columns_also_behind_its_snapshot(
    tmp_path: Path, frames: list[Frame], ends: list[int], scd_type: int
) -> None:
    feed = feed_of(stored_as_scd_type=scd_type)
    places, landed = Places(str(tmp_path)), Batch(0)
    landed.add(frames, 1, 1_700_000_000)
    BronzeWriter.open(places.bronze(feed.name), feed.name, token="test").append(landed.prepare().table)
    plan, found = FeedPlan(CONNECTOR, feed, places, CutLimits(), None, None).begin(), list[int]()
    plan.refresh()
    while (cut := plan.cut("orders").cut) is not None:
        found.append(cut.last)
        plan.advance_to("orders", cut.last)
    assert found == ends
