"""The receiver on real sockets: what was whole has landed, the next epoch goes on."""

from __future__ import annotations

import asyncio

import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceUnavailable
from silverfold.connectors.frames import Resume
from tests.support.peers import nobody, serving
from tests.support.sbe.receiving import SECURITIES, STREAM, TEXT, Sink, epoch, receiver


def test_messages_land_whole_in_their_stream_and_the_end_of_a_connection_is_in_order():
    async def serve(_reader, writer):
        writer.write(STREAM)

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
    assert "frame-too-large at byte 93" in why
    assert sink.bodies == [*SECURITIES[:2], *SECURITIES]
    assert sink.marks == ["bad bytes"]
    assert [frame.kind.value for frame in sink.frames].count("control") == 1


def test_nobody_there_is_an_unavailable_source():
    with nobody() as address, pytest.raises(SourceUnavailable):
        epoch(receiver(address), Sink())
