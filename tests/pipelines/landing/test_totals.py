"""What a receiver counts for whoever watches its process."""

import asyncio
from pathlib import Path

import pytest

import silverfold.pipelines.landing.sink
from silverfold.conf.errors import StoreUnavailable
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.pipelines.landing.totals import LandingTotals
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place
from tests.support.landing import AT_ONCE, BY_HAND, sink_at, update

BEGIN = Frame(b"", Kind.SNAPSHOT, Boundary.BEGIN, "quotes")
END = Frame(b"", Kind.SNAPSHOT, Boundary.END, "quotes")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "bronze/market"))


def run_at(place, script, settings=BY_HAND, **options):
    """Run a script with a sink, in an open epoch; return its totals."""

    async def run():
        async with sink_at(place, settings, **options) as sink:
            sink.totals.is_open = True
            await script(sink)
        return sink.totals

    return asyncio.run(run())


def test_frames_and_bytes_are_those_of_the_source_while_marks_only_take_memory(place):
    async def script(sink):
        sink.take([mark("subscribed")])
        assert (sink.totals.frames, sink.totals.received_at) == (0, None)
        sink.take([*update(b"12345", count=2), mark("progress", parts={})])
        assert (sink.totals.frames, sink.totals.bytes, sink.totals.received_at) == (2, 10, 1)
        assert sink.totals.held_bytes > 600

    totals = run_at(place, script)

    assert (totals.epochs, totals.commits, totals.commit_failures, totals.held_bytes) == (1, 1, 0, 0)
    assert totals.commit_seconds > 0


def test_marks_between_frames_cost_no_further_looks_at_all_frames(place):
    class Counted(list):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    few, many = (Counted([mark("unknown template"), *update()] * times) for times in (1, 50))

    async def script(sink):
        sink.take(few)
        sink.take(many)

    assert run_at(place, script).frames == 51
    assert few.looks == many.looks


def test_a_failed_commit_is_counted_and_its_frames_are_held(place, monkeypatch):
    append, failures = BronzeWriter.append, iter([True, True])

    def fail_twice(writer, frames):
        if next(failures, False):
            raise StoreUnavailable("not now")
        append(writer, frames)

    monkeypatch.setattr(BronzeWriter, "append", fail_twice)
    monkeypatch.setattr(silverfold.pipelines.landing.sink, "_LONGEST_RETRY", 0.001)

    async def script(sink):
        sink.take(update(b"12345"))
        await sink.flush()

    totals = run_at(place, script, AT_ONCE)

    assert (totals.commits, totals.commit_failures, totals.held_bytes) == (1, 2, 0)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([BEGIN], True),
        ([mark("snapshot begin", stream="quotes")._replace(boundary=Boundary.BEGIN)], True),
        ([BEGIN, *update()], True),
        ([BEGIN, END], False),
        ([Frame(b"", Kind.DATA, Boundary.BEGIN, "quotes")], False),
        ([BEGIN._replace(stream="another")], False),
    ],
)
def test_a_snapshot_runs_from_its_first_frame_to_its_last(place, frames, expected):
    async def script(sink):
        sink.take(frames)

    assert run_at(place, script, totals=LandingTotals(snapshots={"quotes": False})).snapshots == {"quotes": expected}


def test_the_end_of_an_epoch_ends_the_connection_and_its_snapshots(place):
    async def script(sink):
        assert not sink.totals.is_connected
        sink.take([BEGIN])
        assert sink.totals.is_connected
        sink.totals.end_epoch()
        sink.take([mark("closed")])

    totals = run_at(place, script, totals=LandingTotals(snapshots={"quotes": False}))

    assert (totals.is_connected, totals.snapshots) == (False, {"quotes": False})
