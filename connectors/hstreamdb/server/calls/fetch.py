"""A consumer's call: it opens, receives frames, acknowledges, and ends."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.node import Node
from silverfold.connectors.hstreamdb.server.options import ClusterOptions
from silverfold.connectors.hstreamdb.server.reading.consumers import ConsumerBuffer
from silverfold.connectors.hstreamdb.server.reading.context import ReadingContext
from silverfold.connectors.hstreamdb.server.reading.delivery_state import UnknownShard
from silverfold.connectors.hstreamdb.server.refusals import Refusal


async def streaming_fetch(node: Node, call: Any) -> None:
    """Serve a consumer until it leaves. Raises Refusal."""
    opening = await call.read()
    if opening is grpc.aio.EOF:
        raise refusals.stream_read_close()
    context = node.context(node.store.subscription(opening.subscription_id))
    metadata: dict[str, str] = dict(call.invocation_metadata())
    agent = metadata.get("proxy-agent") or metadata.get("user-agent", "")
    uri = metadata.get("x-forwarded-for") or call.peer()
    consumer = ConsumerBuffer(opening.consumer_name, uri, agent, buffer=node.options.frame_buffer)
    context.join(consumer)
    node.fetch_count += 1
    try:
        await until_first_ends(
            _acknowledge(call, context, node.options), _write(call, consumer, node.options), _stopped(context)
        )
    except UnknownShard as error:
        consumer.close()  # it stays registered until a write fails: its shards are nobody else's
        raise Refusal("UNKNOWN", f"UnKnown exception: {error!r}") from error
    except BaseException:
        context.leave(consumer)
        raise
    else:
        context.leave(consumer)
    finally:
        node.fetch_count -= 1


async def _acknowledge(call: Any, context: ReadingContext, options: ClusterOptions) -> None:
    """Take acknowledgements until the client closes its side."""
    number = 1
    while (request := await call.read()) is not grpc.aio.EOF:
        number += 1
        if request.ack_ids and number not in options.dropped_acks:
            context.acknowledge(map(RecordId.of, request.ack_ids))


async def _write(call: Any, consumer: ConsumerBuffer, options: ClusterOptions) -> None:
    number = 0
    while number != options.stall_after_frames:
        frame = await consumer.next_frame()
        number += 1
        if number in options.inserted_frames:
            await call.write(options.inserted_frames[number])
        await call.write(frame)
        if number == options.cut_after_frames:
            raise refusals.unavailable("")
    await asyncio.Event().wait()


async def _stopped(context: ReadingContext) -> None:
    await context.stopping()
    raise refusals.subscription_is_deleting(context.subscription.id)
