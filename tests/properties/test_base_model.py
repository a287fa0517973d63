"""Random histories of tables without snapshots, dropped behind their bases: the rest verifies and plans as all did."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Plan, Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.silver_position import silver_position
from silverfold.pipelines.upkeep.beginnings import base_needed
from silverfold.pipelines.upkeep.retention import drop_frames, plan_retention
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.written_silver import write_silver

FEED = "market"
TABLES = {
    "upsert": DeephavenTable(source="upsert", mode="updates_only", apply="upsert"),
    "log": DeephavenTable(source="log", mode="updates_only"),
}
QTY = ("Qty", pa.int64())
SCHEMAS = {
    "upsert": pa.schema([("_row_key", pa.int64()), QTY, ("_position", pa.int64())]),
    "log": pa.schema(
        [
            ("_op", pa.string()),
            ("_position", pa.int64()),
            ("_row_key", pa.int64()),
            ("_last_row_key", pa.int64()),
            ("_present", pa.list_(pa.string())),
            QTY,
        ]
    ),
}
LATER = datetime(2030, 1, 1, tzinfo=UTC)

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "modify", "remove", "torn", "connect"]), st.sampled_from(list(TABLES))),
    max_size=10,
)
PART = st.floats(0.0, 1.0)
ROUND = st.tuples(STEPS, st.fixed_dictionaries(dict.fromkeys(TABLES, st.tuples(PART, PART))))


class Market:
    """A feed that lands twice: in one warehouse bronze is dropped, in the other all of it stays."""

    def __init__(self, root: Path) -> None:
        self.places, self.whole = Places(str(root / "dropped")), Places(str(root / "whole"))
        self.feed = Feed(FEED, "deephaven", "unused", DeephavenOptions(), TABLES)
        streams = {name: CONNECTOR.stream(self.feed, name) for name in TABLES}
        self.history = LandedHistory({name: {"Qty": "Long"} for name in TABLES}, streams=streams)
        self.history.connect()
        self.number = 0

    def land(self, steps: list[tuple[str, str]]) -> None:
        """Land what happens, in both warehouses."""
        for what, table in steps:
            self.number += 1
            rows: dict[int, dict[str, Any]] = {self.number % 5: {"Qty": self.number}}
            match what:
                case "connect":
                    self.history.connect()
                case "add":
                    self.history.update(table, added=rows)
                case "modify":
                    self.history.update(table, modified=rows)
                case "remove":
                    self.history.update(table, removed=list(rows))
                case _:
                    self.history.begin(table)
                    self.history.rows(table, rows, modified=True)
        frames = list(self.history.frames)
        self.history.land(self.whole.bronze(FEED), FEED)
        self.history.frames = frames
        self.history.land(self.places.bronze(FEED), FEED)

    def planned(self, places: Places, table: str, *, applied: bool, before: int | None = None) -> Plan:
        """The next cut of a table that stands where silver does, or has nothing."""
        now = silver_position(places if applied else Places(places.warehouse + "-none"), FEED, table)
        rules = StreamRules.read(places, CONNECTOR, self.feed, table, now, is_misfit=False)
        planner = Planner(FEED, {table: rules}, floor=retained_from(places.bronze(FEED), FEED))
        for batch in read_small_columns(places.bronze(FEED), after=planner.start - 1):
            planner.add_frames(batch)
        return planner.plan(table, CutLimits(), before=before)

    def write(self, to: Places, table: str, before: int) -> int:
        """Let a table be what a build makes of all that landed before a position; return where it stands."""
        cut = self.planned(self.whole, table, applied=False, before=before).cut
        if cut is None:
            return -1
        rows = fold_bronze(LandedTable(self.whole.bronze(FEED), CONNECTOR, self.feed, table, cut.last)).expected().rows
        note = CommitNote(
            feed=FEED,
            table=table,
            epoch=cut.epoch,
            first_position=cut.spans[0][0],
            last_position=cut.last,
            replaced=False,
            updates=len(cut.begins),
        )
        write_silver(to, FEED, table, rows, position=cut.last, schema=SCHEMAS[table], note=note)
        return cut.last

    def drop(self) -> None:
        retention = plan_retention(self.places, CONNECTOR, self.feed, keep_since=LATER)
        if retention.drops:
            drop_frames(self.places.bronze(FEED), FEED, retention)


ALL = {"upsert": (1.0, 1.0), "log": (1.0, 1.0)}


@example([([("add", "upsert"), ("add", "log")], ALL), ([("add", "log")], ALL), ([("modify", "upsert")], ALL)])
@settings(
    max_examples=settings().max_examples // 10,  # an example takes a second
    phases=(Phase.explicit, Phase.generate),  # shrinking would take minutes
)
@given(rounds=st.lists(ROUND, min_size=2, max_size=4))
def test_a_base_stands_for_all_that_was_dropped(
    rounds: list[tuple[list[tuple[str, str]], dict[str, tuple[float, float]]]],
):
    with tempfile.TemporaryDirectory() as root:
        market, reached = Market(Path(root)), dict.fromkeys(TABLES, (0, 0))
        for steps, parts in rounds:
            market.land(steps)
            last = sum(batch.num_rows for batch in read_small_columns(market.whole.bronze(FEED))) - 1
            for name, (built, based) in parts.items():
                before = max(reached[name][0], int(built * last) + 1)
                of_base = max(reached[name][1], int(based * before))
                reached[name] = before, of_base
                market.write(market.places, name, before)
                market.write(market.whole, name, before)
                market.write(market.places.base(name), name, of_base)
            market.drop()

            for name in TABLES:
                verified = verify_table(market.places, CONNECTOR, market.feed, name)
                assert verified.verdict in (Verdict.EQUAL, Verdict.NOT_BUILT), (name, verified)
                ahead, whole = (market.planned(each, name, applied=True) for each in (market.places, market.whole))
                assert ahead.cut == whole.cut
                needed = base_needed(market.places, CONNECTOR, market.feed, name)
                assert verified.base_position == (needed if verified.verdict is Verdict.EQUAL else None)
