"""Records in the order of their ids become silver, whenever they land; a deleted row stays deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from silverfold.conf.errors import ExpectationFailed
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building_once import all_rows, build_once
from tests.support.hstreamdb.landed import STREAM, feed_of, frame_of, objects, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = feed_of(orders=table_of({"keys": ["id"], "columns": {"id": "bigint", "name": "string"}}))


def upsert(number: int, name: str) -> dict[str, Any]:
    return {"key": {"id": number}, "value": {"id": number, "name": name}}


def deleted(number: int) -> dict[str, Any]:
    return {"key": {"id": number}, "value": None}


def moved(before: int, after: int, name: str) -> bytes:
    row = {"id": after, "name": name}
    return json.dumps({"op": "u", "before": {"id": before}, "after": row}).encode()


def batch(number: int, *records: Any) -> Frame:
    return Frame(frame_of(objects(*records), batch=number), Kind.DATA, Boundary.WHOLE, STREAM, f"7-{number}-0")


def committed(number: int) -> Frame:
    return Frame(json.dumps({"created": "1", "offsets": {"7": str(number)}}).encode(), Kind.CONTROL)


def land(warehouse: Path, *frames: Frame) -> None:
    writer = BronzeWriter.open(Places(str(warehouse)).bronze(SHOP.name), SHOP.name, token="test")
    landed = Batch(writer.last + 1)
    landed.add(frames, 1, 1_700_000_000)
    writer.append(landed.prepare().table)


def build(spark: SparkSession, warehouse: Path, shop: Feed, *frames: Frame) -> dict[int, str]:
    """Land frames and build; return the rows, which must be those that verify expects."""
    places = Places(str(warehouse))
    land(warehouse, *frames)
    assert build_once(spark, warehouse, CONNECTOR, shop) == {}
    assert verify_table(places, CONNECTOR, shop, "orders").verdict is Verdict.EQUAL
    return {row["id"]: row["name"] for row in all_rows(open_table(places.silver(shop.name, "orders")))}


def tombstones(warehouse: Path) -> set[int]:
    return {row["id"] for row in all_rows(open_table(Places(str(warehouse)).tombstones(SHOP.name, "orders")))}


def test_late_and_repeated_records_change_nothing_and_tombstones_go_below_the_floor(
    spark: SparkSession, warehouse: Path
) -> None:
    first = [batch(1, upsert(1, "a"), upsert(2, "b"), upsert(3, "c")), batch(3, deleted(2), upsert(1, "new"))]
    assert build(spark, warehouse, SHOP, *first) == {1: "new", 3: "c"}
    assert tombstones(warehouse) == {2}

    late = [batch(2, upsert(1, "late"), upsert(2, "late"), upsert(4, "d")), batch(4, moved(3, 5, "c")), committed(3)]
    assert build(spark, warehouse, SHOP, *late) == {1: "new", 4: "d", 5: "c"}
    assert tombstones(warehouse) == {2, 3}

    again = [batch(1, upsert(2, "again")), batch(5, upsert(6, "e"))]
    assert build(spark, warehouse, SHOP, *again) == {1: "new", 4: "d", 5: "c", 6: "e"}
    assert tombstones(warehouse) == {3}
    assert [cut.notes for cut in last_cuts(Places(str(warehouse)), SHOP.name).values()] == [{}]


@pytest.mark.parametrize("max_frames", [200_000, 2])
def test_a_rule_that_fails_holds_before_a_late_partial_change_that_it_needs(
    spark: SparkSession, warehouse: Path, max_frames: int
) -> None:
    def change(op: str, **row: Any) -> dict[str, Any]:
        return {"op": op, "key": {"id": 1}, "row": row}

    table = {
        "keys": ["id"],
        "layout": "operation",
        "columns": {"id": "bigint", "name": "string", "n": "bigint"},
        "expect": {"good": {"condition": "name <> 'bad'", "action": "fail"}},
    }
    shop = feed_of(orders=table_of(table))
    inserted = change("INSERT", id=1, name="a", n=0)
    land(warehouse, batch(1, inserted), batch(12, change("UPDATE", n=5)), batch(10, change("UPDATE", name="bad")))

    held = build_once(spark, warehouse, CONNECTOR, shop, max_frames=max_frames)

    assert [type(each) for each in held.values()] == [ExpectationFailed]
    (row,) = all_rows(open_table(Places(str(warehouse)).silver(shop.name, "orders")))
    assert (row["name"], row["n"]) == ("a", 0)
    assert build(spark, warehouse, shop, batch(20, change("UPDATE", name="fine"))) == {1: "fine"}
    (row,) = all_rows(open_table(Places(str(warehouse)).silver(shop.name, "orders")))
    assert row["n"] == 5
    assert "late_partial" not in last_cuts(Places(str(warehouse)), shop.name)["orders"].notes


@pytest.mark.nightly
def test_tombstones_stay_few_however_long_the_run(spark: SparkSession, warehouse: Path) -> None:
    """By day the test above shows that those below the floor go."""
    left = []
    for number in range(25):
        keys = range(10 * number, 10 * number + 10)
        inserted, removed = batch(2 * number + 1, *(upsert(key, "a") for key in keys)), map(deleted, keys)
        floor = [committed(2 * number)] if number else []
        assert build(spark, warehouse, SHOP, inserted, batch(2 * number + 2, *removed), *floor) == {}
        left.append(len(tombstones(warehouse)))
    assert left == [10, *[20] * 24]
