"""Random histories of two tables, then retention: what is left verifies, and plans, as the whole did."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Cut, Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.upkeep.retention import drop_frames, plan_retention
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.landing import landed
from tests.support.tries import a_third
from tests.support.written_silver import write_silver

FEED = "market"
NAMES = ("quotes", "trades")
SCHEMA = pa.schema([("_row_key", pa.int64()), ("Qty", pa.int64()), ("_position", pa.int64())])
LATER = datetime(2030, 1, 1, tzinfo=UTC)

STEPS = st.lists(
    st.tuples(st.sampled_from(["snapshot", "update", "update", "torn", "connect"]), st.sampled_from(NAMES)),
    min_size=4,
    max_size=24,
)


class Market:
    """A feed of two tables with snapshots."""

    def __init__(self, root: Path) -> None:
        self.places = Places(str(root))
        self.bronze = self.places.bronze(FEED)
        tables = {name: DeephavenTable(source=name) for name in NAMES}
        self.feed = Feed(FEED, "deephaven", "unused", DeephavenOptions(), tables)
        self.history = LandedHistory({name: {"Qty": "Long"} for name in NAMES})

    def tell(self, steps: list[tuple[str, str]]) -> None:
        """Land what happens. Row 1 counts the steps; each snapshot and each update has a row of its own too."""
        self.history.connect()
        for number, (what, table) in enumerate(steps, start=10):
            rows: dict[int, dict[str, Any]] = {1: {"Qty": number}, number: {"Qty": number}}
            match what:
                case "connect":
                    self.history.connect()
                case "snapshot":
                    self.history.snapshot(table, rows)
                case "update":
                    self.history.update(table, added={number: rows[number]}, modified={1: rows[1]})
                case _:
                    self.history.begin(table)
                    self.history.rows(table, rows, modified=True)
        self.history.land(self.bronze, FEED)

    def planned(self, table: str, before: int | None) -> Cut | None:
        """The one cut by which a table is built from the beginning."""
        rules = {name: StreamRules.of(CONNECTOR, self.feed, name) for name in self.feed.tables}
        planner = Planner(FEED, rules, floor=retained_from(self.bronze, FEED))
        for batch in read_small_columns(self.bronze, after=planner.start - 1):
            planner.add_frames(batch)
        return planner.plan(table, CutLimits(), before=before).cut

    def build(self, table: str, before: int) -> Cut | None:
        """Let silver stand where a build would have got to."""
        cut = self.planned(table, before)
        if cut is not None:
            rows = fold_bronze(LandedTable(self.bronze, CONNECTOR, self.feed, table, cut.last)).expected().rows
            write_silver(self.places, FEED, table, rows, position=cut.last, schema=SCHEMA)
        return cut

    def verdict(self, table: str) -> Verdict:
        return verify_table(self.places, CONNECTOR, self.feed, table).verdict


@example([("snapshot", "quotes"), ("snapshot", "trades"), ("update", "quotes"), ("snapshot", "quotes")], (1.0, 1.0))
@a_third
@given(steps=STEPS, parts=st.tuples(st.floats(0.3, 1.0), st.floats(0.3, 1.0)))
def test_what_retention_leaves_is_enough(steps: list[tuple[str, str]], parts: tuple[float, float]):
    with tempfile.TemporaryDirectory() as root:
        market = Market(Path(root))
        market.tell(steps)
        frames = len(landed(market.bronze))
        cuts = {name: market.build(name, int(part * frames) + 1) for name, part in zip(NAMES, parts, strict=True)}
        newest = {name: market.planned(name, None) for name in NAMES}

        retention = plan_retention(market.places, CONNECTOR, market.feed, keep_since=LATER)
        if retention.drops:
            drop_frames(market.bronze, FEED, retention)

        for name, cut in cuts.items():
            if cut is not None:
                assert market.verdict(name) is Verdict.EQUAL
                assert market.planned(name, cut.last + 1) == cut
            assert market.planned(name, None) == newest[name]
        assert all(
            frame.frame_seq >= retention.floor or frame.kind in ("control", "mark") for frame in landed(market.bronze)
        )
