"""Landed SBE messages become silver tables: appended, keyed, with entries of groups, of several versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from silverfold.conf.errors import UndecodableFrame
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.protocol.schemas import feed_schema
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.pipelines.holding.quarantine_log import Hold, skip
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history
from tests.support.sbe.feed import FEED, SbeFeed, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[2] / "golden" / "sbe" / "evolution"
ORDERS = [bytes.fromhex(body) for body in json.loads((GOLDEN / "order.json").read_text("utf-8"))["messages"]]
"""One order as each of the versions 0 to 3 writes it."""

MARKET = feed_schema("builtin")
BOOK = {"template": "BookUpdate", "group": "entries", "keys": ["securityId", "side", "level"], "operation": "action"}


def entry(level: int, action: str, size: int, orders: int | None = None) -> dict[str, Any]:
    named = {"securityId": 1, "side": "Bid", "level": level, "action": action}
    return {**named, "price": {"mantissa": 10_000 - level}, "size": size, "orders": orders}


def book(*entries: Mapping[str, Any], version: int | None = None) -> bytes:
    return encode(MARKET, "BookUpdate", {"transactTime": 5, "entries": list(entries)}, version=version)


def trade(number: int, **values: Any) -> bytes:
    known = {
        "transactTime": 1_700_000_000_123_456_789,
        "tradeId": number,
        "securityId": 2,
        "aggressor": "Bid",
        "price": {"mantissa": 12_345},
        "size": 7,
        "conditions": {"late", "block"},
    }
    return encode(MARKET, "Trade", known | values)


def test_messages_are_added_as_they_came_in_one_commit_for_each_cut(spark: SparkSession, tmp_path: Path):
    """A cut without a row moves the position, too."""
    tables = {
        "Trade": table(decimals=True, timestamps=True),
        "plain": table(template="Trade"),
        "entries": table(template="BookUpdate", group="entries"),
    }
    feed = SbeFeed(tmp_path, tables)
    feed.land(trade(1), trade(1), trade(2, note="x"), book(entry(0, "New", 5)))
    assert feed.build(spark) == {}
    last = feed.land(trade(3), book(), book())
    assert feed.build(spark) == {}

    rows = sorted(feed.rows("Trade"), key=lambda row: row["_position"])
    assert [(row["_position"], row["_ordinal"], row["tradeId"], row["note"]) for row in rows] == [
        (1, 0, 1, ""),
        (2, 0, 1, ""),
        (3, 0, 2, "x"),
        (6, 0, 3, ""),
    ]
    assert rows[0]["price"] == Decimal("1.2345")
    assert rows[0]["transactTime"].isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert rows[0]["conditions"] == ["block", "late"]
    assert feed.rows("plain")[0]["price"] == {"mantissa": 12_345, "exponent": -4}
    history = DeltaTable(feed.places.silver(FEED, "Trade").url).history()
    assert [(commit["operation"], commit["operationParameters"]["mode"]) for commit in history] == [
        ("WRITE", "Append"),
        ("WRITE", "Append"),
    ]
    assert {feed.verify(name).verdict for name in tables} == {Verdict.EQUAL}
    assert (len(feed.rows("entries")), feed.verify("entries").position) == (1, last)


def test_entries_with_an_action_are_the_book_as_it_stands(spark: SparkSession, tmp_path: Path):
    """What a message of an older version does not have stays as it was."""
    feed = SbeFeed(tmp_path, {"book": table(**BOOK, **{"with": []}, decimals=True)})
    ticks, older = iter(range(10**9)), {"securityId": 99}
    market = Market(MARKET, seed=3, clock=lambda: next(ticks))
    bodies = [market.change().body for _ in range(150)]
    for first in range(0, 150, 75):
        feed.land(*bodies[first : first + 75])
        if first:
            feed.land(book(entry(0, "New", 5, 9) | older, entry(1, "New", 6, 8) | older))
            feed.land(
                book(entry(0, "Change", 50) | older, version=0),
                book(entry(1, "Change", 60) | older),
                book(entry(2, "New", 1) | older, version=0),
            )
        assert feed.build(spark) == {}

    rows = sorted(feed.rows("book"), key=lambda row: row["level"])
    found = {(row["securityId"], row["side"], row["level"]): (row["price"], row["size"]) for row in rows}
    assert {key: row for key, row in found.items() if key[0] != 99} == folded(bodies)
    assert len(found) > 13
    of_versions = [(row["level"], row["size"], row["orders"]) for row in rows if row["securityId"] == 99]
    assert of_versions == [(0, 50, 9), (1, 60, None), (2, 1, None)]
    assert "transactTime" not in rows[0]
    assert feed.verify("book").verdict is Verdict.EQUAL


def folded(bodies: list[bytes]) -> dict[tuple[int, str, int], tuple[Decimal, int]]:
    """Read the entries by hand: 8 bytes of header, 8 of time, 4 of dimensions, then 21 bytes each."""
    levels: dict[tuple[int, str, int], tuple[Decimal, int]] = {}
    for body in bodies:
        if body[2] != 2:
            continue
        for at in range(20, len(body), 21):
            security, side = int.from_bytes(body[at : at + 4], "little"), {"B": "Bid", "O": "Offer"}[chr(body[at + 4])]
            key = (security, side, body[at + 5])
            mantissa, size = (int.from_bytes(body[at + a : at + b], "little") for a, b in ((7, 15), (15, 19)))
            if body[at + 6] == 2:
                del levels[key]
            else:
                levels[key] = (Decimal(mantissa) / 10_000, size)
    return levels


def test_without_an_operation_the_last_message_of_a_key_stands(spark: SparkSession, tmp_path: Path):
    feed = SbeFeed(tmp_path, {"Trade": table(keys=["securityId"], stored_as_scd_type=2)})
    feed.land(trade(1), trade(2, securityId=3), trade(4, size=1))

    assert feed.build(spark) == {}

    found = sorted((row["securityId"], row["tradeId"], row["size"], row["_position"]) for row in feed.rows("Trade"))
    assert found == [(2, 4, 1, 3), (3, 2, 7, 2)]
    assert feed.verify("Trade").verdict is Verdict.EQUAL
    assert verify_history(feed.places, CONNECTOR, feed.feed, "Trade").verdict is Verdict.EQUAL


def test_groups_are_arrays_child_tables_or_nothing(spark: SparkSession, tmp_path: Path):
    schema = str(GOLDEN / "order-v3.xml")
    tables = {
        "orders": table(template="Order"),
        "bare": table(template="Order", groups="omit"),
        "legs": table(template="Order", group="legs"),
        "fees": table(template="Order", group="fees", **{"with": ["orderId", "note"]}),
    }
    feed = SbeFeed(tmp_path, tables, schema)
    feed.land(*ORDERS)

    assert feed.build(spark) == {}

    orders = sorted(feed.rows("orders"), key=lambda row: row["_position"])
    assert orders[0]["legs"] == [{"legId": 7, "ratio": None}, {"legId": 8, "ratio": None}]
    assert orders[3] == {
        "_position": 4,
        "_ordinal": 0,
        "orderId": 1001,
        "qty": 5,
        "price": -250,
        "legs": [{"legId": 7, "ratio": 10}, {"legId": 8, "ratio": 20}],
        "fees": [{"fee": 99}],
        "note": "hi",
        "memo": "abc",
    }
    assert set(feed.rows("bare")[0]) == {"_position", "_ordinal", "orderId", "qty", "price", "note", "memo"}
    legs = sorted((r["_position"], r["_ordinal"], r["orderId"], r["legId"], r["ratio"]) for r in feed.rows("legs")[:2])
    assert legs[0][1:] == (0, 1001, 7, legs[0][4])
    assert feed.rows("fees") == [{"_position": 4, "_ordinal": 0, "orderId": 1001, "note": "hi", "fee": 99}]
    assert {feed.verify(name).verdict for name in tables} == {Verdict.EQUAL}


def test_a_newer_schema_adds_columns_and_old_frames_are_read_by_their_own_version(spark: SparkSession, tmp_path: Path):
    tables = {"orders": table(template="Order"), "last": table(template="Order", keys=["orderId"])}
    xml = tmp_path / "order.xml"
    xml.write_bytes((GOLDEN / "order-v0.xml").read_bytes())
    feed = SbeFeed(tmp_path / "lake", tables, str(xml))
    feed.land(ORDERS[0], ORDERS[2])
    assert feed.build(spark) == {}
    assert set(feed.rows("orders")[0]) == {"_position", "_ordinal", "orderId", "qty", "legs", "note"}
    feed.land(ORDERS[0])
    xml.write_bytes((GOLDEN / "order-v3.xml").read_bytes())
    feed.land(ORDERS[1], ORDERS[3])

    assert feed.build(spark) == {}

    rows = sorted(feed.rows("orders"), key=lambda row: row["_position"])
    assert [(row["price"], row["memo"], row["legs"][0]["ratio"]) for row in rows] == [
        (None, None, None),
        (None, None, None),  # it was read when nothing was known of its newer fields
        (None, None, None),
        (-250, None, 10),
        (-250, "abc", 10),
    ]
    (last,) = feed.rows("last")
    assert (last["price"], last["fees"], last["memo"]) == (-250, [{"fee": 99}], "abc")
    assert [feed.verify(name).verdict for name in tables] == [Verdict.DIFFERENT, Verdict.EQUAL]
    Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "orders", token="t").run()
    rows = sorted(feed.rows("orders"), key=lambda row: row["_position"])
    assert [(row["price"], row["memo"]) for row in rows[:3]] == [(None, None), (-250, "abc"), (None, None)]
    assert feed.verify("orders").verdict is Verdict.EQUAL


def test_a_template_becomes_a_table_once_a_schema_knows_it_with_all_that_landed_before(
    spark: SparkSession, tmp_path: Path
):
    xml = tmp_path / "market.xml"
    whole = MARKET_XML.decode()
    without = whole[: whole.index('  <sbe:message name="Trade"')] + "</sbe:messageSchema>"
    xml.write_text(without, encoding="utf-8")
    feed = SbeFeed(tmp_path / "lake", {"BookUpdate": table()}, str(xml))
    feed.land(trade(1), book(entry(0, "New", 5)), trade(2))
    assert feed.build(spark) == {}
    assert len(feed.rows("BookUpdate")) == 1
    xml.write_text(whole, encoding="utf-8")
    feed.tables = {"BookUpdate": table(), "Trade": table()}
    feed.land(trade(3))

    assert feed.build(spark) == {}

    assert sorted(row["tradeId"] for row in feed.rows("Trade")) == [1, 2, 3]


MARKET_XML = (Path(__file__).parents[3] / "connectors" / "sbe" / "market.xml").read_bytes()


def test_a_bad_message_holds_its_table_by_position_and_no_other(spark: SparkSession, tmp_path: Path):
    tables = {"Trade": table(), "last": table(template="Trade", keys=["tradeId"]), "BookUpdate": table()}
    feed = SbeFeed(tmp_path, tables)
    feed.land(trade(1), trade(2)[:-1], trade(3), book())

    held = feed.build(spark)

    assert {name: (type(error), getattr(error, "position", None)) for name, error in held.items()} == {
        "Trade": (UndecodableFrame, 2),
        "last": (UndecodableFrame, 2),
    }
    assert "TRUNCATED_MESSAGE" in str(held["Trade"])
    assert [row["tradeId"] for row in feed.rows("Trade")] == [1]
    assert len(feed.rows("BookUpdate")) == 1
    skipped(feed, "Trade", 2)
    assert list(feed.build(spark)) == ["last"]
    assert sorted(row["tradeId"] for row in feed.rows("Trade")) == [1, 3]
    assert feed.verify("Trade").verdict is Verdict.EQUAL
    for name in ("Trade", "last"):  # verify finds what was planted
        DeltaTable(feed.places.silver(FEED, name).url).update({"size": "8"}, predicate="_position = 1")
    found = [feed.verify(name) for name in ("Trade", "last")]
    assert [(each.verdict, each.different_cells) for each in found] == [(Verdict.DIFFERENT, 1)] * 2
    assert [each.differences[0].key for each in found] == [{"_position": 1, "_ordinal": 0}, {"tradeId": "1"}]
    assert [(each.differences[0].column, each.differences[0].expected) for each in found] == [("size", 7)] * 2


def skipped(feed: SbeFeed, name: str, position: int) -> None:
    now = datetime.now(UTC)
    found = Hold(position=position, update_position=position, error_class="X", reason="", found_at=now)
    skip(feed.places, FEED, name, found, now=now)


def test_an_action_that_nobody_gave_a_meaning_holds_the_table(spark: SparkSession, tmp_path: Path):
    feed = SbeFeed(tmp_path, {"book": table(**BOOK, inserts=["New"], deletes=["Delete"])})
    feed.land(book(entry(0, "New", 5)), book(entry(1, "New", 1), entry(0, "Change", 6)), book(entry(0, "Delete", 0)))

    held = feed.build(spark)

    assert "'Change' is not among inserts, updates and deletes" in str(held["book"])
    assert held["book"].position == 2
    assert [row["level"] for row in feed.rows("book")] == [0]


@pytest.mark.nightly
def test_a_key_whose_value_has_no_name_yet_holds_the_table_until_the_schema_names_it(
    spark: SparkSession, tmp_path: Path
):
    xml, whole = tmp_path / "market.xml", MARKET_XML.decode()
    xml.write_text(whole.replace('<validValue name="Offer">O</validValue>', ""), encoding="utf-8")
    feed = SbeFeed(tmp_path / "lake", {"book": table(**BOOK)}, str(xml))
    offer = {"side": "Offer"}
    feed.land(book(entry(0, "New", 5)), book(entry(0, "New", 6) | offer, entry(1, "New", 7)))

    held = feed.build(spark)["book"]

    assert "key in BookUpdate.side: 'O' is no value of the key's enum" in str(held)
    assert len(feed.rows("book")) == 1
    assert feed.verify("book").verdict is Verdict.EQUAL
    xml.write_text(whole, encoding="utf-8")
    feed.land(book(entry(0, "Change", 8) | offer))
    assert feed.build(spark) == {}
    assert sorted((row["side"], row["level"], row["size"]) for row in feed.rows("book")) == [
        ("Bid", 0, 5),
        ("Bid", 1, 7),
        ("Offer", 0, 8),
    ]
    assert feed.verify("book").verdict is Verdict.EQUAL


def test_a_key_whose_value_has_another_name_holds_the_table_until_it_is_built_anew(spark: SparkSession, tmp_path: Path):
    xml, whole = tmp_path / "market.xml", MARKET_XML.decode()
    xml.write_text(whole, encoding="utf-8")
    feed = SbeFeed(tmp_path / "lake", {"book": table(**BOOK)}, str(xml))
    feed.land(book(entry(0, "New", 5) | {"side": "Offer"}))
    assert feed.build(spark) == {}
    xml.write_text(whole.replace('name="Offer"', 'name="Ask"'), encoding="utf-8")
    feed.land(book(entry(0, "Change", 8) | {"side": "Offer"}))

    held = feed.build(spark)["book"]

    assert "value 79 of side is Ask, the table was built with Offer: put that back, or run silverfold rebuild" in str(
        held
    )
    Rebuild(spark, feed.settings, CONNECTOR, feed.feed, "book", token="t").run()
    assert feed.build(spark) == {}
    assert [(row["side"], row["level"], row["size"]) for row in feed.rows("book")] == [("Ask", 0, 8)]
    assert feed.verify("book").verdict is Verdict.EQUAL
