"""Silver compared with a source that keeps its records: what has not landed yet is no difference, what was lost is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.options import HStreamFeed
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.server.options import ClusterOptions
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.dropped import Dropped
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.upkeep.retention import Retention, drop_frames
from silverfold.pipelines.verifying.verify import Difference, TableVerification, Verdict
from silverfold.pipelines.verifying.verify_source import verify_against_source
from tests.support.hstreamdb.landed import STREAM, feed_of, frame_of, objects, table_of
from tests.support.hstreamdb.receiving import QUICK
from tests.support.written_silver import write_silver

ORDERS = table_of({"keys": ["id"], "columns": {"id": "bigint", "name": "string"}})
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_position", pa.string())])


class Shop:
    """A stream of three shards and its feed; what lands and what silver has is written by hand."""

    def __init__(self, server: HStreamServer, folder: Path) -> None:
        self.places = Places(str(folder))
        self.feed: HStreamFeed = replace(feed_of(orders=ORDERS), address=server.address)
        self.landed = 0
        self.created = ""
        self.call(self._create)

    def call(self, work: Callable[[Client], Any]) -> Any:
        async def run() -> Any:
            async with await connect(self.feed.address) as client:
                return await work(client)

        return asyncio.run(run())

    async def _create(self, client: Client, offset: SpecialOffset = SpecialOffset.EARLIEST) -> None:
        await client.create_stream(STREAM, shard_count=3)
        found = await client.create_subscription("feed", STREAM, offset=offset)
        self.created = str(found.creation_time.ToNanoseconds())

    def append(self, *rows: tuple[int, str | None]) -> list[FetchedFrame]:
        """Append changes, each a batch: a row, or a delete without name. Return their frames, as they would land."""

        async def run(client: Client) -> list[FetchedFrame]:
            frames = []
            for number, name in rows:
                value = None if name is None else {"id": number, "name": name}
                at = await client.append(STREAM, {"key": {"id": number}, "value": value}, str(number))
                frames += [frame async for frame in client.read_shard(STREAM, at.shard_id, at, at)]
            return frames

        found: list[FetchedFrame] = self.call(run)
        return found

    def land(self, *frames: FetchedFrame | bytes | Frame) -> int:
        """Land frames; return the position of the last."""
        writer = BronzeWriter.open(self.places.bronze(self.feed.name), self.feed.name, token="test")
        batch = Batch(writer.last + 1)
        for each in frames:
            body = each.body if isinstance(each, FetchedFrame) else each
            frame = body if isinstance(body, Frame) else Frame(body, Kind.DATA, Boundary.WHOLE, STREAM)
            batch.add([frame], 1, 1_700_000_000)
        writer.append(batch.prepare().table)
        self.landed = writer.last
        return self.landed

    def made_base(self, rows: dict[int, tuple[str, FetchedFrame]]) -> None:
        """Make a base of what has landed, and drop that: its rows, each with the record that made it."""
        floor = self.landed + 1
        retention = Retention(
            0, floor, 1, (), tables={"orders": Dropped(floor, self.landed, 0)}, older_control="newest"
        )
        drop_frames(self.places.bronze(self.feed.name), self.feed.name, retention)
        at = {number: "{:020}-{:020}-{:010}".format(*frame.ids[0]) for number, (_, frame) in rows.items()}
        written = [{"id": number, "name": name, "_position": at[number]} for number, (name, _) in rows.items()]
        base = self.places.base("orders")
        write_silver(base, self.feed.name, "orders", written, position=self.landed, schema=SCHEMA)

    def committed(self, frame: FetchedFrame) -> Frame:
        """Return the control frame of a subscription whose shard was acknowledged up to a frame."""
        shard, batch, _ = frame.ids[0]
        body = {"subscription": "feed", "created": self.created, "offsets": {str(shard): str(batch)}}
        return Frame(json.dumps(body).encode(), Kind.CONTROL)

    def verify(self, rows: dict[int, str]) -> TableVerification:
        """Compare silver of these rows, at the last position that landed."""
        written = [{"id": number, "name": name, "_position": "0"} for number, name in rows.items()]
        write_silver(self.places, self.feed.name, "orders", written, position=self.landed, schema=SCHEMA)
        return verify_against_source(self.places, CONNECTOR, self.feed, "orders", patience=0.0)


@pytest.fixture
def server() -> Iterator[HStreamServer]:
    with HStreamServer.start(ClusterOptions(ticks=QUICK)) as server:
        yield server


@pytest.fixture
def shop(server: HStreamServer, tmp_path: Path) -> Shop:
    return Shop(server, tmp_path)


def test_silver_of_all_that_landed_is_equal_in_whatever_order_it_came(shop: Shop) -> None:
    first, second, third, late = shop.append((1, "a"), (2, "b"), (2, None), (1, "new"))
    shop.land(late, first, third, second, first)

    found = shop.verify({1: "new"})

    assert (found.verdict, found.reason, found.expected_rows) == (Verdict.EQUAL, None, 1)


def test_what_has_not_landed_yet_is_counted_and_no_difference(shop: Shop) -> None:
    first, *_ = shop.append((1, "a"), (2, "b"), (1, "new"))
    shop.land(first)

    found = shop.verify({1: "a"})

    assert (found.verdict, found.reason) == (
        Verdict.EQUAL,
        "2 records of the source had not landed yet, and are not compared",
    )


def test_what_landed_behind_silver_is_not_compared_either(shop: Shop) -> None:
    first, second = shop.append((1, "a"), (1, "new"))
    reached = shop.land(first)
    shop.land(second)
    shop.landed = reached

    assert shop.verify({1: "a"}).verdict is Verdict.EQUAL


def test_a_row_that_differs_is_named(shop: Shop) -> None:
    shop.land(*shop.append((1, "a"), (2, "b")))

    found = shop.verify({1: "a", 2: "other"})

    assert found.verdict is Verdict.DIFFERENT
    assert found.differences == (Difference(key={"id": 2}, column="name", expected="b", found="other"),)


def test_a_record_that_was_acknowledged_and_never_landed_is_a_difference_though_all_rows_are_equal(shop: Shop) -> None:
    lost, after = shop.append((1, "a"), (1, "new"))
    shop.land(after, shop.committed(after))

    found = shop.verify({1: "new"})

    assert found.verdict is Verdict.DIFFERENT
    assert found.reason == f"1 record that the source was told are in bronze, which are not, the first {lost.ids[0]}"


def test_floors_of_a_subscription_that_is_gone_tell_nothing(shop: Shop) -> None:
    before, after = shop.append((1, "a"), (1, "new"))
    shop.created = "1"
    shop.land(after, shop.committed(after))

    assert before.ids < after.ids
    assert shop.verify({1: "new"}).verdict is Verdict.EQUAL


def test_a_record_the_source_never_had_is_a_difference(shop: Shop) -> None:
    (only,) = shop.append((1, "a"))
    shard, batch, _ = only.ids[0]
    shop.land(only, frame_of(objects({"id": 1, "name": "a"}), shard=shard, batch=batch + 7))

    found = shop.verify({1: "a"})

    assert found.verdict is Verdict.DIFFERENT
    assert found.reason == f"1 record that landed, which the source does not have, the first {shard}-{batch + 7}-0"


def test_a_source_that_dropped_what_silver_is_made_of_cannot_be_compared_with(shop: Shop) -> None:
    first, second = shop.append((1, "a"), (1, "new"))
    shop.land(first, second)
    shop.call(lambda client: client.trim_shard(STREAM, first.ids[0].shard_id, first.ids[0]))

    found = shop.verify({1: "new"})

    assert (found.verdict, found.differences) == (Verdict.UNKNOWN, ())
    assert found.reason == f"1 record that landed, which the source no longer holds, the first {first.ids[0]}"


def test_a_table_that_begins_with_a_base_is_compared_from_there(shop: Shop) -> None:
    old, older, late, new = shop.append((1, "a"), (2, "b"), (2, "c"), (1, "new"))
    shop.land(old, shop.committed(older), shop.committed(old))
    shop.made_base({1: ("a", old), 2: ("c", late)})
    shop.land(older, new)

    found = shop.verify({1: "new", 2: "c"})

    assert (found.verdict, found.base_position) == (Verdict.EQUAL, 2)
    assert (
        found.reason == "begins with its base at position 2: 2 records of the source are in it, or had not landed yet"
    )
    assert shop.verify({1: "a", 2: "c"}).differences == (
        Difference(key={"id": 1}, column="name", expected="new", found="a"),
    )


def test_a_subscription_that_began_at_the_end_cannot_be_compared_with(shop: Shop) -> None:
    async def begin_at_the_end(client: Client) -> None:
        await client.delete_subscription("feed")
        await shop._create(client, SpecialOffset.LATEST)

    shop.land(*shop.append((1, "a")))
    shop.call(begin_at_the_end)

    with pytest.raises(SourceRefused, match="feed began at the end of the stream"):
        shop.verify({1: "a"})


def test_a_source_that_does_not_answer_is_an_error(shop: Shop, server: HStreamServer) -> None:
    shop.land(*shop.append((1, "a")))
    shop.feed = replace(shop.feed, address="hstream://127.0.0.1:1")

    with pytest.raises(SourceUnavailable, match="orders cannot be asked for at"):
        shop.verify({1: "a"})


def test_a_table_that_is_not_built_is_not_compared(shop: Shop) -> None:
    found = verify_against_source(shop.places, CONNECTOR, shop.feed, "orders", patience=0.0)

    assert found.verdict is Verdict.NOT_BUILT
