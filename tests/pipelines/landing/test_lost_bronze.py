"""Bronze that lost frames which silver has: no position stands for two frames, and no build goes on as if it did."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import silverfold.pipelines.landing.writer
from silverfold.conf.errors import Fenced, PositionGap, ReplacedBronze
from silverfold.conf.model import CutLimits
from silverfold.connectors.frames import Frame
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import quarantined, skip
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze import last_position
from silverfold.pipelines.landing.bronze_table import each_lost, lost_from, note_lost, retained_from
from silverfold.pipelines.landing.receiving import farthest
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.storage.silver_position import NO_POSITION, SilverPosition, silver_position, silver_positions
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history
from tests.support.bronze_rows import BEGAN, bronze
from tests.support.running import run_once
from tests.support.sqlitecloud.feed import (
    FEED,
    SqliteCloudFeed,
    notified,
    selected,
    snapshot_begins,
    snapshot_ends,
)
from tests.support.sqlitecloud.notices import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOO = described("foo", {"id": "INTEGER", "n": "INT"}, ["id"])
LOG = StreamRules(has_snapshots=False, resync=True, applied=1)
SECOND = 1_000_000


def inserted(number: int) -> Frame:
    head = {"channel": "foo", "type": "TABLE", "pk": ["id"]}
    return notified(head | {"payload": [{"type": "INSERT", "id": number, "n": number}]})


def message(text: str) -> Frame:
    return notified({"channel": "c", "type": "MESSAGE", "payload": text})


def snapshot_of(*numbers: int) -> list[Frame]:
    return [*snapshot_begins(FOO), selected(FOO, [[number, number] for number in numbers]), snapshot_ends(FOO)]


def silver_of(places: Places, tables: Sequence[str]) -> SilverPosition:
    return farthest(places, FEED, silver_positions(places, FEED, tables))


def lose(feed: SqliteCloudFeed, commits: int) -> None:
    """Take the newest commits of bronze away, as a restored backup does."""
    log = Path(feed.places.bronze(FEED).url) / "_delta_log"
    for entry in sorted(log.glob("*.json"))[-commits:]:
        entry.unlink()


@pytest.mark.parametrize(("received", "fits"), [(None, True), (0, True), (1, False)], ids=["unknown", "same", "other"])
def test_a_table_goes_on_only_where_the_frame_at_its_position_is_the_one_it_applied(received, fits):
    at = int(BEGAN.timestamp()) * SECOND + 1 * SECOND
    rules = replace(LOG, received=None if received is None else at + received)
    planner = Planner("market", {"quotes": rules})
    planner.add_frames(bronze("1 quotes data whole", "1 quotes data whole", "1 quotes data whole"))
    if fits:
        assert planner.plan("quotes", CutLimits()).cut is not None
        return
    with pytest.raises(ReplacedBronze, match="is another one at position 1 than the table was built from") as raised:
        planner.plan("quotes", CutLimits())
    assert "`silverfold rebuild market quotes`" in str(raised.value)


def test_what_bronze_lacks_at_its_end_is_named_exactly():
    planner = Planner("market", {"quotes": replace(LOG, applied=1191)}, last=1189)
    with pytest.raises(PositionGap, match="lacks positions 1190 to 1191"):
        planner.plan("quotes", CutLimits())


def test_a_writer_begins_behind_what_silver_has_and_notes_what_is_lost(tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(inserted(1))
    place = feed.places.bronze(FEED)

    writer = BronzeWriter.open(place, FEED, token="next", silver=SilverPosition(7, 5))

    assert (writer.lost, writer.last, writer.epoch, lost_from(place)) == ((2, 7), 7, 5, [(2, 7)])
    again = BronzeWriter.open(place, FEED, token="again", silver=SilverPosition(7, 5))
    assert (again.lost, again.last, retained_from(place, FEED)) == (None, 7, 0)
    assert feed.land(inserted(2)) == 8
    BronzeWriter.open(place, FEED, token="more", silver=SilverPosition(9, 5))
    BronzeWriter.open(place, FEED, token="last", silver=SilverPosition(12, 5))
    assert lost_from(place) == [(2, 7), (9, 12)]


@pytest.mark.parametrize("silver", [NO_POSITION, SilverPosition(5, 1), SilverPosition(9, 1)])
def test_what_a_restored_bronze_lacks_is_lost_though_its_log_records_it(tmp_path: Path, silver: SilverPosition):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(inserted(1))
    retained, place = feed.land(inserted(2)), feed.places.bronze(FEED)
    last = max(feed.land(inserted(number)) for number in range(3, 6))
    table = open_table(place)
    assert table is not None
    table.restore(table.version() - 3)  # Delta keeps what was recorded since

    assert last_position(place, FEED) == retained
    writer = BronzeWriter.open(place, FEED, token="next", silver=silver)
    behind = max(last, silver.position)
    assert (writer.lost, writer.last, lost_from(place)) == ((retained + 1, behind), behind, [(retained + 1, behind)])
    assert feed.land(inserted(6)) == behind + 1
    assert last_position(place, FEED) == behind + 1


def test_a_writer_that_notes_what_is_lost_stops_where_another_lands_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(inserted(1))
    place = feed.places.bronze(FEED)
    running = BronzeWriter.open(place, FEED, token="running")

    def noted_late(table: DeltaTable, first: int, last: int) -> None:
        batch = Batch(running.last + 1)
        batch.add([inserted(2)], 1, feed.received_at)
        running.append(batch.prepare().table)
        note_lost(table, first, last)

    monkeypatch.setattr(silverfold.pipelines.landing.writer, "note_lost", noted_late)
    with pytest.raises(Fenced):
        BronzeWriter.open(place, FEED, token="next", silver=SilverPosition(9, 1))
    assert last_position(place, FEED) == running.last


def test_what_is_lost_twice_was_lost_the_first_time(tmp_path: Path):
    place = Places(str(tmp_path)).bronze(FEED)
    BronzeWriter.open(place, FEED, token="a")
    table = open_table(place)
    for first, last in ((4, 7), (4, 14), (20, 20)):
        note_lost(table, first, last)
    assert (each_lost(place), lost_from(place)) == ([(4, 7), (8, 14), (20, 20)], [(4, 14), (20, 20)])


def test_a_writer_under_which_bronze_lost_frames_says_so(tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(inserted(1))
    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="running")
    for number in range(2):
        batch = Batch(writer.last + 1)
        batch.add([inserted(number)], 1, feed.received_at)
        if number == 1:
            lose(feed, 1)
            writer.refresh()
            with pytest.raises(Fenced, match="lost what was written, start again"):
                writer.append(batch.prepare().table)
        else:
            writer.append(batch.prepare().table)


def test_lost_positions_are_no_gap_and_others_are():
    frames = [bronze("1 quotes data whole"), bronze("2 quotes data whole", start=5)]
    for lost, gap in (([(1, 4)], None), ([], (1, 4)), ([(1, 3)], (1, 4))):
        planner = Planner("market", {"quotes": replace(LOG, applied=-1)}, lost=lost)
        for batch in frames:
            planner.add_frames(batch)
        if gap is None:
            cut = planner.plan("quotes", CutLimits()).cut
            assert cut is not None
            assert cut.begins == (0, 5)
        else:
            with pytest.raises(PositionGap, match="lacks positions 1 to 4"):
                planner.plan("quotes", CutLimits())


def test_a_table_of_other_frames_than_bronze_has_is_refused_and_made_anew(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(*snapshot_of(1, 2))
    feed.land(inserted(3))
    feed.land(inserted(4))
    assert feed.build(spark) == {}
    assert silver_position(feed.places, FEED, "foo") == SilverPosition(6, 1, feed.received_at)
    lose(feed, 2)
    assert "lacks positions 5 to 6" in str(feed.build(spark)["foo"])

    feed.received_at += SECOND
    feed.connect(*snapshot_of(1, 2, 5))
    feed.land(inserted(6))

    assert "REPLACED_BRONZE" in repr(feed.build(spark)["foo"].error_class)
    Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "foo", "a").run()
    assert sorted(row["id"] for row in feed.rows("foo")) == [1, 2, 5, 6]
    assert feed.build(spark) == {}
    assert feed.verify("foo").verdict is Verdict.EQUAL


@pytest.mark.parametrize("all_of_it", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_receiver_that_begins_behind_silver_loses_nothing_more(spark: SparkSession, tmp_path: Path, all_of_it: bool):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(*snapshot_of(1, 2))
    feed.land(inserted(3))
    assert feed.build(spark) == {}
    if all_of_it:
        shutil.rmtree(feed.places.bronze(FEED).url)
    else:
        lose(feed, 1)

    found = silver_of(feed.places, ["foo"])
    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=found)
    feed.epoch = writer.epoch
    feed.connect(*snapshot_of(1, 5))
    feed.land(inserted(6))

    assert feed.build(spark) == {}
    assert sorted(row["id"] for row in feed.rows("foo")) == [1, 5, 6]
    assert feed.verify("foo").verdict is Verdict.EQUAL
    assert silver_of(feed.places, []) == NO_POSITION


LACKS = "lacks positions 7 to 7, which bronze has lost"


@pytest.mark.nightly
def test_a_table_that_lags_takes_what_is_left_and_one_that_cannot_be_made_again_is_not(
    spark: SparkSession, tmp_path: Path
):
    tables = {"foo": {"stored_as_scd_type": 2}, "said": {"channel": "c"}}
    feed = SqliteCloudFeed(tmp_path, tables)
    feed.connect(*snapshot_of(1, 2), message("one"))
    assert feed.build(spark) == {}
    feed.land(inserted(3))
    feed.land(message("two"))
    feed.tables = {"said": tables["said"]}
    assert feed.build(spark) == {}
    feed.tables = tables
    feed.land(inserted(4))  # which no table has taken
    lose(feed, 2)

    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=silver_of(feed.places, tables))
    feed.epoch = writer.epoch
    feed.connect(*snapshot_of(1, 5), message("three"))

    assert feed.build(spark) == {}
    assert sorted(row["id"] for row in feed.rows("foo")) == [1, 5]
    assert sorted(row["payload"] for row in feed.rows("said")) == ["one", "three", "two"]
    assert feed.verify("foo").verdict is Verdict.EQUAL
    found = verify_history(feed.places, CONNECTOR, feed.feed, "foo")
    assert (found.verdict, found.reason) == (Verdict.EQUAL, LACKS), "it had not taken what is lost"
    found = feed.verify("said")
    assert (found.verdict, "nothing to be compared with" in str(found.reason)) == (Verdict.UNKNOWN, True)
    rebuild, place = Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "said", "a"), feed.places.silver(FEED, "said")
    with pytest.raises(PositionGap, match=f"would be lost. To begin anew without, remove {place}"):
        rebuild.run()
    remove_tree(place)  # as told
    assert rebuild.run().updates == 2
    assert sorted(row["payload"] for row in feed.rows("said")) == ["one", "three"]
    found = feed.verify("said")
    assert (found.verdict, found.reason) == (Verdict.EQUAL, LACKS), "to what bronze has"
    assert rebuild.run().updates == 2, "nothing of what is lost is in it any more"


def test_a_skip_is_not_of_a_frame_that_comes_in_the_stead_of_a_lost_one(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(*snapshot_of(1, 2))
    bad = feed.land(
        notified({"channel": "foo", "type": "TABLE", "pk": ["id"], "payload": [{"type": "INSERT", "n": "x"}]})
    )
    assert feed.build(spark).keys() == {"foo"}
    lose(feed, 1)

    found = silver_of(feed.places, ["foo"])
    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=found)

    assert (found.position, writer.lost) == (bad, (bad, bad))


@pytest.mark.parametrize("skipped", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_bad_frame_that_bronze_lost_is_one_that_the_table_lacks(spark: SparkSession, tmp_path: Path, skipped: bool):
    tables = {"said": {"channel": "c"}}
    feed = SqliteCloudFeed(tmp_path, tables)
    feed.connect(message("one"))
    bad = feed.land(message("")._replace(body=b"no notification"))
    assert feed.build(spark).keys() == {"said"}
    (found,) = quarantined(feed.places, FEED, "said")
    if skipped:
        skip(feed.places, FEED, "said", found, now=datetime.now(UTC))
    lose(feed, 1)

    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=silver_of(feed.places, tables))
    feed.epoch = writer.epoch
    now = datetime.fromtimestamp(feed.received_at / SECOND, UTC)
    assert read_status(feed.places, CONNECTOR, feed.feed, now=now).tables[0].fault is None, "what is lost holds nothing"
    feed.connect(message("two"))
    assert feed.build(spark) == {}
    assert feed.build(spark) == {}, "nor does the next process take it for read"

    (status,) = read_status(feed.places, CONNECTOR, feed.feed, now=now).tables
    assert (status.skipped_positions, status.lacks_positions) == ((bad,), ((bad, bad),))
    assert sorted(row["payload"] for row in feed.rows("said")) == ["one", "two"]
    assert feed.verify("said").verdict is Verdict.EQUAL


def test_a_running_build_notices_that_bronze_is_another(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    feed.connect(*snapshot_of(1, 2))
    running = FeedBuild.open(lambda: spark, feed.settings, CONNECTOR, feed.feed)
    assert run_once(running) == {}
    feed.land(inserted(3))
    feed.land(inserted(4))
    running.refresh()
    lose(feed, 2)
    feed.received_at += SECOND
    writer = BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=silver_of(feed.places, ["foo"]))
    feed.epoch = writer.epoch
    feed.connect(*snapshot_of(5, 6))

    step = running.step("foo")

    assert step.error is None
    assert step.applied is None or step.applied.replaced
    assert run_once(running) == {}
    assert sorted(row["id"] for row in feed.rows("foo")) == [5, 6]
    assert feed.verify("foo").verdict is Verdict.EQUAL


def test_a_build_that_missed_what_is_lost_goes_on_once_a_receiver_has_noted_it(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"said": {"channel": "c"}})
    feed.connect(message("one"))
    feed.land(message("two"))
    assert feed.build(spark) == {}
    lose(feed, 1)
    running = FeedBuild.open(lambda: spark, feed.settings, CONNECTOR, feed.feed)
    assert "lacks positions 2 to 2" in str(run_once(running)["said"])

    BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=silver_of(feed.places, ["said"]))
    feed.connect(message("three"))

    assert run_once(running) == {}
    assert sorted(row["payload"] for row in feed.rows("said")) == ["one", "three", "two"]


def test_a_table_that_never_had_what_is_lost_is_rebuilt_and_status_says_what_is_lost(
    spark: SparkSession, tmp_path: Path
):
    feed = SqliteCloudFeed(tmp_path, {"said": {"channel": "c"}})
    feed.connect(message("one"))
    feed.land(message("two"))
    assert feed.build(spark) == {}
    lose(feed, 1)
    now = datetime.fromtimestamp(feed.received_at / SECOND, UTC)
    status = read_status(feed.places, CONNECTOR, feed.feed, now=now)
    assert (status.landed_position, status.tables[0].state) == (1, "stopped")

    BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=silver_of(feed.places, ["said"]))
    feed.tables = {"said": {"channel": "c"}, "foo": {"stored_as_scd_type": 2}}
    feed.connect(message("three"), *snapshot_of(1))
    assert feed.build(spark) == {}

    assert Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "foo", "a").run().begins is None
    status = read_status(feed.places, CONNECTOR, feed.feed, now=now)
    assert status.lost_positions == ((2, 2),)
    assert {table.table: table.lacks_positions for table in status.tables} == {"said": (), "foo": ()}


def test_a_second_loss_does_not_hide_that_a_table_stands_on_another_bronze(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"said": {"channel": "c"}})
    feed.connect(message("one"))
    for number in range(4):
        feed.land(message(str(number)))
    assert feed.build(spark) == {}
    lose(feed, 4)
    feed.received_at += SECOND
    feed.connect(message("other"))  # by a receiver that did not look at silver

    found = silver_of(feed.places, ["said"])
    BronzeWriter.open(feed.places.bronze(FEED), FEED, token="next", silver=found)
    feed.land(message("more"))

    assert feed.build(spark)["said"].error_class == "REPLACED_BRONZE"
    assert Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "said", "a").run().updates > 0
    assert feed.build(spark) == {}
    assert sorted(row["payload"] for row in feed.rows("said")) == ["more", "one", "other"]
