"""Webhooks that were posted become silver tables: partial updates, new columns, bad ones, and what verifies agrees."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from silverfold.conf.errors import SilverfoldError, UndecodableFrame
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build, CutLimits
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import mark
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import Landing
from silverfold.connectors.sqlitecloud_webhooks.server.orders import DATABASE
from silverfold.connectors.sqlitecloud_webhooks.server.source import WebhookSource
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import Hold, quarantined, skip
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building_once import all_rows, build_once
from tests.support.commits import dying_at_commit
from tests.support.deaths import Died
from tests.support.running import run_once
from tests.support.sqlitecloud.webhooks import FEED, feed, free_port, table, webhook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RULE = {"small": {"condition": "AlbumId < 100", "action": "quarantine"}}


def land(places: Places, shop: Feed, *bodies: bytes, epoch: int = 1) -> int:
    """Land an epoch of bodies as a receiver that starts anew does; return the last position."""
    landing = Landing([CONNECTOR.stream(shop, name) for name in shop.tables])
    writer = BronzeWriter.open(places.bronze(FEED), FEED, token="test")
    batch = Batch(writer.last + 1)
    batch.add([mark("opened"), *(frame for body in bodies for frame in landing.frames(body))], epoch, 1_700_000_000)
    writer.append(batch.prepare().table)
    return writer.last


def build(spark: SparkSession, places: Places, shop: Feed) -> Mapping[str, SilverfoldError]:
    """Apply all that has landed, as a process of its own would; return what holds which table."""
    return build_once(spark, Path(places.warehouse), CONNECTOR, shop)


def started(spark: SparkSession, places: Places, shop: Feed, *, max_frames: int = 200_000) -> FeedBuild:
    """Return the build of a process that starts now, whose cuts have so many frames at most."""
    changed = {"warehouse": places.warehouse, "build": Build(cut=CutLimits(max_frames=max_frames))}
    settings = load_settings(None, "local", {}).model_copy(update=changed)
    return FeedBuild.open(lambda: spark, settings, CONNECTOR, shop)


def silver(places: Places, name: str) -> list[dict[str, Any]]:
    """Return a silver table's rows without positions, by key, read by delta-rs."""
    rows = all_rows(open_table(places.silver(FEED, name)))
    rows = [{column: row[column] for column in row if column != "_position"} for row in rows]
    return sorted(rows, key=lambda row: next(iter(row.values())))


def test_silver_follows_what_is_posted_and_gains_columns_as_they_come_up(spark: SparkSession, warehouse: Path) -> None:
    places, shop = Places(str(warehouse)), feed()
    first = [
        webhook("insert", AlbumId=1),
        webhook("insert", AlbumId=2, Title="b", Price=2.5, Live=0),
        webhook("update", AlbumId=1, Title="a"),
        webhook("update", AlbumId=3, Price="3"),
        webhook("insert", AlbumId=4, Title="gone"),
        webhook("delete", AlbumId=4),
        webhook("delete", name="artists", ArtistId=1),
    ]
    land(places, shop, *first)
    assert build(spark, places, shop) == {}
    assert silver(places, "albums") == [
        {"AlbumId": 1, "Title": "a", "Price": None, "Live": None},
        {"AlbumId": 2, "Title": "b", "Price": Decimal("2.50"), "Live": False},
        {"AlbumId": 3, "Title": None, "Price": Decimal("3.00"), "Live": None},
    ]
    second = [
        webhook("update", AlbumId=2, Label=7),
        first[1],  # comes twice: nothing newer stays
        webhook("update", AlbumId=1, Title=None, Live=1),
        webhook("update", AlbumId=3, label="x", Price=None),
    ]
    land(places, shop, *second, epoch=2)
    assert build(spark, places, shop) == {}
    assert silver(places, "albums") == [
        {"AlbumId": 1, "Title": None, "Price": None, "Live": True, "Label": None},
        {"AlbumId": 2, "Title": "b", "Price": Decimal("2.50"), "Live": False, "Label": None},
        {"AlbumId": 3, "Title": None, "Price": None, "Live": None, "Label": "x"},
    ]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("commit", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "settings",
    [{}, *(pytest.param(s, marks=pytest.mark.nightly) for s in ({"stored_as_scd_type": 2}, {"expect": RULE}))],
)
def test_after_a_death_smaller_cuts_that_lack_a_new_column_go_on(
    spark: SparkSession, warehouse: Path, settings: dict[str, Any], commit: int, built: bool
) -> None:
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(types={"AlbumId": "bigint"}, **settings)})
    land(places, shop, webhook("insert", AlbumId=1, Title="a"))
    if built:
        assert build(spark, places, shop) == {}
    land(places, shop, *(webhook("insert", AlbumId=k) for k in (2, 3)), webhook("update", AlbumId=1, Label="x"))
    with pytest.raises(Died), dying_at_commit(commit, after=True):
        run_once(started(spark, places, shop))

    assert run_once(started(spark, places, shop, max_frames=1)) == {}
    assert silver(places, "albums") == [
        {"AlbumId": 1, "Title": "a", "Label": "x"},
        {"AlbumId": 2, "Title": None, "Label": None},
        {"AlbumId": 3, "Title": None, "Label": None},
    ]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


