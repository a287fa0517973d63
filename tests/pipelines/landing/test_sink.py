"""What a receiver hands to the sink lands: once, densely, in order, whatever the store does meanwhile."""

import asyncio
import threading
from random import Random

import pytest
import structlog
from structlog.testing import capture_logs

import silverfold.pipelines.landing.sink
from silverfold.conf.errors import Fenced, StoreUnavailable
from silverfold.conf.model import Commit
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.pipelines.landing.bronze import last_position
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import open_table
from tests.support.landing import AT_ONCE, BY_HAND, LOG, landed, sink_at, update
from tests.support.polling import until

MEBIBYTE = bytes(1 << 20)


@pytest.fixture
def place(tmp_path):
    return Place(str(tmp_path / "bronze/market"))


def versions(place):
    return open_table(place).version()


def test_frames_land_densely_from_0_with_what_the_receiver_knew(place):
    async def run():
        async with sink_at(place) as sink:
            await sink.land([mark("opened"), Frame(b"\x00\xff", Kind.SNAPSHOT, Boundary.BEGIN, "quotes")])
            await sink.land([Frame(b"", Kind.DATA, Boundary.END, "trades", "17")])

    asyncio.run(run())
    assert landed(place) == [
        (0, 1, None, "mark", "none", b'{"mark": "opened"}'),
        (1, 1, "quotes", "snapshot", "begin", b"\x00\xff"),
        (2, 1, "trades", "data", "end", b""),
    ]
    assert last_position(place, "market") == 2


def test_positions_go_on_after_a_restart_in_a_new_epoch(place):
    async def run():
        async with sink_at(place) as sink:
            await sink.land(update(count=2))

    asyncio.run(run())
    asyncio.run(run())
    assert [(frame.frame_seq, frame.epoch) for frame in landed(place)] == [(0, 1), (1, 1), (2, 2), (3, 2)]


def test_frames_landed_together_share_one_time(place):
    async def run():
        async with sink_at(place, BY_HAND) as sink:
            await sink.land(update(count=2))
            await sink.land(update())

    asyncio.run(run())
    times = open_table(place).to_pyarrow_table(columns=["received_at"])["received_at"].cast("int64")
    assert times.to_pylist() == [0, 0, 1]


def test_a_flush_returns_the_last_position_once_it_is_committed(place):
    async def run():
        async with sink_at(place, BY_HAND) as sink:
            await sink.land(update(count=3))
            last = await sink.flush()
            return last, last_position(place, "market")

    assert asyncio.run(run()) == (2, 2)


def test_frames_of_many_calls_share_a_commit(place):
    async def run():
        async with sink_at(place, BY_HAND) as sink:
            for _ in range(50):
                await sink.land(update())

    asyncio.run(run())
    assert versions(place) == 1


def test_a_commit_is_due_by_bytes_before_its_time(place):
    async def run():
        async with sink_at(place, BY_HAND) as sink:
            await sink.land(update(MEBIBYTE))
            await until(lambda: last_position(place, "market") >= 0, "the commit")

    asyncio.run(run())
    assert versions(place) == 1


def test_a_commit_is_due_by_time_without_more_bytes(place):
    async def run():
        async with sink_at(place, AT_ONCE) as sink:
            await sink.land(update())
            await until(lambda: last_position(place, "market") >= 0, "the commit")

    asyncio.run(run())
    assert versions(place) == 1


