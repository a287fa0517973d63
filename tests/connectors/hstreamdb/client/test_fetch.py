"""One fetch call: frames as they came, acknowledgements in bounded requests, and every way it can end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from silverfold.conf.errors import LocalProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.batches import StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.messages.cluster import LookupSubscriptionResponse, ServerNode
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import status_text
from tests.support.hstreamdb.scripted_node import SHARD, Requests, connected, frame, never, refusing
from tests.support.hstreamdb.vectors import vectors
from tests.support.peers import serving, silent
from tests.support.polling import until

MALFORMED = [each for each in vectors("malformed") if each["level"] == "frame"]
WITHOUT_IDS = {"bad_response", "bad_ids", "id_out_of_range", "empty_frame"}


def ids_of(batch: int, *indexes: int) -> list[RecordId]:
    return [RecordId(SHARD, batch, index) for index in indexes]


class Serving:
    """Sends frames to each fetch, then reads it to its end."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = frames
        self.opened: list[Any] = []
        self.requests: list[list[RecordId]] = []
        self.ended = asyncio.Event()

    async def __call__(self, requests: Requests, context: Any) -> None:
        self.opened.append(await requests.next())
        for each in self.frames:
            await context.write(each)
        while (request := await requests.next()) is not None:
            assert request.consumer_name == self.opened[-1].consumer_name
            assert request.subscription_id == self.opened[-1].subscription_id
            self.requests.append([RecordId.of(each) for each in request.ack_ids])
        self.ended.set()

    @property
    def acknowledged(self) -> list[RecordId]:
        return [each for request in self.requests for each in request]


def test_a_fetch_opens_with_a_new_name_and_no_acknowledgement_and_leaves_by_half_closing() -> None:
    async def scenario() -> None:
        source = Serving(frame(1, b"a", b"b"))
        async with connected({"StreamingFetch": source}) as (node, client):
            names = set()
            for _ in range(2):
                async with await client.open_fetch("f", consumer_prefix="shop") as fetch:
                    found = await fetch.next_frame()
                    assert (found.body, found.ids) == (frame(1, b"a", b"b"), ids_of(1, 0, 1))
                    assert fetch.node == node.target
                    names.add(fetch.consumer)
                assert source.ended.is_set()
                with pytest.raises(LocalProtocolError, match="closed"):
                    await fetch.next_frame()
            assert [list(each.ack_ids) for each in source.opened] == [[], []]
            assert {each.consumer_name for each in source.opened} == names
            assert all(each.startswith("shop-") for each in names)
            assert node.calls["LookupSubscription"] == 2

    asyncio.run(scenario())


def test_acknowledgements_go_out_once_in_bounded_requests_the_last_before_the_end() -> None:
    async def scenario() -> None:
        source = Serving(frame(1, b"a"))
        async with connected({"StreamingFetch": source}) as (_, client):
            async with await client.open_fetch("f", ack_delay=0.05) as fetch:
                await fetch.next_frame()
                for index in range(25_000):
                    fetch.ack(ids_of(1, index))
                    fetch.ack(ids_of(1, index))
            assert [len(each) for each in source.requests] == [10_000, 10_000, 5_000]
            assert source.acknowledged == ids_of(1, *range(25_000))

    asyncio.run(scenario())


def test_acknowledgements_that_one_call_did_not_send_go_out_on_the_next() -> None:
    async def scenario() -> None:
        source = Serving()
        acks = AckQueue()
        async with connected({"StreamingFetch": source}) as (_, client):
            async with await client.open_fetch("f", acks=acks):
                pass
            acks.add(ids_of(1, 0))
            async with await client.open_fetch("f", acks=acks):
                pass
            assert source.acknowledged == ids_of(1, 0)
            assert len(acks) == 0

    asyncio.run(scenario())


def test_all_frames_that_arrived_come_before_the_end() -> None:
    async def serve(requests: Requests, context: Any) -> None:
        await requests.next()
        for batch in (1, 2, 3):
            await context.write(frame(batch, b"x"))

    async def scenario() -> None:
        async with connected({"StreamingFetch": serve}) as (_, client), await client.open_fetch("f") as fetch:
            await until(lambda: fetch.status, "the end")
            assert [each.ids for each in await fetch.next_frames()] == [ids_of(1, 0), ids_of(2, 0), ids_of(3, 0)]
            with pytest.raises(SourceUnavailable, match="the server ended the call"):
                await fetch.next_frames()
            assert fetch.status is not None
            assert fetch.status.grpc_code == "OK"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        ("NOT_FOUND", status_text(300, "SubscriptionNotFound", "f"), SourceRefused),
        ("ALREADY_EXISTS", status_text(0, "ConsumerExists", "c"), SourceUnavailable),
        ("ABORTED", status_text(0, "SubscriptionIsDeleting", '"f"'), SourceUnavailable),
        ("CANCELLED", "", SourceUnavailable),
        ("UNKNOWN", "UnKnown exception: shard", SourceUnavailable),
        ("UNAUTHENTICATED", "Invalid token: Basic c2VjcmV0", SourceRefused),
    ],
)
def test_an_end_has_its_status_and_its_error(code: str, text: str, error: type[Exception]) -> None:
    async def scenario() -> None:
        async with (
            connected({"StreamingFetch": refusing(code, text)}) as (_, client),
            await client.open_fetch("f") as fetch,
        ):
            with pytest.raises(error) as ended:
                await fetch.next_frame()
            assert "c2VjcmV0" not in str(ended.value)
            assert fetch.status is not None
            assert (fetch.status.grpc_code, fetch.status.text) == (code, text)

    asyncio.run(scenario())


