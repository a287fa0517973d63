"""A base that is gone, damaged, or of other settings is named, with the way on."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from silverfold.conf.errors import ApplyError, ExpectationFailed, PositionGap, StoreUnavailable
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR as WEBHOOKS
from silverfold.pipelines.holding.quarantine_log import Hold, hold
from silverfold.pipelines.places import Place
from silverfold.pipelines.upkeep.bases import BaseBuild
from silverfold.pipelines.upkeep.beginnings import rebuild_obstacle
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.upkeep.retention import plan_retention
from silverfold.pipelines.verifying.verify import Verdict
from tests.support.days import FIRST_DAY, Days, webhooks
from tests.support.sqlitecloud.webhooks import feed as webhook_feed
from tests.support.sqlitecloud.webhooks import table as webhook_table
from tests.support.sqlitecloud.webhooks import webhook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_a_table_of_which_nothing_was_dropped_is_verified_and_rebuilt_as_before(spark: SparkSession, warehouse: Path):
    """Another one of its feed holds, so frames before the first of it go, and none of it."""
    types = {"AlbumId": "bigint"}
    tables = {name: webhook_table(source=name, types=types) for name in ("albums", "artists")}
    days = Days(spark, warehouse, WEBHOOKS, webhook_feed(tables=tables))
    frames = webhooks(days.feed)
    last = days.land(*frames(webhook("insert", AlbumId=1)))
    days.build()
    days.land(*frames(webhook("insert", AlbumId="no number"), webhook("insert", name="artists", AlbumId=2)))
    assert list(days.faults()) == ["albums"]
    days.land()
    days.drop()
    assert days.floor > last

    assert days.verify("artists").verdict == Verdict.EQUAL
    days.rebuild("artists")
    assert (days.verify("artists").verdict, [row["AlbumId"] for row in days.rows("artists")]) == (Verdict.EQUAL, [2])


def ruled_feed(insert_absent: str = "null", condition: str = "AlbumId >= 0", action: str = "quarantine") -> Feed:
    rules = {"natural": {"condition": condition, "action": action}}
    made = webhook_feed(tables={"albums": webhook_table(types={"AlbumId": "bigint"}, expect=rules)})
    return replace(made, options=made.options.model_copy(update={"insert_absent": insert_absent}))


@pytest.fixture(scope="module")
def based_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Days:
    """Two days, of whose frames the base alone has the first. It was made twice: a part of the first one was gone."""
    days = Days(spark, tmp_path_factory.mktemp("based"), WEBHOOKS, ruled_feed())
    frames = webhooks(days.feed)
    for number in range(2):
        days.land(*frames(webhook("insert", AlbumId=number), webhook("insert", AlbumId=-1 - number)))
        days.build()
    BaseBuild(spark, days.settings, WEBHOOKS, days.feed, "albums").advance(4)
    shutil.rmtree(side_table_of_base(days).url)  # bronze is whole, and makes another base
    assert [done for done in days.maintain() if done.failed] == []
    return days


@pytest.fixture
def days(based_days: Days, warehouse: Path) -> Days:
    return based_days.copied_to(warehouse)


def base_of(days: Days) -> Place:
    return days.places.base("albums").own("shop")


def side_table_of_base(days: Days) -> Place:
    return days.places.base("albums").side_table("shop", "albums")


def test_why_a_base_cannot_serve_is_named_with_the_way_on(days: Days, warehouse: Path):
    base, part = base_of(days), side_table_of_base(days)
    assert (days.floor > 0, days.verify("albums").verdict) == (True, Verdict.EQUAL)

    with pytest.raises(ExpectationFailed, match="2 rows of the base"):
        Rebuild(days.spark, days.settings, WEBHOOKS, ruled_feed("null", "AlbumId > 0", "fail"), "albums", "a").run()
    sound = rebuild_obstacle(days.places, WEBHOOKS, days.feed, "albums")
    other = rebuild_obstacle(days.places, WEBHOOKS, ruled_feed("keep"), "albums")
    albums = days.feed.tables["albums"].model_copy(update={"stored_as_scd_type": 2})
    versions = replace(days.feed, tables={**days.feed.tables, "albums": albums})
    without = rebuild_obstacle(days.places, WEBHOOKS, versions, "albums")
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

    assert (sound, drifted) == (None, "other columns")
    assert emptied is not None
    assert f"commit {int(newest.stem)} of {base}/table is an empty file, as a power cut leaves" in emptied
    assert other is not None
    assert other.startswith("bronze has not what its base is made of, and insert_absent is keep")
    anew = f"to begin anew without what was dropped, remove {days.places.silver('shop', 'albums')}, {base}"
    assert other.endswith(f"put that back; or, {anew}")
    assert without is not None
    assert "it was made without a history: put that back; or, to begin anew" in without
    assert lacking is not None
    assert lacking.endswith(f"and the rows of {part} are gone: put that back; or, {anew}")
    assert not_advanced.result == f"left for the next run: albums: {lacking}"
    assert (unverified.verdict, str(unverified.reason).endswith(lacking)) == (Verdict.UNKNOWN, True)
    assert needed == ("albums has no snapshots: it needs every frame",)


def test_a_damaged_file_of_a_base_is_named_with_the_way_on(days: Days):
    base = base_of(days)
    (file, *_) = Path(days.places.base("albums").silver("shop", "albums").url).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreUnavailable) as damaged:
        days.rebuild("albums")
    days.land(*webhooks(days.feed)(webhook("insert", AlbumId=7)))
    days.build()
    damaged_too = next(done for done in days.maintain() if done.failed)
    file.unlink()
    with pytest.raises(StoreUnavailable) as gone:
        days.rebuild("albums")

    way_on = "else the folder of the base can be removed, README says what is lost then"
    for message in (str(damaged.value), damaged_too.result):
        assert f"{base}/table: Parquet file {file.name}: " in message
        assert message.endswith(f"if it stays so, a file is damaged: put it back; {way_on}")
    assert f"{file} not found; as long as it is gone, put it back; {way_on}" in str(gone.value)
