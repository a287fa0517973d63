"""The receiver on files that grow, are cut and replaced: each message lands once, whatever becomes of the file."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.frames import Kind, Resume
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.receiver.growing_file import GrowingFile
from silverfold.connectors.sbe.receiver.receiver import SbeReceiver
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.pipelines.landing.bronze import read_frames
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.places import Places
from tests.support.polling import until
from tests.support.sbe.receiving import SECURITIES, STREAM, TEXT, Sink, epoch, feed_of, receiver


@pytest.fixture
def rests(monkeypatch):
    """Return what waits until an epoch has looked at its file, after all that came before, and found no more."""
    rested = []
    has_more = GrowingFile.has_more

    def looked(file):
        more = has_more(file)
        rested.extend([] if more else [file])
        return more

    async def wait(task):
        before = len(rested)
        await until(lambda: len(rested) >= before + 2 or task.done(), "the file's rest")

    monkeypatch.setattr(GrowingFile, "has_more", looked)
    return wait


@pytest.fixture
def stopped_at_the_end(rests):
    """Return what runs an epoch until its file rests, and stops it there; tells whether it was running then."""

    async def run(one, sink, resume):
        task = asyncio.create_task(one.run(sink, resume))
        await rests(task)
        running = not task.done()
        task.cancel()
        await asyncio.wait([task])
        return running if task.cancelled() else task.result()

    return lambda one, sink, resume=None: asyncio.run(run(one, sink, resume or Resume(1)))


@pytest.fixture
def meanwhile(rests):
    """Return what takes steps one by one while an epoch runs, each once its file rests; returns what ended it."""

    async def run(one, sink, resume, steps: tuple[Callable[[], object], ...]):
        task = asyncio.create_task(one.run(sink, resume))
        for step in steps:
            await rests(task)
            assert not task.done()
            step()
        async with asyncio.timeout(10):
            await asyncio.wait([task])
        return task.exception() or task.result()

    return lambda one, sink, *steps, resume=None: asyncio.run(run(one, sink, resume or Resume(1), steps))


@pytest.mark.parametrize("framing", ["sofh", "memx", "coinbase-market-data"])
def test_a_file_is_read_on_from_where_the_last_epoch_ended_and_no_message_lands_twice(
    tmp_path: Path, stopped_at_the_end, framing: str
):
    octets, sink = FrameWriter(FRAMINGS[framing]).write(SECURITIES), Sink()
    file = tmp_path / "frames.bin"
    file.write_bytes(octets[:100])

    assert stopped_at_the_end(receiver(f"file:{file}", framing=framing), sink)
    begun = len(sink.bodies)
    assert 1 <= begun <= 3
    assert sink.bodies == SECURITIES[:begun]
    assert stopped_at_the_end(receiver(f"file:{file}", framing=framing), sink, sink.resume(2))
    assert len(sink.bodies) == begun
    file.write_bytes(octets)
    one = receiver(f"file:{file}", framing=framing)
    for number in (3, 4):
        assert stopped_at_the_end(one, sink, sink.resume(number))

    assert sink.bodies == SECURITIES
    assert [frame.body for frame in sink.frames if frame.kind == "control"] == [TEXT]
    assert sink.marks == []


def test_a_file_is_read_on_from_where_silver_is_if_bronze_has_lost_it(tmp_path: Path, stopped_at_the_end):
    file = tmp_path / "frames.bin"
    file.write_bytes(STREAM)
    first, later = Sink(), Sink()
    assert stopped_at_the_end(receiver(f"file:{file}"), first)
    positions = [frame.source_position for frame in first.frames if frame.source_position]
    resume = Resume(2, {"Security": positions[0]}, silver_positions={"Security": positions[1]})
    assert stopped_at_the_end(receiver(f"file:{file}"), later, resume)
    assert later.bodies == first.bodies[2:]


@pytest.mark.parametrize("framing", ["sofh", "memx", "coinbase-market-data", "packed"])
def test_an_epoch_goes_on_over_the_end_of_its_file_and_a_message_that_is_begun_waits_for_its_rest(
    tmp_path: Path, meanwhile, framing: str
):
    octets, sink, landed = FrameWriter(FRAMINGS[framing]).write(SECURITIES), Sink(), []
    file = tmp_path / "frames.bin"
    file.write_bytes(b"")

    def grow(start, end):
        landed.append(len(sink.bodies))
        grown(file, octets[start:end])

    cuts = [0, 1, 60, 61, len(octets) - 1, len(octets)]
    steps = [lambda cut=cut: grow(*cut) for cut in itertools.pairwise(cuts)]
    meanwhile(receiver(f"file:{file}", framing=framing), sink, *steps, file.unlink)

    assert landed[:2] == [0, 0]
    assert landed[-1] == 3
    assert sink.bodies == SECURITIES
    assert sink.marks == []


@pytest.mark.parametrize(
    ("become", "why"),
    [
        (lambda file: os.truncate(file, 100), "frames.bin has 100 bytes, 150 were read: it was cut"),
        (lambda file: file.unlink(), "frames.bin: No such file or directory"),
        (
            lambda file: replaced(file, STREAM),
            "frames.bin is another file now, 150 bytes were read of the one before",
        ),
    ],
    ids=["cut", "gone", "replaced"],
)
def test_a_file_that_is_not_what_was_read_ends_the_epoch_and_a_message_that_it_leaves_begun_is_told(
    tmp_path: Path, meanwhile, become, why: str
):
    file, sink = tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM[:150])

    ended = meanwhile(receiver(f"file:{file}"), sink, lambda: become(file))

    assert isinstance(ended, SourceUnavailable)
    assert str(ended).endswith(why)
    assert sink.bodies == SECURITIES[:3]
    assert [details for _, details in sink.mark_details()] == [
        {"mark": "part of a message", "level": "warning", "offset": 142, "left": 8}
    ]


def grown(file, octets):
    with file.open("ab") as writer:
        writer.write(octets)


def replaced(file, octets):
    newer = file.with_suffix(".new")
    newer.write_bytes(octets)
    newer.rename(file)


def test_what_a_file_got_before_it_was_replaced_lands_and_the_next_one_is_read_on_by_position(
    tmp_path: Path, meanwhile, stopped_at_the_end
):
    file, sink = tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM[:60])

    def grow_and_replace():
        grown(file, STREAM[60:142])
        replaced(file, STREAM)

    one = receiver(f"file:{file}")
    ended = meanwhile(one, sink, grow_and_replace)

    assert "another file now, 142 bytes were read" in str(ended)
    assert sink.bodies == SECURITIES[:3]
    assert stopped_at_the_end(one, sink, sink.resume(2))
    assert sink.bodies == SECURITIES
    assert sink.marks == []


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
        bronze = places.bronze("stream")
        await until(lambda: len(list(read_frames(bronze, kind=Kind.DATA))) >= messages, "the messages", work=running)
        stop.set()
        await running
        return bronze

    asyncio.run(received(2))
    file.write_bytes(STREAM)
    bronze = asyncio.run(received(4))

    assert [frame.body for frame in read_frames(bronze, kind=Kind.DATA)] == SECURITIES
    assert [frame.body for frame in read_frames(bronze, kind=Kind.CONTROL)] == [TEXT]


def test_a_file_of_one_message_is_that_message_and_what_is_added_to_it_is_another(
    tmp_path: Path, meanwhile, stopped_at_the_end
):
    file, sink = tmp_path / "one.bin", Sink()
    file.write_bytes(b"")
    one = receiver(f"file:{file}", framing="whole")

    assert meanwhile(one, sink, lambda: grown(file, SECURITIES[0])) == "the file has grown"
    assert sink.bodies == []
    assert meanwhile(one, sink, lambda: grown(file, SECURITIES[1]), resume=sink.resume(2)) == "the file has grown"
    assert sink.bodies == SECURITIES[:1]
    for number in (3, 4):
        assert stopped_at_the_end(one, sink, sink.resume(number))

    assert sink.bodies == SECURITIES[:2]


def test_a_file_that_is_not_there_may_come_and_one_that_is_shorter_is_another(tmp_path: Path, stopped_at_the_end):
    file, sink = tmp_path / "frames.bin", Sink()
    with pytest.raises(SourceUnavailable, match="No such file"):
        epoch(receiver(f"file:{file}"), sink)
    file.write_bytes(STREAM)
    assert stopped_at_the_end(receiver(f"file:{file}"), sink)
    file.write_bytes(STREAM[:47])

    with pytest.raises(SourceRefused, match="47 bytes, 188 were read before: it is another file"):
        epoch(receiver(f"file:{file}"), sink, resume=sink.resume(2))


def test_bytes_of_a_file_that_are_no_messages_end_every_epoch_there(tmp_path: Path):
    file, sink = tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM + b"\xff" * 20)

    for number in (1, 2):
        with pytest.raises(RemoteProtocolError, match="frame-too-large"):
            epoch(receiver(f"file:{file}"), sink, resume=sink.resume(number))

    assert sink.bodies == SECURITIES
    assert [json.loads(f.body)["offset"] for f in sink.frames if f.kind == "mark"] == [188, 188]


def test_messages_of_the_other_byte_order_land_once_the_schema_is_right(tmp_path: Path, stopped_at_the_end):
    xml, file, sink = tmp_path / "market.xml", tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM)
    xml.write_bytes(TEXT.replace(b"littleEndian", b"bigEndian", 1))
    one = receiver(f"file:{file}", schema=str(xml))
    with pytest.raises(RemoteProtocolError, match="is the schema's byteOrder right"):
        epoch(one, sink)
    assert sink.bodies == []

    replaced(xml, TEXT)

    assert stopped_at_the_end(one, sink, sink.resume(2))
    assert sink.bodies == SECURITIES


def test_a_schema_that_is_replaced_ends_the_epoch_of_a_file_at_rest_and_the_next_one_lands_it(
    tmp_path: Path, meanwhile, stopped_at_the_end
):
    xml, file, sink = tmp_path / "market.xml", tmp_path / "frames.bin", Sink()
    newer = TEXT.replace(b'version="1"', b'version="2"', 1)
    file.write_bytes(STREAM[:150])
    xml.write_bytes(TEXT)
    one = receiver(f"file:{file}", schema=str(xml))

    assert meanwhile(one, sink, xml.touch, lambda: replaced(xml, newer)) == "the schema is another one"
    assert sink.marks == []
    file.write_bytes(STREAM)
    assert stopped_at_the_end(one, sink, sink.resume(2))

    assert sink.bodies == SECURITIES
    assert [frame.body for frame in sink.frames if frame.kind == "control"] == [TEXT, newer]
    ((_, changed),) = sink.mark_details()
    assert (changed["mark"], changed["version_before"], changed["version"]) == ("schema changed", 1, 2)


def test_a_schema_that_cannot_be_used_is_told_once_and_the_epoch_of_a_file_at_rest_goes_on(tmp_path: Path, rests):
    xml, file, sink = tmp_path / "market.xml", tmp_path / "frames.bin", Sink()
    file.write_bytes(STREAM[:142])
    xml.write_bytes(TEXT)

    async def run(logs):
        task = asyncio.create_task(receiver(f"file:{file}", schema=str(xml)).run(sink, Resume(1)))
        await rests(task)
        replaced(xml, b"<broken")
        await until(lambda: logs, "the schema to be looked at", work=task)
        await asyncio.sleep(0.15)
        grown(file, STREAM[142:])
        await until(lambda: len(sink.bodies) >= 4, "the last message", work=task)
        task.cancel()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(run(logs))

    assert sink.bodies == SECURITIES
    assert [(each["event"], each["goes_on_with"]) for each in logs] == [("schema cannot be used", 1)]
    assert sink.marks == []


def test_the_last_message_of_a_file_lands_before_the_bytes_that_pad_it_are_there(tmp_path: Path, stopped_at_the_end):
    file, sink = tmp_path / "frames.bin", Sink()
    framing = replace(FRAMINGS["sofh"], padding=16)
    octets = FrameWriter(framing).write(SECURITIES)
    file.write_bytes(b"")
    feed, landed = feed_of(f"file:{file}"), []
    feed = replace(feed, options=feed.options.model_copy(update={"framing": framing}))

    for number, end in enumerate([47, 94, 95, 206, 208], start=1):
        grown(file, octets[file.stat().st_size : end])
        assert stopped_at_the_end(SbeReceiver(feed, look=0.01), sink, sink.resume(number))
        landed.append(len(sink.bodies))

    assert landed == [1, 2, 2, 4, 4]
    assert sink.bodies == SECURITIES
    assert sink.marks == []


@pytest.mark.parametrize("what", ["a pipe", "a device", "a folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, what: str) -> None:
    path = {"a pipe": tmp_path / "pipe", "a device": Path("/dev/zero"), "a folder": tmp_path}[what]
    if what == "a pipe":
        os.mkfifo(path)

    with pytest.raises(SourceRefused, match=r"no-file: .* is a folder, a pipe or a device, not a file that grows"):
        GrowingFile(path, 0)