@pytest.mark.nightly
@pytest.mark.parametrize("commit", [0, 1, 2])
def test_a_type_that_was_set_wider_for_a_cut_that_died_can_be_set_back(
    spark: SparkSession, warehouse: Path, commit: int
) -> None:
    def shop(kind: str) -> Feed:
        types = {"AlbumId": "bigint", "Price": kind}
        return feed(tables={"albums": table(types=types, stored_as_scd_type=2)})

    places, narrow = Places(str(warehouse)), shop("decimal(8, 2)")
    land(places, narrow, webhook("insert", AlbumId=1, Price=1))
    assert build(spark, places, narrow) == {}
    land(places, narrow, webhook("insert", AlbumId=2), webhook("update", AlbumId=1, Label="x"))
    with pytest.raises(Died), dying_at_commit(commit, after=True):
        run_once(started(spark, places, shop("decimal(20, 3)")))

    assert run_once(started(spark, places, narrow, max_frames=1)) == {}
    assert [(row["AlbumId"], row["Label"]) for row in silver(places, "albums")] == [(1, "x"), (2, None)]
    assert verify_history(places, CONNECTOR, narrow, "albums").verdict is Verdict.EQUAL


def test_a_builder_that_has_seen_less_than_another_is_not_held_by_columns_that_came_since(
    spark: SparkSession, warehouse: Path
) -> None:
    places, shop = Places(str(warehouse)), feed()
    land(places, shop, webhook("insert", AlbumId=1))
    late = started(spark, places, shop)
    late.refresh()
    land(places, shop, webhook("update", AlbumId=1, Label="x"))
    assert build(spark, places, shop) == {}

    step = late.step("albums")

    assert (step.applied, step.error) == (None, None)
    assert run_once(late) == {}
    assert [row["Label"] for row in silver(places, "albums")] == ["x"]


def test_what_one_builder_skips_is_skipped_for_another_that_finds_its_cut_applied(
    spark: SparkSession, warehouse: Path
) -> None:
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(on_bad_frame="skip")})
    land(places, shop, webhook("insert", AlbumId=1), webhook("insert", AlbumId="x"), webhook("insert", AlbumId=2))
    late = started(spark, places, shop)
    late.refresh()
    assert build(spark, places, shop) == {}

    assert late.step("albums").error is None
    assert [known.resolution for known in quarantined(places, FEED, "albums")] == ["skipped"]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


@pytest.mark.nightly
def test_a_row_that_fails_a_rule_is_mended_whatever_columns_are_told_in_between(
    spark: SparkSession, warehouse: Path
) -> None:
    cheap = {"condition": "Price < 100", "action": "fail"}
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(expect={"cheap": cheap})})
    land(places, shop, webhook("insert", AlbumId=1, Price=7), webhook("insert", AlbumId=2, Price=500))
    assert build(spark, places, shop)["albums"].error_class == "EXPECTATION_FAILED"
    assert [row["AlbumId"] for row in silver(places, "albums")] == [1]

    land(places, shop, webhook("update", Live=1, Label="new", AlbumId=1), epoch=2)
    land(places, shop, webhook("update", Price=5, AlbumId=2, Label="x"), webhook("insert", AlbumId=3, Price=9), epoch=3)
    assert build(spark, places, shop) == {}
    assert [(row["AlbumId"], row["Price"], row["Label"]) for row in silver(places, "albums")] == [
        (1, Decimal("7.00"), "new"),
        (2, Decimal("5.00"), "x"),
        (3, Decimal("9.00"), None),
    ]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


