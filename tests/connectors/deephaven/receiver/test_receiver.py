"""The receiver on real sockets, against peers that misbehave: what was whole has landed, the next epoch goes on."""

import asyncio
import contextlib
import time
from random import Random

import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceUnavailable
from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.receiver.receiver import DeephavenReceiver
from silverfold.connectors.frames import Resume
from tests.support.chance import Highest
from tests.support.deephaven.frames import GREETING, begin, end, refusal, response, rows, sent, update
from tests.support.memory import MemorySink
from tests.support.peers import serving, silent
from tests.support.polling import until

TABLES = {"quotes": DeephavenTable(source="Quotes"), "trades": DeephavenTable(source="Trades")}


class Sink(MemorySink):
    """Keeps what lands, in memory."""

    @property
    def outline(self):
        return [(frame.stream, frame.kind.value, frame.boundary.value) for frame in self.frames if frame.kind != "mark"]

    def marks(self, name):
        return [(stream, details) for stream, details in self.mark_details() if details["mark"] == name]


def receiver_of(address, *, tables=TABLES, timeout=10.0, **options):
    reconnect = Reconnect(first=0.01, longest=0.02, connect_timeout=timeout)
    feed = Feed("market", "deephaven", str(address), DeephavenOptions(**options), tables, reconnect=reconnect)
    return DeephavenReceiver(feed, rng=Random(1), clock=time.monotonic)


def run_against(serve, *, epochs=1, **settings):
    """Run epochs against a peer; return what landed and what ended each epoch."""

    async def run():
        sink, endings = Sink(), []
        async with serving(serve) as address:
            receiver = receiver_of(address, **settings)
            for epoch in range(1, epochs + 1):
                try:
                    await receiver.run(sink, Resume(epoch))
                    endings.append(None)
                except (SourceUnavailable, RemoteProtocolError) as error:
                    endings.append(error)
        return sink, endings

    return asyncio.run(run())


async def greet(reader, writer, answers=2):
    """Greet, and take the requests that follow."""
    writer.write(sent(GREETING))
    for _ in range(answers):
        size = int.from_bytes(await reader.readexactly(4), "little")
        await reader.readexactly(size)


def test_a_connection_that_ends_in_order_ends_the_epoch_without_an_error():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(response(1), response(2), *update(1), *update(2)))

    sink, endings = run_against(serve)
    assert endings == [None]
    assert sink.outline == [
        (None, "control", "none"),
        ("quotes", "control", "none"),
        ("trades", "control", "none"),
        ("quotes", "snapshot", "begin"),
        ("quotes", "snapshot", "inside"),
        ("quotes", "snapshot", "end"),
        ("trades", "snapshot", "begin"),
        ("trades", "snapshot", "inside"),
        ("trades", "snapshot", "end"),
    ]


def test_a_peer_that_says_nothing_is_given_up_in_time():
    _, (error,) = run_against(silent, timeout=0.05)
    assert isinstance(error, SourceUnavailable)
    assert "no first frame within 0.05 s" in str(error)


def test_a_peer_that_trickles_its_greeting_is_given_up_in_time():
    async def serve(_reader, writer):
        for byte in sent(GREETING):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.03)

    _, (error,) = run_against(serve, timeout=0.1)
    assert "no first frame" in str(error)


def test_silence_after_the_greeting_is_a_lost_server_where_the_settings_say_so():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(response(1), response(2), *update(1), begin(2))[:-1])
        await reader.read()

    sink, (first, second) = run_against(serve, epochs=2, silent_after=0.1)
    assert "sent nothing for 0.1 s" in str(first)
    assert "sent nothing for 0.1 s" in str(second)
    assert sink.outline.count(("quotes", "snapshot", "end")) == 2
    assert sink.marks("bad frame") == []


def test_silence_after_the_greeting_is_a_quiet_table():
    async def serve(reader, writer):
        await greet(reader, writer)
        await asyncio.sleep(0.3)
        writer.write(sent(response(1), response(2), *update(1)))

    sink, endings = run_against(serve, timeout=0.1)
    assert endings == [None]
    assert sink.outline[-1] == ("quotes", "snapshot", "end")


def test_nobody_there_is_an_unavailable_source():
    async def run():
        async with serving(silent) as address:
            pass
        await receiver_of(address).run(Sink(), Resume(1))

    with pytest.raises(SourceUnavailable):
        asyncio.run(run())


def test_garbage_instead_of_a_greeting_ends_the_epoch_and_is_kept():
    async def serve(_reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")

    sink, (error,) = run_against(serve)
    assert isinstance(error, RemoteProtocolError)
    ((_, details),) = sink.marks("bad frame")
    assert details["body"] == "U1NILTIuMC1PcGVuU1NIXzkuNg0K"


def test_a_peer_that_closes_at_once_ends_the_epoch_with_an_error():
    async def serve(_reader, _writer):
        pass

    sink, (error,) = run_against(serve)
    assert "before its first frame" in str(error)
    assert sink.outline == []


def test_a_peer_that_closes_inside_a_frame_of_an_update_leaves_marks():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(response(1), response(2), begin(1), rows(1), rows(1))[:-7])

    sink, (error,) = run_against(serve)
    assert "bytes into a frame" in str(error)
    assert sink.outline[-1] == ("quotes", "snapshot", "inside")
    assert [stream for stream, _ in sink.marks("update void")] == ["quotes"]
    assert len(sink.marks("bad frame")) == 1


