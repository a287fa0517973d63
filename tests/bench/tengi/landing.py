"""Measures receiving packets up to the sink, against a bare asyncio reader, and against our client alone."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Sequence
from random import Random

from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Frame, Kind, Resume
from silverfold.connectors.tengi.protocol.connection import ClientConnection
from silverfold.connectors.tengi.protocol.events import MessageReceived, Transport
from silverfold.connectors.tengi.protocol.feed.packets import Position, Subscribe
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.receiver.receiver import TengiReceiver
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.frames import Opcode, encode_frame
from silverfold.connectors.tengi.transports.requests import encode_post
from silverfold.jobs.receive import collect_rarely
from tests.bench.sqlitecloud.landing import LONGEST, Spent, median, now, since
from tests.bench.tengi.source import EPOCH, HEAD, TABLE, Serving, Stored, feed_at, source
from tests.support.tengi.raw_peer import UPGRADE

BEGINNING = Position(EPOCH, 0)
SUBSCRIPTION = Message.create(Subscribe(TABLE, BEGINNING.seq, EPOCH).to_packet())
CHUNK = 1 << 20
BEFORE = {Transport.TCP: HEAD, Transport.WEBSOCKET: HEAD + 4, Transport.HTTP: HEAD - 19}
"""Bytes before a body: a frame of WebSocket has a head too; an answer has messages, with one connection id for all."""
ENVELOPE = 47
"""Bytes of an answer before its messages."""

KIND, COUNT, LENGTH = (struct.Struct(f">{code}").unpack_from for code in "hiH")
STRING = -8
SIZES = {-1: 3, -4: 6, -6: 10, -7: 10}
"""Bytes of the numbers that these packets have, with their ids."""


def landing(transport: Transport, stored: Stored, runs: int) -> dict[str, object]:
    """Receive, read and let a bare reader read, alternating; return the line to print."""
    ways = {"landed": spent_to_land, "read": spent_to_read, "bare": spent_bare, "bytes": spent_to_count_bytes}
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    collect_rarely()  # as the receive command does
    with source(stored) as serving:
        for _ in range(runs):
            for name, way in ways.items():
                spent[name].append(asyncio.run(way(serving, transport, stored)))
    found = {name: median(each) for name, each in spent.items()}
    ours = found["landed"]
    return {
        "bench": "tengi-landing",
        "transport": transport.value,
        "packets": stored.packets,
        "rows_each": stored.rows,
        "bytes_each": HEAD + serving.size // stored.packets,
        "landed_per_second": round(stored.packets / ours.seconds),
        "microseconds": {name: round(1e6 * each.seconds / stored.packets, 2) for name, each in found.items()},
        "processor_microseconds": {
            name: round(1e6 * each.processor / stored.packets, 2) for name, each in found.items()
        },
        "ratio": round(found["bare"].seconds / ours.seconds, 2),
        "processor_ratio": round(found["bare"].processor / ours.processor, 2),
        "aim": 0.5,
        "runs": runs,
    }


class CountingSink:
    """A `connectors.frames.FrameSink` that counts the data."""

    def __init__(self, wanted: int) -> None:
        self._missing = wanted
        self.complete = asyncio.Event()

    def take(self, frames: Sequence[Frame]) -> None:
        """Count frames."""
        for frame in frames:
            self._missing -= frame.kind is Kind.DATA
        if self._missing <= 0:
            self.complete.set()

    async def land(self, frames: Sequence[Frame]) -> None:
        """Count frames."""
        self.take(frames)

    async def wait_for_room(self) -> None:
        """Do nothing."""

    async def flush(self) -> int:
        """Do nothing."""
        return 0


async def spent_to_land(serving: Serving, transport: Transport, stored: Stored) -> Spent:
    """Return the time until all packets are in a sink."""
    receiver = TengiReceiver(feed_at(serving.ports[transport], transport), rng=Random(1), environ={})
    sink, began = CountingSink(stored.packets), now()
    running = asyncio.create_task(receiver.run(sink, Resume(1, {TABLE: str(BEGINNING)})))
    async with asyncio.timeout(LONGEST):
        await sink.complete.wait()
    spent = since(began)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return spent


async def spent_to_read(serving: Serving, transport: Transport, stored: Stored) -> Spent:
    """Return the time in which our client yields all packets, unread; the first is the schema."""
    settings = ConfigurationBuilder().add_transport(transport).build()
    began = now()
    link = await open_link(Address("127.0.0.1", serving.ports[transport]), transport, settings)
    await link.send(SUBSCRIPTION)
    for _ in range(stored.packets + 1):
        assert isinstance(await link.next_event(), MessageReceived)
    spent = since(began)
    await link.abort()
    return spent


async def spent_bare(serving: Serving, transport: Transport, stored: Stored) -> Spent:
    """Return the time in which a bare reader has found all packets."""
    return await read_by(PacketCounter(stored.packets + 1, BEFORE[transport]), serving, transport)


async def spent_to_count_bytes(serving: Serving, transport: Transport, stored: Stored) -> Spent:
    """Return the time in which as many bytes have come as the updates have: the source's."""
    return await read_by(ByteCounter(serving.size + BEFORE[transport] * stored.packets), serving, transport)