def test_one_that_cannot_be_decoded_holds_its_table_until_it_is_skipped(spark: SparkSession, warehouse: Path) -> None:
    places, shop = Places(str(warehouse)), feed()
    last = land(
        places, shop, webhook("insert", AlbumId=1), webhook("insert", AlbumId="x"), webhook("delete", AlbumId=1)
    )
    held = build(spark, places, shop)["albums"]
    assert isinstance(held, UndecodableFrame)
    assert (held.position, held.cause_class) == (last - 1, "INVALID_VALUE")
    assert [row["AlbumId"] for row in silver(places, "albums")] == [1]
    skip_what_holds(places, held)
    assert build(spark, places, shop) == {}
    assert silver(places, "albums") == []


def skip_what_holds(places: Places, held: SilverfoldError) -> None:
    """Let the frame that holds the albums be left out."""
    assert isinstance(held, UndecodableFrame)
    now, at = datetime.now(UTC), held.position
    found = Hold(position=at, update_position=at, error_class=held.cause_class, reason="", found_at=now)
    skip(places, FEED, "albums", found, now=now)


@pytest.mark.parametrize(
    ("then", "now", "reason"),
    [
        (
            {"insert_absent": "null"},
            {"insert_absent": "error"},
            "insert_absent is error, the table was built with null",
        ),
        pytest.param(
            {"blob": "base64"},
            {"blob": "hex"},
            "blob is hex, the table was built with base64",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_is_read_otherwise_from_now_on_holds_the_table_until_it_is_rebuilt(
    spark: SparkSession, warehouse: Path, then: dict[str, str], now: dict[str, str], reason: str
) -> None:
    places, tables = Places(str(warehouse)), {"albums": table(types={"AlbumId": "bigint", "Cover": "binary"})}
    land(places, feed(tables=tables), webhook("insert", AlbumId=1, Cover=None))
    assert build(spark, places, feed(tables=tables, **dict.fromkeys(then, "error"))) == {}, "nothing waits"
    land(places, feed(tables=tables), webhook("insert", AlbumId=2, Label="x", Cover=None), epoch=2)
    assert build(spark, places, feed(tables=tables, **then)) == {}, "no row was read otherwise"
    land(places, feed(tables=tables), webhook("update", AlbumId=1, Label="y"), epoch=3)

    held = build(spark, places, feed(tables=tables, **now))["albums"]

    assert str(held) == f"albums: {reason}: put that back, or run silverfold rebuild {FEED} albums"
    assert verify_table(places, CONNECTOR, feed(tables=tables, **now), "albums").reason == reason
    assert build(spark, places, feed(tables=tables, **then)) == {}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("_reasons", {"expect": {"cheap": {"condition": "Price IS NULL OR Price < 100", "action": "quarantine"}}}),
        pytest.param("__End_At", {"stored_as_scd_type": 2}, marks=pytest.mark.nightly),
        pytest.param("_Position", {}, marks=pytest.mark.nightly),
    ],
)
def test_a_column_that_is_called_as_one_of_ours_is_a_body_to_be_skipped(
    spark: SparkSession, warehouse: Path, name: str, settings: dict[str, Any]
) -> None:
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(**settings)})
    named = webhook("update", **{"AlbumId": 1, name: 7})
    land(places, shop, webhook("insert", AlbumId=1), named, webhook("insert", AlbumId=2))
    skip_what_holds(places, build(spark, places, shop)["albums"])
    assert build(spark, places, shop) == {}
    assert [row["AlbumId"] for row in silver(places, "albums")] == [1, 2]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


def test_names_that_spark_cannot_tell_apart_are_one_column(spark: SparkSession, warehouse: Path) -> None:
    places, shop = Places(str(warehouse)), feed()
    sent = [{"\u017fize": 1}, {"size": 2}, {"\u00b5": 3}, {"\u039c": 4}, {"\u03c2": 5}, {"\u03a3": 6}]
    land(places, shop, *(webhook("update", AlbumId=1, **each) for each in sent))
    assert build(spark, places, shop) == {}
    (row,) = silver(places, "albums")
    assert list(row.items())[4:] == [("\u017fize", "2"), ("\u00b5", "4"), ("\u03c2", "6")]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL


