"""Landed packets become silver, with each type's values; verify finds the same by other code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silverfold.connectors.frames import Frame, Resume
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol import Byte, Float, Int, Packet, Short
from silverfold.connectors.tengi.server.feed.server import new_epoch
from silverfold.connectors.tengi.server.feed.tables import RowChanges, SourceTable
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from silverfold.pipelines.verifying.verify_source import verify_against_source
from tests.support.building_once import all_rows, build_once
from tests.support.memory import MemorySink
from tests.support.tengi.landed import change, entry, feed_of, landed, nested, schema, snapshot, update
from tests.support.tengi.receiving import feed, newest, position_of, receiving, resume_of, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = feed_of(stored_as_scd_type=2)
COLUMNS = {
    "id": "bigint",
    "tiny": "tinyint",
    "small": "smallint",
    "whole": "int",
    "single": "float",
    "real": "double",
    "flag": "boolean",
    "text": "string",
    "bytes": "binary",
    "price": "decimal(10,2)",
    "day": "date",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "place": "struct<city:string,at:array<int>>",
    "counts": "map<string,bigint>",
}
FULL = {
    "id": 1,
    "tiny": Byte(-1),
    "small": Short(300),
    "whole": Int(70_000),
    "single": Float(0.5),
    "real": 0.25,
    "flag": Byte(1),
    "text": "ä\U0001f600",
    "bytes": b"\0\xff",
    "price": "-12.50",
    "day": Int(-1),
    "local": 1_500_000,
    "tags": nested(n=Int(2), **{"1": "b"}),
    "place": nested(at=nested(n=Int(1), **{"0": Int(7)})),
    "counts": nested(a=1),
}
FULL_ROW = {
    **{name: FULL[name] for name in ("id", "tiny", "small", "whole", "single", "real", "text", "bytes")},
    "flag": True,
    "price": Decimal("-12.50"),
    "day": date(1969, 12, 31),
    "local": datetime(1970, 1, 1, 0, 0, 1, 500_000),
    "tags": [None, "b"],
    "place": {"city": None, "at": [7]},
    "counts": [("a", 1)],
}
NULLS = dict.fromkeys(COLUMNS.keys() - {"id"}, Byte(1))
NULL_ROW = dict.fromkeys(COLUMNS.keys() - {"id"})


def land(places: Places, frames: Iterable[Frame]) -> None:
    writer = BronzeWriter.open(places.bronze(SHOP.name), SHOP.name, token="test")
    batch = Batch(writer.last + 1)
    batch.add(list(frames), 1, 1_700_000_000)
    writer.append(batch.prepare().table)


def build(spark: SparkSession, warehouse: Path, *packets: Packet) -> list[dict[str, Any]]:
    """Land packets and build; return the rows, which must be those that verify expects."""
    places = Places(str(warehouse))
    land(places, landed(*packets))
    assert build_once(spark, warehouse, CONNECTOR, SHOP) == {}
    for verify in (verify_table, verify_history):
        assert verify(places, CONNECTOR, SHOP, "orders").verdict is Verdict.EQUAL
    rows = all_rows(open_table(places.silver(SHOP.name, "orders")))
    return sorted(({name: row[name] for name in COLUMNS} for row in rows), key=lambda row: row["id"])


def test_silver_has_each_types_values_and_follows_partial_changes_moves_and_new_snapshots(
    spark: SparkSession, warehouse: Path
) -> None:
    first = [
        schema(COLUMNS),
        snapshot(1, [entry(row=FULL)], last=False),
        snapshot(1, [entry(row={"id": 2}, nulls=NULLS)], part=1),
    ]
    assert build(spark, warehouse, *first) == [FULL_ROW, {"id": 2, **NULL_ROW}]

    changes = [
        change(2, "UPDATE", key={"id": 1}, row={"id": 9, "text": "moved"}),
        change(3, "UPDATE", key={"id": 9}, row={"price": "1"}, nulls={"tags": Byte(1)}),
        update(4, removed=[entry(key={"id": 2})], added=[entry(row={"id": 3}, nulls=NULLS)]),
    ]
    moved = {**FULL_ROW, "id": 9, "text": "moved", "price": Decimal("1.00"), "tags": None}
    assert build(spark, warehouse, *changes) == [{"id": 3, **NULL_ROW}, moved]

    assert build(spark, warehouse, schema(COLUMNS), snapshot(9, [entry(row=FULL)])) == [FULL_ROW]
    history = Places(str(warehouse)).history(SHOP.name, "orders")
    versions = len(all_rows(open_table(history)))
    assert build(spark, warehouse, snapshot(9, [entry(row=FULL)])) == [FULL_ROW]
    assert len(all_rows(open_table(history))) == versions


def test_a_table_without_keys_is_appended_to_and_is_the_sources(spark: SparkSession, warehouse: Path) -> None:
    places, sink = Places(str(warehouse)), MemorySink()
    log = SourceTable(
        "orders", {"what": "string", "at": "int"}, [], [{"what": "begin", "at": 0}] * 2, epoch=new_epoch()
    )

    def silver() -> list[tuple[Any, ...]]:
        rows = all_rows(open_table(places.silver(SHOP.name, "orders")))
        return sorted((row["_sequence"], row["_ordinal"], row["what"], row["at"]) for row in rows)

    async def receive(shop: TengiFeed, resume: Resume | None = None) -> None:
        async with receiving(shop, sink, resume) as until:
            await until(lambda: newest(sink) == position_of(log))
        land(places, sink.frames)

    def check(shop: TengiFeed) -> None:
        assert build_once(spark, warehouse, CONNECTOR, shop) == {}
        assert verify_table(places, CONNECTOR, shop, "orders").verdict is Verdict.EQUAL
        assert verify_against_source(places, CONNECTOR, shop, "orders", patience=20).verdict is Verdict.EQUAL

    with serving(log) as server:
        shop = feed(server)
        asyncio.run(receive(shop))
        server.change(log, RowChanges(added=[{"what": "same", "at": 1}] * 2))
        server.change(log, RowChanges(added=[{"what": "same", "at": 1}]))
        resume = resume_of(sink)
        sink.frames.clear()
        asyncio.run(receive(shop, resume))
        check(shop)
        assert silver() == [
            *((0, at, "begin", 0) for at in range(2)),
            *((1, at, "same", 1) for at in range(2)),
            (2, 0, "same", 1),
        ]
        server.change(log, RowChanges(added=[{"what": "later", "at": 2}]))
        found = verify_against_source(places, CONNECTOR, shop, "orders", patience=0.5)
        assert (found.verdict, found.expected_rows, found.found_rows) == (Verdict.DIFFERENT, 6, 5)
        sink.frames.clear()
        asyncio.run(receive(shop))
        check(shop)
        assert [row[:2] for row in silver()] == [(3, at) for at in range(6)]

    columns, row = {"what": "string", "at": "int"}, entry(row={"what": "keyed", "at": Int(1)})
    land(places, landed(schema(columns, ["at"], version=2), snapshot(9, [row], version=2)))
    held = build_once(spark, warehouse, CONNECTOR, shop)
    assert "keys is at, the table was built with _sequence, _ordinal" in str(held["orders"])
