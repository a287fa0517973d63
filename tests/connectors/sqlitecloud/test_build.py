"""Landed snapshots and notifications become silver tables that are what the source's tables are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from silverfold.connectors.frames import Frame
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.pipelines.verifying.verify import Verdict, verify_history
from tests.support.sqlitecloud.feed import SqliteCloudFeed, notified, selected, snapshot_begins, snapshot_ends
from tests.support.sqlitecloud.notices import described, vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOSEN = (
    "rows-of-an-earlier-epoch-go",
    "key-change-full-update-before-snapshot",
    "swap-through-third-key",
    "composite-key",
)
CAPTURES = {vector["id"]: vector for vector in vectors("captures") if vector["id"] in CHOSEN}


class Capture:
    """One capture as it lands in a table of its own, which bears the capture's name: epoch by epoch, in parts."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.name = vector["id"].replace("-", "_")
        keys = vector["keys"]
        self.types = dict.fromkeys(vector["columns"], "string") | dict.fromkeys(keys, "bigint")
        self.described = described(self.name, dict.fromkeys(vector["columns"], ""), keys)
        self.expected = [dict(zip(vector["columns"], row, strict=True)) for row in vector["at_end"]]
        earlier = vector.get("silver_before")
        before = [] if earlier is None else [{"snapshot": earlier}, {"fence": "high"}, {"lost": True}]
        self.epochs: list[list[dict[str, Any]]] = [[]]
        for event in [*before, *vector["events"]]:
            if "lost" in event:
                self.epochs.append([])
            else:
                self.epochs[-1].append(event)

    def frames(self, events: list[dict[str, Any]]) -> list[Frame]:
        """Return the frames of an epoch's events, all of which come after the snapshot was asked for."""
        return [*snapshot_begins(self.described), *map(self._frame, events)]

    def _frame(self, event: dict[str, Any]) -> Frame:
        if "data" in event:
            return notified(event["data"] | {"channel": self.name})
        if "snapshot" in event:
            return selected(self.described, event["snapshot"])
        return snapshot_ends(self.described)


@pytest.mark.nightly
def test_captures_end_as_the_source_in_one_build_and_in_several(spark: SparkSession, tmp_path: Path):
    captures = [Capture(vector) for vector in CAPTURES.values()]
    tables = {capture.name: {"types": capture.types} for capture in captures} | {"said": {"channel": "c"}}
    feeds = {name: SqliteCloudFeed(tmp_path / name, tables) for name in ("at_once", "in_parts")}
    earlier = [frame for each in captures if len(each.epochs) > 1 for frame in each.frames(each.epochs[0])]
    message = notified({"channel": "c", "type": "MESSAGE", "payload": "hello"})
    for name, feed in feeds.items():
        feed.connect(*earlier, message)
        if name == "in_parts":
            assert feed.build(spark) == {}
        feed.connect()
        for capture in captures:
            frames = capture.frames(capture.epochs[-1])
            feed.land(*frames[:-1])
        if name == "in_parts":
            assert feed.build(spark) == {}
        feed.land(*(capture.frames(capture.epochs[-1])[-1] for capture in captures))
        assert feed.build(spark) == {}
    for name, feed in feeds.items():
        found = {each.name: sorted(feed.rows(each.name), key=repr) for each in captures}
        assert found == {each.name: each.expected for each in captures}, name
        assert [row["payload"] for row in feed.rows("said")] == ["hello"]
        assert {feed.verify(table).verdict for table in tables} == {Verdict.EQUAL}


def test_a_table_waits_at_what_cannot_be_read_until_a_snapshot_passes_it(spark: SparkSession, tmp_path: Path):
    foo = described("foo", {"id": "INTEGER", "n": "INT"}, ["id"])
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    head = {"channel": "foo", "type": "TABLE", "pk": ["id"]}
    feed.connect(
        *snapshot_begins(foo),
        selected(foo, [[1, 5]]),
        snapshot_ends(foo),
        notified(head | {"payload": [{"type": "INSERT", "id": 2, "n": 6}]}),
        notified(head | {"payload": [{"type": "UPDATE", "id": 1, "n": "six"}]}),
        notified(head | {"payload": [{"type": "DELETE", "pv": [2]}]}),
    )
    held = feed.build(spark)["foo"]
    assert "unfit_value in n: 'six' does not fit" in str(held)
    assert sorted(feed.rows("foo"), key=repr) == [{"id": 1, "n": 5}, {"id": 2, "n": 6}]
    wider = described("foo", {"id": "INTEGER", "n": "INT", "m": "TEXT DEFAULT 'x'"}, ["id"])
    feed.land(*snapshot_begins(wider), selected(wider, [[1, 7, "x"]]), snapshot_ends(wider))
    assert feed.build(spark) == {}
    assert feed.rows("foo") == [{"id": 1, "n": 7, "m": "x"}]
    assert feed.verify("foo").verdict is Verdict.EQUAL