@pytest.mark.parametrize("max_frames", [pytest.param(1, marks=pytest.mark.nightly), 200_000])
def test_a_rule_on_a_column_that_comes_up_later_holds_until_then(
    spark: SparkSession, warehouse: Path, max_frames: int
) -> None:
    rule = {"condition": "Label IS NULL OR Label <> 'x'", "action": "quarantine"}
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(expect={"label": rule})})
    land(places, shop, webhook("insert", AlbumId=1), webhook("insert", AlbumId=2))
    following = started(spark, places, shop, max_frames=max_frames)
    assert run_once(following)["albums"].error_class == "UNUSABLE_EXPECTATION"

    land(places, shop, webhook("insert", AlbumId=3, Label="y"), webhook("update", AlbumId=1, Label="x"), epoch=2)
    assert run_once(following) == {}
    assert [(row["AlbumId"], row["Label"]) for row in silver(places, "albums")] == [(2, None), (3, "y")]


def test_what_a_vendor_posts_is_in_silver_whatever_came_twice(
    spark: SparkSession, warehouse: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "sesame")
    places, port = Places(str(warehouse)), free_port()
    types = {"id": "bigint", "customer": "string", "amount": "decimal(8, 2)", "paid": "boolean"}
    shop = feed(
        f"127.0.0.1:{port}",
        tables={"orders": table(keys=["id"], types=types)},
        database=DATABASE,
        secret={"env": "HOOK_SECRET"},
        header="X-Sig",
    )

    def post() -> dict[int, dict[str, Any]]:
        with WebhookSource(
            f"http://127.0.0.1:{port}/",
            signing=Signing("X-Sig"),
            secret="sesame",
            seed=5,
            stopped_within=threading.Event().wait,
        ) as vendor:
            for _ in range(60):
                body = vendor.orders.change()
                vendor.post(body)
                vendor.post(body)
            return vendor.orders.rows

    async def received() -> dict[int, dict[str, Any]]:
        stop, log = asyncio.Event(), structlog.get_logger("test")
        task = asyncio.create_task(
            receive(shop, CONNECTOR, places, stop=stop, clock=lambda: 1_700_000_000, rng=Random(1), log=log)
        )
        rows = await asyncio.to_thread(post)
        stop.set()
        await task
        return rows

    rows = asyncio.run(received())
    assert build(spark, places, shop) == {}
    expected = [
        {**row, "amount": Decimal(str(row["amount"])), "paid": bool(row["paid"])} for _, row in sorted(rows.items())
    ]
    assert expected
    assert silver(places, "orders") == expected
    assert verify_table(places, CONNECTOR, shop, "orders").verdict is Verdict.EQUAL


@pytest.mark.parametrize("follows", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.nightly
def test_a_rule_may_name_a_column_that_is_still_to_come(spark: SparkSession, warehouse: Path, follows: bool) -> None:
    """The control frame that tells it has no stream: it is for all tables."""
    rules = {
        "small": {"condition": "AlbumId < 100", "action": "fail"},
        "covered": {"condition": "`the cover` <> ''", "action": "warn"},
    }
    places, shop = Places(str(warehouse)), feed(tables={"albums": table(expect=rules, stored_as_scd_type=2)})
    running = started(spark, places, shop)
    land(places, shop, webhook("insert", AlbumId=1), webhook("insert", AlbumId=500))
    running.refresh()
    if follows:
        assert running.step("albums").error is not None
    land(places, shop, webhook("insert", AlbumId=2, **{"the cover": "red"}), epoch=2)
    running.refresh()

    def settle() -> str | None:
        while (step := running.step("albums")).unfinished:
            pass
        return None if step.error is None else step.error.error_class

    assert settle() == "EXPECTATION_FAILED"
    assert [row["AlbumId"] for row in silver(places, "albums")] == [1]
    land(places, shop, webhook("delete", AlbumId=500), epoch=3)
    running.refresh()
    assert settle() is None
    assert [(row["AlbumId"], row["the cover"]) for row in silver(places, "albums")] == [(1, None), (2, "red")]
    assert verify_table(places, CONNECTOR, shop, "albums").verdict is Verdict.EQUAL