def test_a_connection_that_breaks_leaves_marks_of_void_updates():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(response(1), response(2), begin(1), rows(1)))
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: reset, not close
        writer.transport.abort()

    sink, (error,) = run_against(serve)
    assert isinstance(error, SourceUnavailable)
    assert [stream for stream, _ in sink.marks("update void")] == ["quotes"]


def test_a_refused_table_comes_in_the_same_epoch_once_the_server_has_it():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(refusal(1, "UNKNOWN_TABLE"), response(2), *update(2)))
        size = int.from_bytes(await reader.readexactly(4), "little")
        await reader.readexactly(size)
        writer.write(sent(response(3), *update(3), *update(2)))

    sink, endings = run_against(serve)
    assert endings == [None]
    assert [stream for stream, _ in sink.marks("subscription failed")] == ["quotes"]
    assert sink.outline[-6:] == [
        ("quotes", "snapshot", "begin"),
        ("quotes", "snapshot", "inside"),
        ("quotes", "snapshot", "end"),
        ("trades", "data", "begin"),
        ("trades", "data", "inside"),
        ("trades", "data", "end"),
    ]


def test_a_snapshot_only_table_is_asked_for_again_while_the_connection_is_quiet():
    async def serve(reader, writer):
        await greet(reader, writer, answers=1)
        writer.write(sent(response(1), *update(1)))
        size = int.from_bytes(await reader.readexactly(4), "little")
        await reader.readexactly(size)
        writer.write(sent(response(2), *update(2)))

    tables = {"quotes": DeephavenTable(source="Quotes", mode="snapshot_only", every=0.05)}
    sink, endings = run_against(serve, tables=tables)
    assert endings == [None]
    assert [details["subscription_id"] for _, details in sink.marks("snapshot asked")] == [1, 2]
    assert sink.outline.count(("quotes", "snapshot", "end")) == 2


def test_a_table_that_breaks_two_epochs_in_a_row_does_not_keep_the_other_from_its_updates():
    async def serve(reader, writer):
        writer.write(sent(GREETING))
        ids = {}
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "little")
                request = await reader.readexactly(size)
                number = int.from_bytes(request[8:12], "little")
                ids["quotes" if b"Quotes" in request else "trades"] = number
                writer.write(sent(response(number)))
                writer.write(sent(end(number)) if b"Quotes" in request else sent(*update(number)))
                if "quotes" not in ids:
                    break

    async def run():
        sink = Sink()
        async with serving(serve) as address:
            feed = Feed(
                "market",
                "deephaven",
                str(address),
                DeephavenOptions(),
                TABLES,
                reconnect=Reconnect(first=60, longest=60),
            )
            receiver = DeephavenReceiver(feed, rng=Highest(), clock=time.monotonic)
            for epoch in (1, 2):
                with pytest.raises(RemoteProtocolError, match="EndTableUpdate without BeginTableUpdate"):
                    await receiver.run(sink, Resume(epoch))
            sink.frames.clear()
            await receiver.run(sink, Resume(3))
        return sink

    sink = asyncio.run(run())
    assert [stream for stream, _ in sink.marks("stream suspended")] == ["quotes"]
    assert sink.outline[-1] == ("trades", "snapshot", "end")


def test_a_stop_lands_every_whole_frame_that_had_arrived_and_does_not_wait_for_room():
    async def serve(reader, writer):
        await greet(reader, writer)
        writer.write(sent(response(1), response(2), *update(1), begin(1), rows(1))[:-3])
        await asyncio.Event().wait()

    async def run():
        sink = Sink()
        async with serving(serve) as address:
            running = asyncio.create_task(receiver_of(address).run(sink, Resume(1)))
            await until(lambda: sink.outline[-1:] == [("quotes", "data", "begin")], "an update to begin", work=running)
            sink.is_full = True
            running.cancel()
            await asyncio.wait([running], timeout=10)
        return sink, running.cancelled()

    sink, cancelled = asyncio.run(run())
    assert cancelled
    assert [stream for stream, _ in sink.marks("update void")] == ["quotes"]
    assert sink.marks("bad frame") == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"prefix_counts": "body"}, "prefix_counts"),
        ({"byte_order": "bigEndian"}, "byte_order"),
    ],
)
def test_a_setting_that_the_first_frame_contradicts_is_named(options, found):
    async def serve(reader, writer):
        await greet(reader, writer)

    _, (error,) = run_against(serve, **options)
    assert found in str(error)
