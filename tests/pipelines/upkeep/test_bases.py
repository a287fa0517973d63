"""Bases of tables without snapshots: bronze loses what they have, and everything goes on from there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Frame
from silverfold.connectors.hstreamdb.connector import CONNECTOR as HSTREAM
from silverfold.connectors.sbe.connector import CONNECTOR as SBE
from silverfold.connectors.sbe.protocol.schemas import read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.landing import Landing as SbeLanding
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR as WEBHOOKS
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.pipelines.reading.time_travel import as_of_moment
from silverfold.pipelines.upkeep.maintain import Done
from silverfold.pipelines.verifying.verify import Verdict
from tests.connectors.hstreamdb.test_build import SHOP as ORDERS
from tests.connectors.hstreamdb.test_build import batch as record
from tests.connectors.hstreamdb.test_build import deleted, upsert
from tests.connectors.sbe.test_build import BOOK, book, entry, trade
from tests.support.commits import dying_at_commit
from tests.support.days import Days, webhooks
from tests.support.deaths import Died
from tests.support.sbe.feed import options as sbe_options
from tests.support.sbe.feed import table as sbe_table
from tests.support.sqlitecloud.webhooks import feed as webhook_feed
from tests.support.sqlitecloud.webhooks import table as webhook_table
from tests.support.sqlitecloud.webhooks import webhook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
