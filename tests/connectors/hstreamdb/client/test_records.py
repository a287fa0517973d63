"""Records fetched for ever: acknowledged in bundles, through ends of calls, until nobody serves any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any

import grpc
import pytest

from silverfold.conf.errors import InvalidValue, SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.client import records
from silverfold.connectors.hstreamdb.client.records import Received
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import CheckSubscriptionExistResponse
from silverfold.connectors.hstreamdb.protocol.records import RawRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.status import status_text
from tests.support.hstreamdb.scripted_node import SHARD, Requests, connected, frame, received, refusing
from tests.support.polling import until


class Calls:
    """Serves each opening as its number scripts it, the last one for all later ones; collects acknowledged ids."""

    def __init__(self, *scripts: Any) -> None:
        self.scripts = scripts
        self.names: list[str] = []
        self.acknowledged: list[RecordId] = []

    async def __call__(self, requests: Requests, context: Any) -> None:
        script = self.scripts[min(len(self.names), len(self.scripts) - 1)]
        opened = await requests.next()
        self.names.append(opened.consumer_name)
        if callable(script):
            await script(requests, context)
            return
        for each in script:
            await context.write(each)
        self.acknowledged += await requests.all_ids()


async def take(fetched: AsyncGenerator[Received, None], count: int) -> list[Received]:
    """Take records, acknowledging each, and leave."""
    found = []
    async with aclosing(fetched):
        async for each in fetched:
            await each.ack()
            found.append(each)
            if len(found) == count:
                break
    return found


def ending(code: str, text: str = "", *frames: bytes) -> Any:
    """A call that ends with a status after some frames."""

    async def serve(_requests: Requests, context: Any) -> None:
        for each in frames:
            await context.write(each)
        await context.abort(grpc.StatusCode[code], text)

    return serve


def test_records_come_with_id_key_and_time_and_all_acknowledgements_go_out_before_leaving() -> None:
    async def scenario() -> None:
        calls = Calls([frame(1, b"a", b"b"), frame(2, b"c")])
        async with connected({"StreamingFetch": calls}) as (_, client):
            found = await take(client.fetch("f"), 3)
            assert [(each.id, each.key, each.record) for each in found] == [
                (RecordId(SHARD, 1, 0), "k", RawRecord(b"a")),
                (RecordId(SHARD, 1, 1), "k", RawRecord(b"b")),
                (RecordId(SHARD, 2, 0), "k", RawRecord(b"c")),
            ]
            assert calls.acknowledged == [each.id for each in found]
            await found[0].ack()  # after the end: nothing to send it on

    asyncio.run(scenario())


def test_leaving_by_break_acknowledges_as_the_client_closes() -> None:
    async def scenario() -> None:
        calls = Calls([frame(1, b"a", b"b")])
        async with connected({"StreamingFetch": calls}) as (_, client):
            async for each in client.fetch("f"):
                await each.ack()
                await each.ack()
                break
            await client.close()
            assert calls.acknowledged == [RecordId(SHARD, 1, 0)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("UNAVAILABLE", "gone"),
        ("CANCELLED", ""),
        ("UNKNOWN", "UnKnown exception"),
        ("ALREADY_EXISTS", status_text(0, "ConsumerExists", "c")),
        ("FAILED_PRECONDITION", status_text(800, "WrongServer", None)),
        ("ABORTED", status_text(0, "ConsumerInvalidError", "Invalid Consumer")),
        ("ABORTED", status_text(0, "SubscriptionIsDeleting", '"f"')),
        ("OK", ""),
    ],
)
def test_an_end_that_may_pass_is_followed_by_a_lookup_and_a_new_name(code: str, text: str) -> None:
    async def end(_requests: Requests, _context: Any) -> None:
        """Of its own accord."""

    async def scenario() -> None:
        calls = Calls(end if code == "OK" else ending(code, text), [frame(1, b"a")])
        async with connected({"StreamingFetch": calls}) as (node, client):
            assert len(await take(client.fetch("f", rng=Random(1)), 1)) == 1
            assert len(set(calls.names)) == 2
            assert node.calls["LookupSubscription"] == 2

    asyncio.run(scenario())


def test_an_acknowledgement_after_the_end_of_a_call_goes_out_on_the_next_one() -> None:
    async def scenario() -> None:
        calls = Calls(ending("UNAVAILABLE", "gone", frame(1, b"a")), [frame(2, b"b")])
        async with connected({"StreamingFetch": calls}) as (_, client), aclosing(client.fetch("f")) as records:
            first = await anext(records)
            second = await anext(records)
            await first.ack()
            await second.ack()
            await records.aclose()
            assert calls.acknowledged == [first.id, second.id]

    asyncio.run(scenario())


def test_acknowledgements_are_dropped_once_an_unforeseen_error_may_be_their_fault() -> None:
    async def scenario() -> None:
        calls = Calls(ending("UNKNOWN", "no such shard", frame(1, b"a")), [frame(2, b"b")])
        async with connected({"StreamingFetch": calls}) as (node, client):
            async with aclosing(client.fetch("f")) as records:
                first = await anext(records)
                await until(lambda: node.calls["StreamingFetch"], "the call")
                await asyncio.sleep(0.05)
                await first.ack()
                second = await anext(records)
                await second.ack()
            assert calls.acknowledged == [second.id]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "text", "match"),
    [
        ("NOT_FOUND", status_text(300, "SubscriptionNotFound", "f"), "SubscriptionNotFound"),
        ("UNAUTHENTICATED", "No auth metadata found", "No auth"),
        ("CANCELLED", "", "a token is missing or wrong"),  # each time
    ],
)
def test_an_end_that_stays_is_raised(code: str, text: str, match: str) -> None:
    async def scenario() -> None:
        async with connected({"StreamingFetch": refusing(code, text)}) as (_, client):
            with pytest.raises(SourceRefused, match=match):
                await take(client.fetch("f", rng=Random(1)), 1)

    asyncio.run(scenario())


def test_a_subscription_deleted_under_the_fetch_is_a_refusal() -> None:
    async def gone(*_: Any) -> CheckSubscriptionExistResponse:
        return CheckSubscriptionExistResponse(exists=False)

    deleted = ending("ABORTED", status_text(0, "SubscriptionIsDeleting", '"f"'), frame(1, b"a"))

    async def scenario() -> None:
        script = {"StreamingFetch": Calls(deleted), "CheckSubscriptionExist": gone}
        async with connected(script) as (_, client), aclosing(client.fetch("f")) as records:
            assert (await anext(records)).record == RawRecord(b"a")
            with pytest.raises(SourceRefused, match="f was deleted"):
                await anext(records)

    asyncio.run(scenario())


def test_whether_a_subscription_exists_is_asked_again_if_nobody_answers() -> None:
    deleting = ending("ABORTED", status_text(0, "SubscriptionIsDeleting", '"f"'))

    async def scenario() -> None:
        script = {
            "StreamingFetch": Calls(deleting, [frame(1, b"a")]),
            "CheckSubscriptionExist": refusing("UNAVAILABLE", "down"),
        }
        async with connected(script) as (_, client):
            assert len(await take(client.fetch("f", rng=Random(1)), 1)) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["StreamingFetch", "LookupSubscription"])
def test_unavailable_for_ever_is_raised_once_patience_is_over(method: str) -> None:
    async def scenario() -> int:
        async with connected({method: refusing("UNAVAILABLE", "down")}) as (node, client):
            with pytest.raises(SourceUnavailable, match="down"):
                await take(client.fetch("f", patience=0.3, rng=Random(1)), 1)
            return node.calls[method]

    assert 2 < asyncio.run(scenario()) < 30  # with waits in between


def test_calls_that_stood_for_long_are_no_lack_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SERVED_SECONDS", 0.05)

    async def stand(_requests: Requests, context: Any) -> None:
        await asyncio.sleep(0.1)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")

    async def scenario() -> None:
        calls = Calls(*[stand] * 5, [frame(1, b"a")])
        async with connected({"StreamingFetch": calls}) as (_, client):
            assert len(await take(client.fetch("f", patience=0.25, rng=Random(1)), 1)) == 1

    asyncio.run(scenario())


def test_unforeseen_errors_are_retried_a_few_times_only() -> None:
    async def scenario() -> int:
        async with connected({"StreamingFetch": refusing("INTERNAL", "disk")}) as (node, client):
            with pytest.raises(SourceUnavailable, match="INTERNAL: disk"):
                await take(client.fetch("f", rng=Random(1)), 1)
            return node.calls["StreamingFetch"]

    assert asyncio.run(scenario()) == 5


def test_cancelling_the_reader_leaves_the_subscription() -> None:
    async def scenario() -> None:
        calls = Calls([])
        async with connected({"StreamingFetch": calls}) as (_, client):
            reading = asyncio.create_task(take(client.fetch("f"), 1))
            await until(lambda: calls.names, "the call")
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert calls.acknowledged == []

    asyncio.run(scenario())


def test_a_frame_that_cannot_be_decoded_is_handed_out_record_by_record_with_its_error() -> None:
    async def scenario() -> None:
        bad = received(1, b"a", b"b")
        bad.record.CopyFrom(BatchedRecord(compression_type=9, batch_size=2, payload=b"?"))
        calls = Calls([StreamingFetchResponse(received_records=bad).SerializeToString(), frame(2, b"c")])
        async with connected({"StreamingFetch": calls}) as (_, client):
            found = await take(client.fetch("f"), 3)
            assert [each.record for each in found] == [None, None, RawRecord(b"c")]
            assert isinstance(found[0].error, InvalidValue)
            assert found[0].error.reason == "unknown_compression"
            assert calls.acknowledged == [each.id for each in found]

    asyncio.run(scenario())


def test_a_frame_whose_ids_cannot_be_read_is_raised() -> None:
    async def scenario() -> None:
        async with connected({"StreamingFetch": Calls([b"\xff"])}) as (_, client):
            with pytest.raises(InvalidValue, match="bad_response"):
                await take(client.fetch("f"), 1)

    asyncio.run(scenario())


def test_a_batch_larger_than_the_limit_is_not_expanded() -> None:
    async def scenario() -> None:
        async with connected({"StreamingFetch": Calls([frame(1, bytes(2_000))])}) as (_, client):
            (found,) = await take(client.fetch("f", limit=1_000), 1)
            assert "oversized" in str(found.error)

    asyncio.run(scenario())