class GatedWriter(BronzeWriter):
    """A writer that stands still until its gate opens."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.gate = threading.Event()

    def append(self, frames):
        self.gate.wait()
        super().append(frames)


def gated_sink(writer, place, **options):
    settings = Commit(interval_ms=1, max_bytes=1 << 20)
    return silverfold.pipelines.landing.sink.BronzeSink(
        writer, place, settings, clock=lambda: 0, rng=Random(1), log=LOG, **options
    )


def test_while_the_store_hangs_no_more_than_four_commits_are_taken(place):
    writer = GatedWriter.open(place, "market", token="gated")

    async def run():
        taken = 0
        async with gated_sink(writer, place) as sink:

            async def read():
                nonlocal taken
                for _ in range(100):
                    await sink.land(update(MEBIBYTE))
                    taken += 1

            reading = asyncio.create_task(read())
            _, pending = await asyncio.wait([reading], timeout=0.3)
            held, last = taken, sink.last
            writer.gate.set()
            await reading
        return bool(pending), held, last

    is_pending, held, last = asyncio.run(run())
    assert is_pending
    assert (held, last) == (3, 3)  # the fourth call took its frame and waits
    assert [frame.frame_seq for frame in landed(place)] == list(range(100))


def test_empty_bodies_count_against_the_bound_too(place):
    writer = GatedWriter.open(place, "market", token="gated")

    async def run():
        async with gated_sink(writer, place) as sink:
            landing = asyncio.create_task(sink.land(update(b"", count=1 << 16)))
            _, pending = await asyncio.wait([landing], timeout=0.1)
            writer.gate.set()
        return len(pending)

    assert asyncio.run(run()) == 1


def test_a_caller_cancelled_while_it_waits_for_room_loses_nothing(place):
    writer = GatedWriter.open(place, "market", token="gated")

    async def run():
        async with gated_sink(writer, place) as sink:
            landing = asyncio.create_task(sink.land(update(MEBIBYTE, count=5)))
            await asyncio.wait([landing], timeout=0.05)
            landing.cancel()
            await asyncio.wait([landing])
            writer.gate.set()
        return landing.cancelled()

    assert asyncio.run(run())
    assert len(landed(place)) == 5


def test_a_failing_store_is_tried_again_with_the_same_frames(place, monkeypatch):
    answers = [OSError("disk full"), OSError("disk full"), None]
    write = silverfold.pipelines.landing.writer.write_deltalake

    def write_when_it_works(*args, **kwargs):
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer
        write(*args, **kwargs)

    monkeypatch.setattr(silverfold.pipelines.landing.writer, "write_deltalake", write_when_it_works)

    async def run():
        async with sink_at(place) as sink:
            await sink.land(update(b"one"))
            await sink.land(update(b"two"))
            await sink.flush()

    asyncio.run(run())
    assert answers == []
    assert [frame.body for frame in landed(place)] == [b"one", b"two"]


def test_leaving_gives_up_on_a_dead_store_and_says_how_much_was_held(place, monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("no route to host")

    async def run():
        async with sink_at(place, patience=0.05) as sink:
            monkeypatch.setattr(silverfold.pipelines.landing.writer, "write_deltalake", fail)
            await sink.land(update(count=3))

    with pytest.raises(StoreUnavailable, match="3 received frames could not be landed"):
        asyncio.run(run())


def test_a_sink_whose_feed_was_taken_over_refuses_further_frames(place):
    async def run():
        async with sink_at(place, token="old") as old:
            async with sink_at(place, token="new") as new:
                await new.land(update())
            await old.land(update())
            await old.failed()
            with pytest.raises(Fenced):
                await old.land(update())

    with pytest.raises(Fenced):
        asyncio.run(run())
    assert len(landed(place)) == 1


def test_a_panic_of_the_store_library_reaches_whoever_lands(place, monkeypatch):
    class Panic(BaseException):
        pass

    def panic(*_args, **_kwargs):
        raise Panic

    async def run():
        async with sink_at(place) as sink:
            monkeypatch.setattr(silverfold.pipelines.landing.writer, "write_deltalake", panic)
            await sink.land(update())
            await sink.flush()

    with pytest.raises(Panic):
        asyncio.run(run())


def test_the_table_is_compacted_while_frames_land(place):
    async def run():
        async with sink_at(place, Commit(interval_ms=1, compact_every=5)) as sink:
            for position in range(23):
                await sink.land(update(str(position).encode()))
                await sink.flush()

    asyncio.run(run())
    assert [frame.body for frame in landed(place)] == [str(position).encode() for position in range(23)]
    assert len(open_table(place).file_uris()) < 23


def test_marks_are_logged_when_they_have_landed_with_their_position_and_without_a_body(place):
    logged = []

    class Log:
        def info(self, event, **details):
            logged.append((event, details))

        def warning(self, event, **details):
            logged.append((event, "warning", details))

        def debug(self, event, **details):
            pass

    async def run():
        async with sink_at(place, log=Log()) as sink:
            bad = mark("bad frame", stream="quotes", level="warning", reason="truncated", body="c2VjcmV0")
            await sink.land([*update(), bad, mark("listening", epoch="the source's")])

    asyncio.run(run())
    expected = {"reason": "truncated", "frame_seq": 1, "epoch": 1, "stream": "quotes"}
    assert logged == [
        ("bad frame", "warning", expected),
        ("listening", {"source_epoch": "the source's", "frame_seq": 2, "epoch": 1, "stream": None}),
    ]


def test_of_many_marks_of_one_name_some_are_logged_and_the_rest_counted(place):
    async def run():
        async with sink_at(place, log=structlog.get_logger()) as sink:
            await sink.land([mark("bad notification", number=number) for number in range(50)])

    with capture_logs() as logs:
        asyncio.run(run())
    events = [each["event"] for each in logs if each["log_level"] != "debug"]
    assert events == ["bad notification"] * 20 + ["more of the same have landed"]
    assert next(each["count"] for each in logs if "mark" in each) == 30
