"""Shards read by offset: the frames a subscription would have, each once, also when a node dies in between."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from silverfold.conf.errors import InvalidValue, LocalProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.readers import Offset
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset, TimestampOffset
from silverfold.connectors.hstreamdb.protocol.messages.readers import ReadShardStreamResponse
from silverfold.connectors.hstreamdb.protocol.messages.streams import GetTailRecordIdResponse
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import status_text
from tests.support.hstreamdb.scripted_node import SHARD, connected, frame, received, refusing


def answer(*batches: int) -> bytes:
    return ReadShardStreamResponse(
        received_records=[received(each, b"x%d" % each) for each in batches]
    ).SerializeToString()


class Shard:
    """Answers with batches from the requested one on; breaks after some answers, as its script has it."""

    def __init__(self, *breaks: int) -> None:
        self.breaks = list(breaks)
        self.requests: list[Any] = []

    async def __call__(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        first = request.from_.record_offset.batch_id or 1
        answers = [answer(first, first + 1), answer(first + 2), answer(first + 3, first + 4)]
        count = self.breaks.pop(0) if self.breaks else len(answers)
        for each in answers[:count]:
            await context.write(each)
        if count < len(answers):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


async def read(client: Client, *offsets: Offset | None, **options: int) -> list[bytes]:
    return [each.body async for each in client.read_shard("orders", SHARD, *offsets, **options)]


def test_a_shard_is_read_as_frames_from_offset_to_offset() -> None:
    async def scenario() -> None:
        shard = Shard()
        async with connected({"ReadShardStream": shard}) as (_, client):
            assert await read(client) == [frame(each, b"x%d" % each) for each in range(1, 6)]
            await read(client, RecordId(SHARD, 9, 3), TimestampOffset(timestamp_in_ms=5))
        first, second = shard.requests
        assert (first.stream_name, first.shard_id) == ("orders", SHARD)
        assert first.from_.WhichOneof("offset") == "special_offset"
        assert first.until.special_offset == SpecialOffset.LATEST
        assert RecordId.of(second.from_.record_offset) == RecordId(SHARD, 9, 3)
        assert second.until.timestamp_offset.timestamp_in_ms == 5
        assert len({each.reader_id for each in shard.requests}) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(("end", "first"), [(1 << 32 | 7, 1 << 32 | 8), (2 << 32, 2 << 32 | 1), (0, 1)])
def test_a_read_from_the_end_that_breaks_before_the_first_batch_begins_at_that_end_again(end: int, first: int) -> None:
    async def tail(*_: Any) -> GetTailRecordIdResponse:
        return GetTailRecordIdResponse(tail_record_id=RecordId(SHARD, end, 0).to_message())

    async def serve(request: Any, context: Any) -> None:
        requests.append(request)
        if len(requests) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        await context.write(answer(request.from_.record_offset.batch_id or 1, first))

    async def scenario() -> None:
        async with connected({"ReadShardStream": serve, "GetTailRecordId": tail}) as (node, client):
            frames = [each async for each in client.read_shard("orders", SHARD, SpecialOffset.LATEST, None)]
            assert [each.ids[0].batch_id for each in frames] == [first]
            assert node.calls["GetTailRecordId"] == 1
        assert not any(each.HasField("until") for each in requests)

    requests = list[Any]()
    asyncio.run(scenario())


def test_a_read_that_breaks_goes_on_after_its_last_batch() -> None:
    async def scenario() -> None:
        shard = Shard(0, 2, 1)
        async with connected({"ReadShardStream": shard}) as (_, client):
            assert await read(client) == [frame(each, b"x%d" % each) for each in range(1, 9)]
            assert [each.from_.record_offset.batch_id for each in shard.requests] == [0, 0, 3, 4]
            assert {each.max_read_batches for each in shard.requests} == {0}

    asyncio.run(scenario())


def test_a_read_ends_after_the_wanted_number_of_batches() -> None:
    async def scenario() -> None:
        shard = Shard(1, 10)
        async with connected({"ReadShardStream": shard}) as (_, client):
            assert len(await read(client, max_batches=3)) == 3
        assert [each.max_read_batches for each in shard.requests] == [3, 2]  # two came, and the last one comes again

    asyncio.run(scenario())


def test_another_offset_is_refused_by_its_type() -> None:
    wrong: Any = "latest"

    async def scenario() -> None:
        async with connected() as (_, client):
            with pytest.raises(InvalidValue, match="an offset is a SpecialOffset, RecordId or TimestampOffset, no str"):
                await read(client, wrong)

    asyncio.run(scenario())


def test_what_stays_is_raised_at_once_and_unavailable_after_some_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.client.channels.FIRST_WAIT", 0.001)
    conflict = refusing("INVALID_ARGUMENT", status_text(901, "ConflictShardReaderOffset", None))

    async def scenario() -> None:
        async with connected({"ReadShardStream": conflict}) as (node, client):
            with pytest.raises(SourceRefused, match="ConflictShardReaderOffset"):
                await read(client)
            assert node.calls["ReadShardStream"] == 1
        async with connected({"ReadShardStream": refusing("UNAVAILABLE", "gone")}) as (node, client):
            with pytest.raises(SourceUnavailable, match="gone"):
                await read(client)
            assert node.calls["ReadShardStream"] == 8

    asyncio.run(scenario())


def test_a_node_that_sends_the_last_batch_again_and_no_further_one_is_tried_as_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.client.channels.FIRST_WAIT", 0.001)

    async def stuck(request: Any, context: Any) -> None:
        await context.write(answer(request.from_.record_offset.batch_id or 1))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "disk")

    async def scenario() -> None:
        async with connected({"ReadShardStream": stuck}) as (node, client):
            with pytest.raises(SourceUnavailable, match="disk"):
                await read(client)
            assert node.calls["ReadShardStream"] == 8

    asyncio.run(scenario())


def test_closing_the_client_ends_a_read_with_an_error() -> None:
    async def wait(_request: Any, context: Any) -> None:
        await context.write(answer(1))
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with (
            connected({"ReadShardStream": wait}) as (_, client),
            aclosing(client.read_shard("orders", SHARD)) as frames,
        ):
            await anext(frames)
            following = asyncio.create_task(anext(frames))
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(LocalProtocolError, match="closed"):
                await following

    asyncio.run(scenario())
