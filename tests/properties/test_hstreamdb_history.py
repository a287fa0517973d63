"""Histories of a stream that lands in any order, again and again, in cuts that end anywhere: silver is the model.

Each history has a shard and keys of its own, so that a build takes many of them at once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building import settings_at
from tests.support.building_once import all_rows
from tests.support.hstreamdb.landed import STREAM, feed_of, frame_of, objects, table_of
from tests.support.running import run_once

HISTORIES = 60
"""In an example: by default the only one, whose cuts end inside what has landed."""
BUILDS = 3
SHOP = feed_of(orders=table_of({"keys": ["shard", "id"], "columns": {"shard": "int", "id": "int", "name": "string"}}))

Record = dict[str, Any] | bytes
Row = tuple[int, int]


class History:
    """Batches of changes of five keys, and what of them arrives between builds: late, repeated, as rests of batches.

    Committed floors land when all of the shard's batches up to them have; their records may come again even then.
    """

    def __init__(self, shard: int, rng: Random) -> None:
        self.shard, self.rng = shard, rng
        self.batches: list[list[tuple[Record, dict[Row, str | None]]]] = [
            [self._change(f"{batch}.{index}") for index in range(rng.randint(1, 4))]
            for batch in range(rng.randint(2, 8))
        ]
        self.landed: set[tuple[int, int]] = set()
        """Batch and index, both from 0."""
        self.arrivals = self._arrivals()

    def _change(self, name: str) -> tuple[Record, dict[Row, str | None]]:
        """Return a record, and the rows that it sets, or deletes with None."""
        key, other = ((self.shard, number) for number in self.rng.sample(range(5), 2))
        match self.rng.choice(["row", "row", "delete", "move"]):
            case "row":
                return {"key": _members(key), "value": {**_members(key), "name": name}}, {key: name}
            case "delete":
                return {"key": _members(key), "value": None}, {key: None}
        moved = {"op": "u", "before": {**_members(key), "name": ""}, "after": {**_members(other), "name": name}}
        return json.dumps(moved).encode(), {key: None, other: name}

    def _arrivals(self) -> list[list[int]]:
        """Return the batches that arrive before each build, some of them never and others often."""
        rng, numbers = self.rng, list(range(len(self.batches)))
        order = [*rng.sample(numbers, rng.randint(1, len(numbers))), *rng.choices(numbers, k=rng.randint(0, 12))]
        ends = sorted(rng.choices(range(len(order) + 1), k=BUILDS - 1))
        return [order[start:end] for start, end in zip([0, *ends], [*ends, len(order)], strict=True)]

    def land(self, build: int) -> Iterator[Frame]:
        """Yield the frames that land before a build; before the last one, all that have not landed yet do."""
        for number in self.arrivals[build]:
            yield self._frame(number)
            if self.rng.random() < 0.3:
                yield from self._floor()
        if build == BUILDS - 1:
            yield from (self._frame(number, whole=True) for number in range(len(self.batches)))

    def _frame(self, number: int, *, whole: bool = False) -> Frame:
        """Return a batch, or those of its records that were not acknowledged."""
        records = self.batches[number]
        indexes = list(range(len(records)))
        if not whole and self.rng.random() < 0.5:
            indexes = sorted(self.rng.sample(indexes, self.rng.randint(1, len(indexes))))
        self.landed |= {(number, index) for index in indexes}
        encoded = objects(*(records[index][0] for index in indexes))
        body = frame_of(encoded, shard=self.shard, batch=number + 1, indexes=indexes)
        return Frame(body, Kind.DATA, Boundary.WHOLE, STREAM)

    def _floor(self) -> Iterator[Frame]:
        whole = [
            {(number, index) for index in range(len(batch))} <= self.landed for number, batch in enumerate(self.batches)
        ]
        floor = [*whole, False].index(False)
        if floor:
            body = {"created": "1", "offsets": {str(self.shard): str(floor)}}
            yield Frame(json.dumps(body).encode(), Kind.CONTROL)

    def rows(self) -> dict[Row, str]:
        """Return the rows of all changes that have landed, in the order of their ids."""
        rows: dict[Row, str | None] = {}
        for number, index in sorted(self.landed):
            rows |= self.batches[number][index][1]
        return {key: name for key, name in rows.items() if name is not None}


def _members(key: Row) -> dict[str, int]:
    return dict(zip(("shard", "id"), key, strict=True))


def build(spark: SparkSession, places: Places, landed: Sequence[Frame], max_frames: int) -> dict[Row, str]:
    """Land frames and build as a new process; return silver's rows, which must be those that verify expects."""
    writer = BronzeWriter.open(places.bronze(SHOP.name), SHOP.name, token="test")
    batch = Batch(writer.last + 1)
    batch.add(landed, 1, 1_700_000_000)
    writer.append(batch.prepare().table)
    feed_build = FeedBuild.open(lambda: spark, settings_at(Path(places.warehouse), max_frames), CONNECTOR, SHOP)
    assert run_once(feed_build) == {}
    assert verify_table(places, CONNECTOR, SHOP, "orders").verdict is Verdict.EQUAL
    rows = all_rows(open_table(places.silver(SHOP.name, "orders")))
    return {(row["shard"], row["id"]): row["name"] for row in rows}


@settings(
    max_examples=settings().max_examples // 40,  # an example takes three builds
    phases=(Phase.explicit, Phase.generate),  # to shrink takes an hour
)
@given(seed=st.integers(0, 2**32), max_frames=st.sampled_from([300, 100, 10_000]))
def test_silver_is_the_model_in_whatever_order_and_however_often_records_land(
    spark: SparkSession, seed: int, max_frames: int
) -> None:
    histories = [History(shard, Random(f"{seed}/{shard}")) for shard in range(1, HISTORIES + 1)]
    with tempfile.TemporaryDirectory() as warehouse:
        places = Places(warehouse)
        for number in range(BUILDS):
            turns = zip_longest(*(each.land(number) for each in histories))
            landed = [frame for turn in turns for frame in turn if frame is not None]

            found = build(spark, places, landed, max_frames)

            assert found == {key: name for each in histories for key, name in each.rows().items()}
