"""The loop of epochs: marks around each, waits between them, and an end that lands everything."""

import asyncio
import gc
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import structlog
from deltalake import CommitProperties, Transaction, write_deltalake
from structlog.testing import capture_logs

from silverfold.conf.errors import (
    ConfigError,
    Fenced,
    RemoteProtocolError,
    SourceRefused,
    SourceUnavailable,
    StoreUnavailable,
)
from silverfold.conf.model import Reconnect, Table
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.landing.sink import BronzeSink
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.connection_log import epoch_marks
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.cuts import app_id
from tests.support.chance import Highest
from tests.support.landing import BY_HAND, LOG, ScriptedConnector, feed, landed, marks, update


@pytest.fixture
def places(warehouse):
    return Places(str(warehouse))


def run(places, *scripts, settings=None, continuity="resync", seed=1, log=LOG):
    """Receive until a script sets the event it is given."""

    async def until_stopped():
        stop = asyncio.Event()
        connector = ScriptedConnector(*(script(stop) for script in scripts), continuity=continuity)
        ours = settings or feed()
        return await receive(ours, connector, places, stop=stop, clock=lambda: 0, rng=Random(seed), log=log)

    return asyncio.run(until_stopped())


def landing(*bodies):
    """A script that lands one update per body and ends in order."""

    def script(_stop):
        async def epoch(sink, _resume):
            for body in bodies:
                await sink.land(update(body))

        return epoch

    return script


def ending(outcome):
    """An epoch that raises an error, or returns a reason."""

    def script(_stop):
        async def epoch(_sink, _resume):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return epoch

    return script


def stopping(stop):
    async def epoch(_sink, _resume):
        stop.set()
        await asyncio.Event().wait()

    return epoch


def outline(places):
    return [(frame.frame_seq, frame.epoch, frame.kind, frame.body[:1]) for frame in landed(places)]


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_receiver_that_cannot_listen_takes_the_feed_from_nobody(places, is_freed):
    async def beside_another():
        other = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        writer = BronzeWriter.open(places.bronze("market"), "market", token="other")
        stop, log = asyncio.Event(), structlog.get_logger()
        connector = ScriptedConnector(stopping(stop))
        connector.address = Address("127.0.0.1", other.sockets[0].getsockname()[1])
        task = asyncio.create_task(
            receive(feed(), connector, places, stop=stop, clock=lambda: 0, rng=Random(1), log=log)
        )
        with capture_logs() as logged:
            while not logged:
                await asyncio.sleep(0.01)
        batch = Batch(writer.last + 1)
        batch.add(update(b"of the other"), 1, 0)
        writer.append(batch.prepare().table)  # not fenced
        other.close()
        await other.wait_closed()
        if not is_freed:
            stop.set()
        return logged[0], await task

    event, last = asyncio.run(beside_another())
    assert (event["event"], "in use" in event["reason"]) == ("cannot listen yet", True)
    assert (last, [each["mark"] for each in marks(places)]) == ((2, ["opened", "closed"]) if is_freed else (None, []))


def test_each_epoch_is_opened_and_closed_by_a_mark(places):
    last = run(places, landing(b"a"), stopping)
    assert last == 4
    assert outline(places) == [
        (0, 1, "mark", b"{"),
        (1, 1, "data", b"a"),
        (2, 1, "mark", b"{"),
        (3, 2, "mark", b"{"),
        (4, 2, "mark", b"{"),
    ]
    assert [details["mark"] for details in marks(places)] == ["opened", "closed", "opened", "closed"]


def test_a_closed_mark_says_why(places):
    run(
        places,
        landing(b"a"),
        ending("the schema is another one"),
        ending(SourceUnavailable("no route")),
        ending(RemoteProtocolError("an end without a begin")),
        stopping,
    )
    assert [(each["error_class"], each["reason"]) for each in marks(places, "closed")] == [
        (None, "the source ended the connection"),
        (None, "the schema is another one"),
        ("SOURCE_UNAVAILABLE", "no route"),
        ("REMOTE_PROTOCOL_ERROR", "an end without a begin"),
        (None, "stopped here"),
    ]