def test_a_log_has_every_change_with_who_wrote_it(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"foo_log": {"source": "foo", "log": True}})
    head = {"sender": "a uuid", "channel": "foo", "type": "TABLE", "pk": ["id"]}
    entries = [{"type": "INSERT", "id": 1, "n": 6}, {"type": "DELETE", "pv": [2]}]
    feed.connect(notified(head | {"payload": entries})._replace(stream="log:foo"))

    assert feed.build(spark) == {}

    assert [(row["sender"], row["op"], row["key"], row["columns"]) for row in feed.rows("foo_log")] == [
        ("a uuid", "insert", '{"id":1}', '{"id":1,"n":6}'),
        ("a uuid", "delete", '{"id":2}', None),
    ]
    assert feed.verify("foo_log").verdict is Verdict.EQUAL


@pytest.mark.parametrize(
    ("separators", "others"),
    [
        pytest.param((", ", ": "), 0, id="spaced, alone"),
        pytest.param((",", ":"), 1, id="compact, behind another"),
        pytest.param((", ", ": "), 1, id="spaced, behind another", marks=pytest.mark.nightly),
        pytest.param((",", ":"), 0, id="compact, alone", marks=pytest.mark.nightly),
    ],
)
def test_a_change_that_does_not_fit_is_never_lost(
    spark: SparkSession, tmp_path: Path, separators: tuple[str, str], others: int
):
    foo = described("foo", {"id": "INTEGER", "n": "INT"}, ["id"])
    feed = SqliteCloudFeed(tmp_path, {"foo": {}})
    head = {"sender": "uuid", "channel": "foo", "type": "TABLE", "pk": ["id"]}
    good = [{"type": "INSERT", "id": 2 + number, "n": 6} for number in range(others)]
    feed.connect(
        *snapshot_begins(foo),
        selected(foo, [[1, 5]]),
        snapshot_ends(foo),
        *(
            notified(json.dumps(head | {"payload": [each]}, separators=separators))
            for each in [*good, {"type": "UPDATE", "id": 1, "n": "six"}]
        ),
    )

    held = feed.build(spark)

    assert "unfit_value in n: 'six' does not fit" in str(held.get("foo"))
    assert len(feed.rows("foo")) == 1 + others


def test_rows_that_share_a_key_hold_the_table_until_a_snapshot_has_none(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"t": {"keys": ["k"]}})
    table = described("t", {"k": "TEXT", "a": "TEXT"}, ["k"])
    feed.connect(*snapshot_begins(table), selected(table, [["x", "1"]]), snapshot_ends(table))
    assert feed.build(spark) == {}
    twice = [selected(table, [["x", "1"], ["y", "2"]]), selected(table, [["x", "3"]])]
    feed.land(*snapshot_begins(table), *twice, snapshot_ends(table))

    held = feed.build(spark)

    assert held["t"].error_class == "DUPLICATE_KEY"
    assert "1 keys are those of several rows of the snapshot" in str(held["t"])
    assert feed.rows("t") == [{"k": "x", "a": "1"}]
    feed.land(*snapshot_begins(table), selected(table, [["y", "2"]]), snapshot_ends(table))
    assert feed.build(spark) == {}
    assert feed.rows("t") == [{"k": "y", "a": "2"}]
    assert feed.verify("t").verdict is Verdict.EQUAL


def test_a_snapshot_with_a_null_in_a_key_holds_the_table_and_says_so(spark: SparkSession, tmp_path: Path):
    feed = SqliteCloudFeed(tmp_path, {"t": {}})
    table = described("t", {"id": "TEXT", "a": "TEXT"}, ["id"])
    feed.connect(*snapshot_begins(table), selected(table, [["x", "1"], [None, "5"]]), snapshot_ends(table))

    held = feed.build(spark)

    assert "NULL_KEY: a key is NULL" in str(held["t"])


@pytest.mark.nightly
def test_a_history_is_not_gone_on_with_as_it_is_read_otherwise_though_a_snapshot_comes(
    spark: SparkSession, warehouse: Path
) -> None:
    foo = described("foo", {"id": "INTEGER", "n": "INT", "t": "TEXT"}, ["id"])
    tables = {"foo": {"stored_as_scd_type": 2}}
    partial = SqliteCloudFeed(warehouse, tables)
    moved = notified(
        {"channel": "foo", "type": "TABLE", "pk": ["id"], "payload": [{"type": "UPDATE", "id": 1, "n": 6}]}
    )
    partial.connect(*snapshot_begins(foo), selected(foo, [[1, 5, "x"]]), snapshot_ends(foo), moved)
    assert partial.build(spark) == {}
    full = SqliteCloudFeed(warehouse, tables, {"update_columns": "full"}, epoch=1)
    full.connect(*snapshot_begins(foo), selected(foo, [[1, 6, "x"]]), snapshot_ends(foo))

    reason = "update_columns is full, the table was built with partial"
    assert (
        str(full.build(spark)["foo"]) == f"foo: {reason}: put that back, or run silverfold rebuild {full.feed.name} foo"
    )
    assert verify_history(full.places, CONNECTOR, full.feed, "foo").reason == reason
    assert partial.build(spark) == {}
    assert verify_history(partial.places, CONNECTOR, partial.feed, "foo").verdict is Verdict.EQUAL