class ByteCounter:
    """Counts bytes."""

    def __init__(self, wanted: int) -> None:
        self.missing = wanted

    def receive(self, chunk: bytes) -> None:
        """Count bytes as they arrived."""
        self.missing -= len(chunk)


class PacketCounter:
    """Finds where packets end, as plainly as `struct` allows.

    Args:
        before: Bytes before each body.
    """

    def __init__(self, wanted: int, before: int) -> None:
        self.missing, self._before, self._octets = wanted, before, bytearray()

    def receive(self, chunk: bytes) -> None:
        """Count the packets in bytes as they arrived, whose last one may be incomplete."""
        self._octets += chunk
        at = 0
        try:
            while (end := end_of_object(self._octets, at + self._before)) <= len(self._octets):
                at = end
                self.missing -= 1
        except struct.error:
            pass
        del self._octets[:at]


def end_of_object(octets: bytearray, at: int) -> int:
    """Return where an object ends. Raises struct.error if that is not there."""
    (kind,) = KIND(octets, at)
    if kind in SIZES:
        return at + SIZES[kind]
    if kind == STRING:
        return end_of_text(octets, at + 2)
    at = end_of_text(octets, at + 4)
    (count,) = COUNT(octets, at)
    at += 4
    for _ in range(count):
        at = end_of_object(octets, end_of_text(octets, at))
    return at


def end_of_text(octets: bytearray, at: int) -> int:
    """Return where a short text ends."""
    (length,) = LENGTH(octets, at + 8)
    return at + 10 + length


async def read_by(counter: ByteCounter | PacketCounter, serving: Serving, transport: Transport) -> Spent:
    """Return the time until a counter has all it wants."""
    began, client, port = now(), ClientConnection(transport), serving.ports[transport]
    await (poll if transport is Transport.HTTP else read)(port, client, counter)
    return since(began)


async def read(port: int, client: ClientConnection, counter: ByteCounter | PacketCounter) -> None:
    """Read a stream, after handshakes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
    is_framed = client.transport is Transport.WEBSOCKET

    def framed(packet: bytes) -> bytes:
        return encode_frame(Opcode.BINARY, packet, mask=os.urandom(4)) if is_framed else packet

    if is_framed:
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
    writer.write(framed(client.send_handshake()))
    client.receive((await reader.read(CHUNK))[2 if is_framed else 0 :])
    assert client.next_event() is not None
    writer.write(framed(client.send_message(SUBSCRIPTION)))
    while counter.missing > 0:
        counter.receive(await reader.read(CHUNK))
    writer.close()


async def poll(port: int, client: ClientConnection, counter: ByteCounter | PacketCounter) -> None:
    """Poll again and again, after handshakes."""
    client.receive(await posted(port, client.send_handshake()))
    assert client.next_event() is not None
    await posted(port, client.send_message(SUBSCRIPTION))
    while counter.missing > 0:
        counter.receive((await posted(port, client.send_poll()))[ENVELOPE:])


async def posted(port: int, packet: bytes) -> bytes:
    """Return the body of the answer to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
    writer.write(encode_post(packet, host="bench", closes=True))
    answer = await reader.read(-1)
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]