def test_a_stop_during_the_wait_for_the_next_connection_is_the_last_report(places):
    def unavailable(stop):
        async def stop_once_closed():
            while not marks(places, "closed"):
                await asyncio.sleep(0.01)
            stop.set()

        async def epoch(_sink, _resume):
            stopping_later.append(asyncio.create_task(stop_once_closed()))
            raise SourceUnavailable("no route")

        return epoch

    stopping_later = []
    last = run(places, unavailable, settings=feed(reconnect=Reconnect(first=60, longest=60)))
    newest = epoch_marks(places.bronze("market"), 1).of_feed[1]
    assert [each["reason"] for each in marks(places, "closed")] == ["no route", "stopped here"]
    assert (newest.position, newest.details) == (last, {"reason": "stopped here", "error_class": None})


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(file="f", key="k", found=1, allowed="2"),
        SourceRefused(code="401", text="no"),
        ZeroDivisionError("a bug"),
    ],
)
def test_what_cannot_be_tried_again_ends_the_feed_with_everything_landed(places, error):
    with pytest.raises(type(error)):
        run(places, landing(b"a"), ending(error), stopping)
    assert [frame.body for frame in landed(places) if frame.kind == "data"] == [b"a"]
    assert marks(places, "closed")[-1]["reason"] == str(error)


def test_a_stop_lands_what_was_taken_and_not_yet_committed(places):
    def script(stop):
        async def epoch(sink, _resume):
            await sink.land(update(b"a", count=10))
            stop.set()
            await asyncio.Event().wait()

        return epoch

    run(places, script, settings=feed(commit=BY_HAND))
    assert [frame.kind for frame in landed(places)] == ["mark", *["data"] * 10, "mark"]


def test_a_stop_lets_the_receiver_land_what_it_still_holds(places):
    def script(stop):
        async def epoch(sink, _resume):
            stop.set()
            try:
                await asyncio.Event().wait()
            finally:
                await sink.land(update(b"held"))

        return epoch

    run(places, script)
    assert [frame.body for frame in landed(places) if frame.kind == "data"] == [b"held"]


def test_a_stop_while_the_store_is_down_ends_within_the_patience_for_it(places, monkeypatch):
    def script(stop):
        async def epoch(sink, _resume):
            monkeypatch.setattr(BronzeWriter, "append", unavailable)
            await sink.land(update(b"held", count=2))
            stop.set()

        return epoch

    monkeypatch.setattr("silverfold.pipelines.landing.receiving.BronzeSink", partial(BronzeSink, patience=0.2))
    with pytest.raises(StoreUnavailable, match="4 received frames could not be landed"):
        run(places, script, settings=feed(commit=BY_HAND))


def unavailable(*_arguments):
    raise StoreUnavailable("no route to host")


def test_a_cancelled_process_lands_everything_and_closes_the_epoch(places):
    async def cancelled():
        begun = asyncio.Event()

        async def epoch(sink, _resume):
            await sink.land(update(b"a", count=3))
            begun.set()
            await asyncio.Event().wait()

        receiving = asyncio.create_task(
            receive(
                feed(commit=BY_HAND),
                ScriptedConnector(epoch),
                places,
                stop=asyncio.Event(),
                clock=lambda: 0,
                rng=Random(1),
                log=LOG,
            )
        )
        await begun.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        return receiving.cancelled()

    assert asyncio.run(cancelled())
    assert [frame.kind for frame in landed(places)] == ["mark", "data", "data", "data", "mark"]


def test_a_receiver_that_waits_for_its_source_is_stopped_when_its_feed_is_taken_over(places):
    takers = []

    def script(_stop):
        async def epoch(sink, _resume):
            await sink.flush()
            takers.append(await asyncio.to_thread(take_over, places))
            await sink.land(update())
            await asyncio.Event().wait()

        return epoch

    with pytest.raises(Fenced):
        run(places, script)
    assert takers == [2]


def test_a_receiver_that_can_no_longer_hand_over_what_it_holds_is_not_complained_of_beside_the_reason(places, caplog):
    def script(_stop):
        async def epoch(sink, _resume):
            await sink.flush()
            await asyncio.to_thread(take_over, places)
            await sink.land(update())
            try:
                await asyncio.Event().wait()
            finally:
                sink.take(update(b"held"))

        return epoch

    with pytest.raises(Fenced):
        run(places, script)
    gc.collect()
    assert caplog.messages == []