def test_a_node_that_dies_ends_the_call_and_closing_it_does_not_wait() -> None:
    async def scenario() -> None:
        source = Serving(frame(1, b"a"))
        async with connected({"StreamingFetch": source}) as (node, client):
            fetch = await client.open_fetch("f")
            await fetch.next_frame()
            await node.stop()
            with pytest.raises(SourceUnavailable, match="UNAVAILABLE"):
                await fetch.next_frame()
            fetch.ack(ids_of(1, 0))
            async with asyncio.timeout(1):
                await fetch.close()
            assert len(fetch.acks) == 1

    asyncio.run(scenario())


def test_a_node_that_does_not_end_the_call_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.client.fetch.CLOSE_SECONDS", 0.1)

    async def scenario() -> None:
        async with connected({"StreamingFetch": never}) as (_, client):
            fetch = await client.open_fetch("f")
            await fetch.close()
            await fetch.close()

    asyncio.run(scenario())


def test_waiting_for_a_frame_may_be_cancelled_and_loses_nothing() -> None:
    async def scenario() -> None:
        may_send = asyncio.Event()

        async def serve(requests: Requests, context: Any) -> None:
            await requests.next()
            await may_send.wait()
            await context.write(frame(1, b"a"))
            await requests.all_ids()

        async with connected({"StreamingFetch": serve}) as (_, client), await client.open_fetch("f") as fetch:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(fetch.next_frame(), 0.02)
            may_send.set()
            assert (await fetch.next_frame()).ids == ids_of(1, 0)

    asyncio.run(scenario())


def test_a_peer_that_says_nothing_at_all_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.client.fetch.CLOSE_SECONDS", 0.1)

    async def scenario() -> None:
        async with serving(silent) as address:

            async def lookup(request: Any, _context: Any) -> LookupSubscriptionResponse:
                node = ServerNode(id=1, host=address.host, port=address.port)
                return LookupSubscriptionResponse(subscription_id=request.subscription_id, server_node=node)

            async with connected({"LookupSubscription": lookup}) as (_, client):
                fetch = await client.open_fetch("f")
                fetch.ack(ids_of(1, 0))
                await fetch.close()

    asyncio.run(scenario())


def test_cancelling_a_close_still_ends_the_call() -> None:
    async def scenario() -> None:
        async with connected({"StreamingFetch": never}) as (_, client):
            fetch = await client.open_fetch("f")
            closing = asyncio.create_task(fetch.close())
            await asyncio.sleep(0.05)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert fetch.status is not None

    asyncio.run(scenario())


def test_closing_the_client_acknowledges_and_leaves() -> None:
    async def scenario() -> None:
        source = Serving(frame(1, b"a"))
        async with connected({"StreamingFetch": source}) as (_, client):
            fetch = await client.open_fetch("f")
            fetch.ack((await fetch.next_frame()).ids)
            await client.close()
            assert source.acknowledged == ids_of(1, 0)
            assert source.ended.is_set()

    asyncio.run(scenario())


def test_a_slow_consumer_is_always_read_and_what_does_not_fit_is_dropped() -> None:
    async def scenario() -> None:
        frames = [frame(batch, bytes(1_000)) for batch in range(1, 101)]
        source = Serving(*frames)
        async with (
            connected({"StreamingFetch": source}) as (_, client),
            await client.open_fetch("f", max_buffered_bytes=10 * len(frames[-1])) as fetch,
        ):
            await until(lambda: fetch.dropped_frames == 90, "the last frame")
            assert [each.body for each in await fetch.next_frames()] == frames[:10]

    asyncio.run(scenario())


def test_a_frame_larger_than_the_buffer_is_buffered_alone() -> None:
    async def scenario() -> None:
        source = Serving(frame(1, b"x" * 2_000), frame(2, b"a"))
        async with (
            connected({"StreamingFetch": source}) as (_, client),
            await client.open_fetch("f", max_buffered_bytes=1_000) as fetch,
        ):
            await until(lambda: fetch.dropped_frames == 1, "the second frame")
            assert [each.ids for each in await fetch.next_frames()] == [ids_of(1, 0)]

    asyncio.run(scenario())


def test_copies_of_buffered_records_are_not_buffered_again() -> None:
    async def scenario() -> None:
        part = frame(1, b"b", indexes=[1])
        source = Serving(frame(1, b"a", b"b"), part, frame(2, b"c"), part)
        async with connected({"StreamingFetch": source}) as (_, client), await client.open_fetch("f") as fetch:
            await until(lambda: fetch.dropped_frames == 2, "the second copy")
            assert [each.ids for each in await fetch.next_frames()] == [ids_of(1, 0, 1), ids_of(2, 0)]

    asyncio.run(scenario())


@pytest.mark.parametrize("vector", MALFORMED, ids=[each["name"] for each in MALFORMED])
def test_malformed_frames_keep_their_bytes_and_have_ids_if_those_can_be_read(vector: dict[str, Any]) -> None:
    body = bytes.fromhex(vector["hex"])
    found = FetchedFrame.of(body)
    assert found.body == body
    assert bool(found.ids) == (vector["error"] not in WITHOUT_IDS)
    assert (found.error.reason if found.error else None) == (None if found.ids else vector["error"])


def test_a_large_frame_is_received_whole() -> None:
    async def scenario() -> None:
        large = frame(1, *(bytes(1_000) for _ in range(9_000)))
        assert len(large) > 8 << 20
        source = Serving(large)
        async with connected({"StreamingFetch": source}) as (_, client), await client.open_fetch("f") as fetch:
            found = await fetch.next_frame()
            assert found.body == large
            assert len(found.decode().records) == 9_000
            assert StreamingFetchResponse.FromString(found.body).received_records.record.batch_size == 9_000

    asyncio.run(scenario())
