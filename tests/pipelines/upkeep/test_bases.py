"""Bases of tables without snapshots: bronze loses what they have, and everything goes on from there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from silverfold.conf.errors import ApplyError, ExpectationFailed, PositionGap, SilverfoldError, StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.conf.model import Maintain, Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.hstreamdb.connector import CONNECTOR as HSTREAM
from silverfold.connectors.sbe.connector import CONNECTOR as SBE
from silverfold.connectors.sbe.protocol.schemas import read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.landing import Landing as SbeLanding
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR as WEBHOOKS
from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import Landing
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.pipelines.holding.quarantine_log import Hold, hold
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import TableStatus, read_status
from silverfold.pipelines.reading.time_travel import as_of_moment
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.bases import BaseBuild
from silverfold.pipelines.upkeep.beginnings import rebuild_obstacle
from silverfold.pipelines.upkeep.maintain import Done, Maintenance
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.upkeep.retention import plan_retention
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_history, verify_table
from tests.connectors.hstreamdb.test_build import SHOP as ORDERS
from tests.connectors.hstreamdb.test_build import batch as record
from tests.connectors.hstreamdb.test_build import deleted, upsert
from tests.connectors.sbe.test_build import BOOK, book, entry, trade
from tests.support.building_once import all_rows, build_once
from tests.support.commits import dying_at_commit
from tests.support.deaths import Died
from tests.support.sbe.feed import options as sbe_options
from tests.support.sbe.feed import table as sbe_table
from tests.support.sqlitecloud.webhooks import feed as webhook_feed
from tests.support.sqlitecloud.webhooks import table as webhook_table
from tests.support.sqlitecloud.webhooks import webhook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
FIRST_DAY = datetime(2023, 11, 14, tzinfo=UTC)


@dataclass
class Days:
    """A feed that lands frames once a day, and is built and maintained a day later; ``bronze_days`` is one."""

    spark: SparkSession
    warehouse: Path
    connector: Connector
    feed: Feed
    today: datetime = FIRST_DAY
    _epoch: int = field(init=False, default=0)

    @property
    def places(self) -> Places:
        return Places(str(self.warehouse))

    @property
    def settings(self) -> Settings:
        local = load_settings(None, "local", {})
        return local.model_copy(update={"warehouse": str(self.warehouse), "maintain": Maintain(bronze_days=1)})

    @property
    def floor(self) -> int:
        return retained_from(self.places.bronze(self.feed.name), self.feed.name)

    def land(self, *frames: Frame) -> int:
        """Land an epoch, and let a day pass; return the last position."""
        self._epoch += 1
        writer = BronzeWriter.open(self.places.bronze(self.feed.name), self.feed.name, token="test")
        batch = Batch(writer.last + 1)
        batch.add([mark("opened"), *frames], self._epoch, int(self.today.timestamp() * 1_000_000))
        writer.append(batch.prepare().table)
        self.today += DAY
        return writer.last

    def faults(self) -> dict[str, SilverfoldError]:
        return build_once(self.spark, self.warehouse, self.connector, self.feed)

    def build(self) -> None:
        assert self.faults() == {}

    def maintain(self, *, dry_run: bool = False) -> list[Done]:
        now = self.today - timedelta(hours=1)  # what landed last is too young to go
        return list(Maintenance(self.spark, self.settings, self.connector, self.feed, now, dry_run).run())

    def drop(self) -> None:
        """Begin to maintain: make the bases, and drop what they have."""
        now, bronze = self.today - timedelta(hours=1), f"bronze/{self.feed.name}"
        round_of_it = Maintenance(self.spark, self.settings, self.connector, self.feed, now).run()
        assert next(done for done in round_of_it if done.table == bronze).result.startswith("dropped frames")

    def rebuild(self, table: str) -> Rebuilt:
        return Rebuild(self.spark, self.settings, self.connector, self.feed, table, "a").run()

    def remove(self, table: str) -> None:
        shutil.rmtree(self.places.silver(self.feed.name, table).url)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows = all_rows(open_table(self.places.silver(self.feed.name, table)))
        return sorted(rows, key=lambda row: str(list(row.values())))

    def verify(self, table: str) -> TableVerification:
        return verify_table(self.places, self.connector, self.feed, table)

    def verify_history(self, table: str) -> TableVerification:
        return verify_history(self.places, self.connector, self.feed, table)

    def status(self) -> list[TableStatus]:
        return list(read_status(self.places, self.connector, self.feed, now=self.today).tables)


def webhooks(feed: Feed) -> Callable[..., list[Frame]]:
    """Return a function from bodies to frames, of one receiver that announces each column once."""
    landing = Landing([WEBHOOKS.stream(feed, name) for name in feed.tables])
    return lambda *bodies: [frame for body in bodies for frame in landing.frames(body)]


@pytest.mark.nightly
def test_webhooks_go_on_are_verified_and_rebuilt_from_their_base(spark: SparkSession, warehouse: Path):
    types = {"AlbumId": "bigint", "Price": "decimal(6, 2)"}
    feed = webhook_feed(tables={"albums": webhook_table(types=types, stored_as_scd_type=2)})
    days, frames = Days(spark, warehouse, WEBHOOKS, feed), webhooks(feed)
    first = days.land(
        *frames(
            webhook("insert", AlbumId=1, Title="a", Price=1),
            webhook("insert", AlbumId=2, Title="b"),
            webhook("update", AlbumId=1, Label="x"),
            webhook("insert", AlbumId=3),
            webhook("delete", AlbumId=3),
        )
    )
    days.build()
    days.maintain()
    young = days.floor
    second = days.land(*frames(webhook("update", AlbumId=2, Label="y"), webhook("delete", AlbumId=1)))
    days.build()

    done = days.maintain()

    assert [each for each in done if each.failed] == []
    assert done[0] == Done(table="_silverfold/shop/bases/albums", result=f"stands at position {first}")
    assert done[1].result == f"dropped frames 0 to {first}: frames are kept since 2023-11-14 23:00 UTC"
    assert (young, days.floor, second) == (0, first + 1, first + 3)
    built = days.verify("albums")
    assert (built.verdict, built.base_position, built.reason) == (
        Verdict.EQUAL,
        first,
        f"begins with its base at position {first}, what landed before was dropped",
    )
    assert (days.verify_history("albums").verdict, days.verify_history("albums").found_rows) == (Verdict.EQUAL, 5)
    (status,) = days.status()
    assert (status.state.value, status.base_position, status.begins_at_position) == ("synced", first, None)
    rows = days.rows("albums")
    rebuilt = days.rebuild("albums")
    assert (rebuilt.base, days.rows("albums")) == (first, rows)
    days.land(*frames(webhook("update", AlbumId=2, Label="z"), webhook("insert", AlbumId=4, Title="d")))
    days.build()
    assert {days.verify("albums").verdict, days.verify_history("albums").verdict} == {Verdict.EQUAL}
    days.remove("albums")
    (fault,) = days.faults().values()
    assert str(fault).endswith(
        f"lacks positions 0 to {first}: `silverfold rebuild shop albums` makes the table anew from its base "
        f"at position {first}"
    )
    rebuilt = days.rebuild("albums")
    assert (rebuilt.base, days.verify("albums").verdict) == (first, Verdict.EQUAL)


@pytest.mark.nightly
def test_a_rebuild_judges_the_rows_of_the_base_by_the_rules_of_today(spark: SparkSession, warehouse: Path):
    """By day a base is judged by a rule that none may fail, where one that cannot serve is named."""

    def feed(condition: str) -> Feed:
        rules = {"priced": {"condition": condition, "action": "quarantine"}}
        types = {"AlbumId": "bigint", "Price": "bigint", "Label": "string"}
        return webhook_feed(tables={"albums": webhook_table(types=types, expect=rules)})

    days = Days(spark, warehouse, WEBHOOKS, feed("Price > 0"))
    frames = webhooks(days.feed)
    priced = ((1, 5), (2, -5), (3, 20))
    days.land(*frames(*(webhook("insert", AlbumId=number, Price=price) for number, price in priced)))
    days.build()
    days.land(*frames(webhook("update", AlbumId=3, Label="x"), webhook("insert", AlbumId=4, Price=30)))
    days.build()
    days.maintain()
    assert days.floor > 0

    days.feed = feed("Price > 10 AND coalesce(Label, '') <> 'y'")
    days.rebuild("albums")
    assert [row["AlbumId"] for row in days.rows("albums")] == [3, 4]
    days.feed = feed("Price > -100")
    days.rebuild("albums")
    assert [row["AlbumId"] for row in days.rows("albums")] == [1, 2, 3, 4]
    assert days.verify("albums").verdict is Verdict.EQUAL


def test_a_table_without_its_base_or_a_part_of_it_says_how_to_begin_anew(spark: SparkSession, warehouse: Path):
    types = {"AlbumId": "bigint"}
    feed = webhook_feed(tables={"albums": webhook_table(types=types, stored_as_scd_type=2)})
    days, frames = Days(spark, warehouse, WEBHOOKS, feed), webhooks(feed)
    for number in range(2):
        days.land(*frames(webhook("insert", AlbumId=number)))
        days.build()
    days.maintain()
    base, part = days.places.base("albums").own("shop"), days.places.base("albums").history("shop", "albums")
    silver, history = days.places.silver("shop", "albums"), days.places.history("shop", "albums")
    shutil.rmtree(part.url)
    advice = f"to begin anew without what was dropped, remove {silver}, {history}, {base}"
    for found in (days.verify("albums"), days.verify_history("albums")):
        assert (found.verdict, str(found.reason).endswith(advice)) == (Verdict.UNKNOWN, True)
    with pytest.raises(ApplyError, match=re.escape(f"the rows of {part} are gone: put that back; or, {advice}")):
        days.rebuild("albums")
    days.feed = webhook_feed(tables={"albums": webhook_table(types=types)})
    days.rebuild("albums")
    assert [row["AlbumId"] for row in days.rows("albums")] == [0, 1]
    days.feed = feed
    shutil.rmtree(base.url)
    assert days.verify("albums").reason.endswith("`silverfold rebuild shop albums` says how to begin anew")
    with pytest.raises(PositionGap, match=re.escape(f"with what is left, remove {silver}, {history}, {base}")):
        days.rebuild("albums")
    for place in (silver, history):
        shutil.rmtree(place.url)
    days.build()
    assert [row["AlbumId"] for row in days.rows("albums")] == [1]
    assert {days.verify("albums").verdict, days.verify_history("albums").verdict} == {Verdict.EQUAL}


def test_a_base_that_cannot_serve_is_named_with_the_way_on(spark: SparkSession, warehouse: Path):
    def feed(insert_absent: str, condition: str = "AlbumId >= 0", action: str = "quarantine") -> Feed:
        rules = {"natural": {"condition": condition, "action": action}}
        made = webhook_feed(tables={"albums": webhook_table(types={"AlbumId": "bigint"}, expect=rules)})
        return replace(made, options=made.options.model_copy(update={"insert_absent": insert_absent}))

    days = Days(spark, warehouse, WEBHOOKS, feed("null"))
    frames = webhooks(days.feed)
    for number in range(2):
        days.land(*frames(webhook("insert", AlbumId=number), webhook("insert", AlbumId=-1 - number)))
        days.build()
    base, part = days.places.base("albums").own("shop"), days.places.base("albums").side_table("shop", "albums")
    BaseBuild(spark, days.settings, WEBHOOKS, days.feed, "albums").advance(4)
    shutil.rmtree(part.url)  # bronze is whole, and makes another base
    assert [done for done in days.maintain() if done.failed] == []
    assert (days.floor > 0, days.verify("albums").verdict) == (True, Verdict.EQUAL)

    with pytest.raises(ExpectationFailed, match="2 rows of the base"):
        Rebuild(spark, days.settings, WEBHOOKS, feed("null", "AlbumId > 0", "fail"), "albums", "a").run()
    sound = rebuild_obstacle(days.places, WEBHOOKS, days.feed, "albums")
    other = rebuild_obstacle(days.places, WEBHOOKS, feed("keep"), "albums")
    newest = max(Path(days.places.base("albums").silver("shop", "albums").url).glob("_delta_log/*.json"))
    whole = newest.read_bytes()
    newest.write_bytes(b"")
    emptied = rebuild_obstacle(days.places, WEBHOOKS, days.feed, "albums")
    newest.write_bytes(whole)
    Path(part.url).rename(warehouse / "moved")
    lacking = rebuild_obstacle(days.places, WEBHOOKS, days.feed, "albums")
    (not_advanced,) = (done for done in days.maintain() if done.failed)
    unverified = days.verify("albums")
    needed = plan_retention(days.places, WEBHOOKS, days.feed, keep_since=days.today).reasons
    (warehouse / "moved").rename(part.url)
    drift = Hold(position=9, update_position=9, error_class="SCHEMA_DRIFT", reason="other columns", found_at=FIRST_DAY)
    hold(days.places, "shop", "albums", drift)
    drifted = rebuild_obstacle(days.places, WEBHOOKS, days.feed, "albums")
    (file, *_) = Path(days.places.base("albums").silver("shop", "albums").url).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreUnavailable) as damaged:
        days.rebuild("albums")
    days.land(*frames(webhook("insert", AlbumId=7)))
    days.build()
    damaged_too = next(done for done in days.maintain() if done.failed)
    file.unlink()
    with pytest.raises(StoreUnavailable) as gone:
        days.rebuild("albums")

    assert (sound, drifted) == (None, "other columns")
    assert emptied is not None
    assert f"commit {int(newest.stem)} of {base}/table is an empty file, as a power cut leaves" in emptied
    assert other is not None
    assert other.startswith("bronze has not what its base is made of, and insert_absent is keep")
    anew = f"to begin anew without what was dropped, remove {days.places.silver('shop', 'albums')}, {base}"
    assert other.endswith(f"put that back; or, {anew}")
    assert lacking is not None
    assert lacking.endswith(f"and the rows of {part} are gone: put that back; or, {anew}")
    assert not_advanced.result == f"left for the next run: albums: {lacking}"
    assert (unverified.verdict, str(unverified.reason).endswith(lacking)) == (Verdict.UNKNOWN, True)
    assert needed == ("albums has no snapshots: it needs every frame",)
    way_on = "else the folder of the base can be removed, README says what is lost then"
    for message in (str(damaged.value), damaged_too.result):
        assert f"{base}/table: Parquet file {file.name}: " in message
        assert message.endswith(f"if it stays so, a file is damaged: put it back; {way_on}")
    assert f"{file} not found; as long as it is gone, put it back; {way_on}" in str(gone.value)


def sbe_frames(*bodies: bytes, schema_is_new: bool) -> list[Frame]:
    """Return the frames of an epoch in which messages come; the schema lands when it is new, and never again."""
    read, framing = read_schema("builtin"), FRAMINGS["sofh"]
    schema = read.load()
    landing = SbeLanding(schema, Session(schema, framing), has_positions=False, reported=set())
    octets = FrameWriter(framing, byte_order=schema.byte_order).write(bodies)
    begun = landing.begin(read.text, None if schema_is_new else read.text)
    return [*begun, *landing.receive(octets), *landing.receive_eof()]


@pytest.mark.nightly
def test_appended_and_keyed_messages_of_sbe_go_on_from_their_bases(spark: SparkSession, warehouse: Path):
    tables = {"trades": sbe_table(template="Trade"), "book": sbe_table(**BOOK)}
    feed = Feed("stream", "sbe", "127.0.0.1:1", sbe_options(), tables)
    days = Days(spark, warehouse, SBE, feed)
    first = [trade(1), book(entry(0, "New", 5), entry(1, "New", 6)), trade(2)]
    last = days.land(*sbe_frames(*first, schema_is_new=True))
    days.build()
    days.land(*sbe_frames(trade(3), book(entry(0, "Delete", 0), entry(1, "Change", 7)), schema_is_new=False))
    days.build()

    done = days.maintain()

    assert [each for each in done if each.failed] == []
    assert days.floor == last + 1
    assert [(each.table, each.base_position) for each in days.status()] == [("trades", last), ("book", last - 1)]
    before = [days.rows(name) for name in tables]
    assert {days.verify(name).verdict for name in tables} == {Verdict.EQUAL}
    assert [days.rebuild(name).base for name in tables] == [last, last - 1]
    assert [days.rows(name) for name in tables] == before
    days.land(*sbe_frames(trade(4), schema_is_new=False))
    days.build()
    days.maintain()
    end = days.land(*sbe_frames(trade(5), schema_is_new=False))
    days.build()
    days.maintain()
    assert (days.floor > last + 1, days.status()[1].base_position) == (True, days.status()[1].applied_position)
    assert {days.verify(name).verdict for name in tables} == {Verdict.EQUAL}
    assert days.status()[0].applied_position == end
    assert as_of_moment(days.places, SBE, feed, datetime.now(UTC)).position == end


@pytest.mark.nightly
def test_late_and_repeated_records_of_hstreamdb_stay_behind_their_base(spark: SparkSession, warehouse: Path):
    """By day the bases of webhooks are built above, and `tests/connectors/hstreamdb/test_build.py` has such records."""
    days = Days(spark, warehouse, HSTREAM, ORDERS)
    days.land(record(3, upsert(1, "a"), upsert(2, "b"), upsert(3, "c")), record(4, deleted(2), upsert(1, "new")))
    days.build()
    late = record(2, upsert(1, "late"), upsert(2, "late"), upsert(4, "d"))
    days.land(late, record(4, deleted(2), upsert(1, "new")), record(5, upsert(3, "last"), deleted(1)))
    days.build()

    days.maintain()

    rows = [(row["id"], row["name"]) for row in days.rows("orders")]
    assert (days.floor, rows) == (3, [(3, "last"), (4, "d")])
    assert (days.verify("orders").verdict, days.verify("orders").base_position) == (Verdict.EQUAL, 2)
    assert days.rebuild("orders").base == 2
    assert [(row["id"], row["name"]) for row in days.rows("orders")] == rows
    days.land(record(1, upsert(1, "again"), upsert(5, "e")))
    days.build()
    assert ([row["id"] for row in days.rows("orders")], days.verify("orders").verdict) == ([3, 4, 5], Verdict.EQUAL)


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_commit_leaves_a_base_that_goes_on(spark: SparkSession, warehouse: Path, after: bool):
    types = {"AlbumId": "bigint"}
    feed = webhook_feed(tables={"albums": webhook_table(types=types, stored_as_scd_type=2)})
    days, frames = Days(spark, warehouse, WEBHOOKS, feed), webhooks(feed)
    days.land(*frames(webhook("insert", AlbumId=1), webhook("insert", AlbumId=2, Title="b")))
    days.build()
    commit, died = 0, True
    while died:
        days.land(*frames(webhook("update", AlbumId=2, Title=str(commit)), webhook("insert", AlbumId=10 + commit)))
        days.build()
        try:
            with dying_at_commit(commit, after=after):
                days.drop()
            died = False
        except Died:
            commit += 1
        assert {days.verify("albums").verdict, days.verify_history("albums").verdict} == {Verdict.EQUAL}, commit

    assert commit > 4
    assert days.rebuild("albums").base == days.status()[0].base_position
    assert {days.verify("albums").verdict, days.verify_history("albums").verdict} == {Verdict.EQUAL}