def take_over(places):
    return run(places, stopping, seed=2)


def test_epochs_count_on_over_restarts(places):
    run(places, stopping)
    run(places, stopping)
    assert [frame.epoch for frame in landed(places)] == [1, 1, 2, 2]


def test_a_resuming_source_is_told_the_last_landed_position_of_each_stream(places):
    resumed = []

    def script(stop):
        async def epoch(sink, resume):
            resumed.append(dict(resume.source_positions))
            if len(resumed) == 4:
                stop.set()
            frame = Frame(b"", Kind.DATA, Boundary.WHOLE, "quotes", str(len(resumed)))
            await sink.land([frame, Frame(b"", Kind.DATA, Boundary.WHOLE, "trades")])
            if len(resumed) == 2:
                stop.set()
                await asyncio.Event().wait()

        return epoch

    run(places, script, script, continuity="resume")
    run(places, script, script, continuity="resume")
    assert resumed == [{}, {"quotes": "1"}, {"quotes": "2"}, {"quotes": "3"}]


def test_a_receiver_goes_on_behind_what_silver_has_of_frames_that_bronze_lost(places):
    resumed = []
    note = CommitNote(
        feed="market",
        table="quotes",
        epoch=4,
        first_position=0,
        last_position=9,
        replaced=False,
        updates=1,
        source_position="77",
    )
    write_deltalake(
        places.silver("market", "quotes").url,
        pa.table({"n": [1]}),
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": note.to_json()},
            app_transactions=[Transaction(app_id("market", "quotes"), 9)],
        ),
    )

    def script(stop):
        async def epoch(_sink, resume):
            resumed.append((dict(resume.source_positions), dict(resume.silver_positions)))
            stop.set()
            await asyncio.Event().wait()

        return epoch

    ours = feed(tables={"quotes": Table(source="Quotes")})
    run(places, script, settings=ours, continuity="resume")
    first = [(frame.frame_seq, frame.epoch) for frame in landed(places)]
    run(places, script, settings=ours, continuity="resume")  # nothing of the stream has landed since

    assert resumed == [({}, {"quotes": "77"})] * 2
    lost = {"mark": "frames lost", "level": "warning", "first": 0, "last": 9}
    assert marks(places, "frames lost") == [lost, lost]
    assert first == [(10, 4), (11, 4), (12, 5), (13, 5)]


def test_only_an_epoch_that_brought_a_whole_update_resets_the_wait(places):
    def barren(_stop):
        async def epoch(sink, _resume):
            await sink.land([Frame(b"c", Kind.CONTROL), Frame(b"b", Kind.DATA, Boundary.BEGIN, "quotes")])

        return epoch

    async def until_stopped():
        stop = asyncio.Event()
        connector = ScriptedConnector(*(script(stop) for script in (barren, barren, landing(b"a"), barren, stopping)))
        ours = feed(reconnect=Reconnect(first=0.001, longest=1))
        await receive(ours, connector, places, stop=stop, clock=lambda: 0, rng=Highest(1), log=LOG)

    asyncio.run(until_stopped())
    assert [each.get("next_in") for each in marks(places, "closed")] == [0.001, 0.002, 0.001, 0.002, None]


def test_commits_that_a_power_cut_left_empty_are_told(places):
    run(places, landing(b"a"), stopping)
    before = len(landed(places))
    log = Path(places.bronze("market").url) / "_delta_log"
    newest = sorted(log.glob("*.json"))[-2:]
    for commit in newest:
        commit.write_bytes(b"")
    with capture_logs() as logs:
        for script in (landing(b"b"), landing(b"c")):
            run(places, script, stopping, log=structlog.get_logger())
    warnings = [(each["event"], each["commits"]) for each in logs if each["log_level"] == "warning"]
    assert warnings == [("bronze's newest commits are empty files: what they landed, if anything, is lost", 2)]
    assert before < len(landed(places)), "and it lands on"
