"""A receiver's end of a link to a source, for tests: asks, and waits for packets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived
from silverfold.connectors.tengi.protocol.values import Message, Packet
from silverfold.connectors.tengi.transports.link import Link
from tests.support.polling import PATIENCE
from tests.support.tengi.model_receiver import ModelReceiver


async def ask(link: Link, *packets: Packet) -> None:
    """Send packets."""
    for each in packets:
        await link.send(Message.create(each))


async def next_packet(link: Link) -> Packet | None:
    """Return the next packet; None at the end of the connection. A bad frame is an error."""
    event = await asyncio.wait_for(link.next_event(), PATIENCE)
    if isinstance(event, BadFrame):
        raise event.error
    if isinstance(event, Closed):
        return None
    assert isinstance(event, MessageReceived)
    assert isinstance(event.body, Packet)
    return event.body


async def packets(link: Link, count: int) -> list[Packet]:
    """Return the next packets."""
    found = [await next_packet(link) for _ in range(count)]
    return [each for each in found if each is not None]


async def follow(link: Link, receiver: ModelReceiver, until: Callable[[], bool]) -> None:
    """Let a receiver talk to the source until a condition is met."""
    while not until():
        await ask(link, *_taken(receiver))
        packet = await next_packet(link)
        assert packet is not None, "the source ended the connection"
        receiver.receive(packet, time.monotonic())
    await ask(link, *_taken(receiver))


def _taken(receiver: ModelReceiver) -> Iterable[Packet]:
    requests, receiver.requests = receiver.requests, []
    return requests
