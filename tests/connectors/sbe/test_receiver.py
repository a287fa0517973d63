"""The receiver on real sockets and files: what was whole has landed, the next epoch goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
import structlog

from conf.errors import RemoteProtocolError, SourceRefused, SourceUnavailable
from conf.model import Reconnect
from connectors.base import Feed, Kind, Resume
from connectors.sbe.connector import CONNECTOR
from connectors.sbe.market import Market
from connectors.sbe.receiver import SbeReceiver
from connectors.sbe.schemas import feed_schema, read_schema
from connectors.sbe.server import MarketServer
from connectors.wire.framing.known import FRAMINGS
from connectors.wire.framing.writer import FrameWriter
from pipelines.bronze import read_frames
from pipelines.places import Places
from pipelines.receiving import receive
from tests.support.memory import MemorySink
from tests.support.peers import nobody, serving
from tests.support.sbe_feed import options, table

MARKET = feed_schema("builtin")
SECURITIES = list(Market(MARKET, seed=0, clock=lambda: 0).greeting())
STREAM = FrameWriter(FRAMINGS["sofh"]).write(SECURITIES)
TEXT = read_schema("builtin").text


class Sink(MemorySink):
    """Keeps what lands, in memory."""

    @property
    def bodies(self):
        return [frame.body for frame in self.frames if frame.kind == "data"]

    @property
    def marks(self):
        return [details["mark"] for _, details in self.told()]

    def resume(self, epoch):
        """Return what a receiver gets that starts anew."""
        reached = {frame.stream: frame.source_position for frame in self.frames if frame.source_position}
        told = [frame.body for frame in self.frames if frame.kind == "control"]
        return Resume(epoch, reached, told[-1] if told else None)


def feed_of(address, *, framing="sofh", schema="builtin"):
    reconnect = Reconnect(first=0.01, longest=0.02, connect_timeout=5)
    return Feed("stream", "sbe", str(address), options(schema, framing), {"Security": table()}, reconnect=reconnect)


def receiver(address, **settings):
    return SbeReceiver(feed_of(address, **settings))


def epoch(one, sink, number=1, resume=None):
    asyncio.run(one.run(sink, resume or Resume(number)))


@pytest.mark.parametrize("cut", [1, 5, 47, 50, len(STREAM)])
def test_messages_land_however_the_connection_cuts_them_and_its_end_is_in_order(cut):
    async def serve(_reader, writer):
        for start in range(0, len(STREAM), cut):
            writer.write(STREAM[start : start + cut])
            await asyncio.sleep(0)

    async def run():
        sink = Sink()
        async with serving(serve) as address:
            await receiver(address).run(sink, Resume(1))
        return sink

    sink = asyncio.run(run())
    assert [frame.body for frame in sink.frames] == [TEXT, *SECURITIES]
    assert [(frame.stream, frame.source_position) for frame in sink.frames[1:]] == [("1", None)] * 4


def test_a_connection_that_ends_inside_a_message_is_no_end_in_order():
    async def serve(_reader, writer):
        writer.write(STREAM[:-1])

    async def run():
        sink = Sink()
        async with serving(serve) as address:
            with pytest.raises(RemoteProtocolError, match="truncated at byte 142"):
                await receiver(address).run(sink, Resume(1))
        return sink

    sink = asyncio.run(run())
    assert (sink.bodies, sink.marks) == (SECURITIES[:3], ["bad bytes"])


def test_hostile_bytes_end_the_epoch_after_the_good_ones_and_the_next_one_goes_on():
    calls = iter([STREAM[:93] + b"GET / HTTP/1.1\r\n" + bytes(10_000), STREAM])

    async def serve(_reader, writer):
        writer.write(next(calls))

    async def run():
        sink, ended = Sink(), []
        async with serving(serve) as address:
            one = receiver(address)
            for number in (1, 2):
                try:
                    await one.run(sink, Resume(number))
                except RemoteProtocolError as error:
                    ended.append(str(error))
        return sink, ended

    sink, (why,) = asyncio.run(run())
    assert "encoding-type at byte 93" in why
    assert sink.bodies == [*SECURITIES[:2], *SECURITIES]
    assert sink.marks == ["bad bytes"]
    assert [frame.kind.value for frame in sink.frames].count("control") == 1


def test_nobody_there_is_an_unavailable_source():
    with nobody() as address, pytest.raises(SourceUnavailable):
        epoch(receiver(address), Sink())


def test_a_receiver_that_is_stopped_lands_what_had_arrived_and_does_not_wait_for_room():
    async def run(server):
        sink = Sink()
        task = asyncio.create_task(receiver(f"127.0.0.1:{server.port}", framing="memx").run(sink, Resume(1)))
        while len(sink.bodies) < 4:
            await asyncio.sleep(0.01)
        changes = await asyncio.to_thread(server.change)
        while len(sink.bodies) < 5:
            await asyncio.sleep(0.01)
        sink.is_full = True
        task.cancel()
        await asyncio.wait([task], timeout=10)
        return sink, changes, task.cancelled()

    with MarketServer.start(framing=FRAMINGS["memx"], seed=1) as server:
        sink, changes, stopped = asyncio.run(run(server))
    assert stopped
    assert sink.bodies[:4] == SECURITIES
    assert len(sink.bodies[4]) == 20 + 21 * changes
    assert sink.marks == []


@pytest.mark.parametrize("framing", ["sofh", "memx", "b3-umdf"])
def test_a_file_is_read_on_from_where_the_last_epoch_ended_and_no_message_lands_twice(tmp_path: Path, framing: str):
    octets, sink = FrameWriter(FRAMINGS[framing]).write(SECURITIES), Sink()
    file = tmp_path / "frames.bin"
    file.write_bytes(octets[:100])

    epoch(receiver(f"file:{file}", framing=framing), sink)
    assert sink.bodies == SECURITIES[: len(sink.bodies)]
    epoch(receiver(f"file:{file}", framing=framing), sink, resume=sink.resume(2))
    file.write_bytes(octets)
    one = receiver(f"file:{file}", framing=framing)
    for number in (3, 4):
        epoch(one, sink, resume=sink.resume(number))

    assert sink.bodies == SECURITIES
    assert [frame.body for frame in sink.frames if frame.kind == "control"] == [TEXT]
    assert set(sink.marks) == {"part of a message"}


def test_a_receiver_that_starts_anew_goes_on_by_what_landed(tmp_path: Path):
    file = tmp_path / "frames.bin"
    file.write_bytes(STREAM[:93])
    feed = feed_of(f"file:{file}")

    async def received(messages):
        stop, places = asyncio.Event(), Places(str(tmp_path / "lake"))
        log = structlog.get_logger("test")
        running = asyncio.create_task(
            receive(feed, CONNECTOR, places, stop=stop, clock=lambda: 1_700_000_000_000_000, rng=Random(1), log=log)
        )
        while len(list(read_frames(places.bronze("stream"), kind=Kind.DATA))) < messages:
            await asyncio.sleep(0.02)
        stop.set()
        await running
        return places.bronze("stream")

    asyncio.run(received(2))
    file.write_bytes(STREAM)
    bronze = asyncio.run(received(4))

    assert [frame.body for frame in read_frames(bronze, kind=Kind.DATA)] == SECURITIES
    assert [frame.body for frame in read_frames(bronze, kind=Kind.CONTROL)] == [TEXT]


def test_a_file_of_one_message_is_that_message(tmp_path: Path):
    file, sink = tmp_path / "one.bin", Sink()
    file.write_bytes(SECURITIES[0])

    for number in (1, 2):
        epoch(receiver(f"file:{file}", framing="whole"), sink, resume=sink.resume(number))

    assert sink.bodies == SECURITIES[:1]


def test_a_file_that_is_not_there_may_come_and_one_that_is_shorter_is_another(tmp_path: Path):
    file, sink = tmp_path / "frames.bin", Sink()
    with pytest.raises(SourceUnavailable, match="No such file"):
        epoch(receiver(f"file:{file}"), sink)
    file.write_bytes(STREAM)
    epoch(receiver(f"file:{file}"), sink)
    file.write_bytes(STREAM[:47])

    with pytest.raises(SourceRefused, match="47 bytes, 188 were read before: it is another file"):
        epoch(receiver(f"file:{file}"), sink, resume=sink.resume(2))


def test_bytes_of_a_file_that_are_no_messages_end_every_epoch_there(tmp_path: Path):
    file, sink = tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM + b"\xff" * 20)

    for number in (1, 2):
        with pytest.raises(RemoteProtocolError, match="encoding-type"):
            epoch(receiver(f"file:{file}"), sink, resume=sink.resume(number))

    assert sink.bodies == SECURITIES
    assert [json.loads(f.body)["offset"] for f in sink.frames if f.kind == "mark"] == [188, 188]


def test_a_schema_that_is_replaced_is_taken_at_the_next_epoch_and_a_broken_one_is_not(tmp_path: Path):
    xml, file, sink = tmp_path / "market.xml", tmp_path / "frames.bin", Sink()
    newer = TEXT.replace(b'version="1"', b'version="2"', 1)
    file.write_bytes(STREAM)
    xml.write_bytes(TEXT)
    one = receiver(f"file:{file}", schema=str(xml))

    for number, text in enumerate([TEXT, newer, b"<broken", newer], start=1):
        xml.write_bytes(text)
        epoch(one, sink, resume=sink.resume(number))

    assert [frame.body for frame in sink.frames if frame.kind == "control"] == [TEXT, newer]
    (changed,) = [json.loads(frame.body) for frame in sink.frames if frame.kind == "mark"]
    assert (changed["mark"], changed["version_before"], changed["version"]) == ("schema changed", 1, 2)
