"""A snapshot is complete, or void, as the vectors say; what voids one is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.landed.payload import TableUpdate, read_notification
from silverfold.connectors.sqlitecloud.receiver.window import SnapshotWindow
from tests.support.sqlitecloud.notices import described, table_text, vectors

CAPTURES = [pytest.param(vector, id=vector["id"]) for vector in vectors("captures")]
FOO = described("foo", {"id": "INTEGER", "a": "TEXT", "b": "TEXT"}, ["id"])


def window(description: Description = FOO, table: dict[str, Any] | None = None, **options: Any) -> SnapshotWindow:
    return SnapshotWindow(
        description, SqliteCloudTable.model_validate(table or {}), SqliteCloudOptions.model_validate(options)
    )


def table_update(
    *entries: tuple[str, list[Any] | None, dict[str, Any]], keys: tuple[str, ...] = ("id",)
) -> TableUpdate:
    update = read_notification(table_text("foo", keys, entries, "new").encode())
    assert isinstance(update, TableUpdate)
    return update


@pytest.mark.parametrize("vector", CAPTURES)
def test_a_capture_is_whole_or_void(vector: dict[str, Any]) -> None:
    description = described("foo", dict.fromkeys(vector["columns"], ""), vector["keys"])
    types = {"types": dict.fromkeys(vector["keys"], "bigint")}
    seen = window(description, types)
    verdicts = []
    for event in vector["events"]:
        if "lost" in event:
            seen = window(description, types)
        elif "snapshot" in event:
            seen.select(event["snapshot"])
        elif "fence" in event:
            verdicts.append("ok" if seen.close() is None else "void")
        elif not verdicts:
            update = read_notification(json.dumps(event["data"]).encode())
            assert isinstance(update, TableUpdate)
            seen.notify(update)
    assert verdicts == [vector["verdict"]]


def test_a_row_that_moves_with_some_of_its_columns_voids_the_attempt_at_once() -> None:
    seen = window()
    seen.notify(table_update(("UPDATE", [15], {"id": 14, "a": "x"})))
    assert seen.void == "partial_move"


def test_where_updates_carry_every_column_what_one_lacks_is_null_and_a_move_is_whole() -> None:
    seen = window(update_columns="full")
    seen.notify(table_update(("UPDATE", [15], {"id": 14, "a": "x"})))
    assert seen.close() is None


def test_an_update_with_its_own_key_as_the_old_one_moves_nothing() -> None:
    seen = window()
    seen.notify(table_update(("UPDATE", ["14"], {"id": 14, "a": "x"})))
    seen.select([(14, "x", "y")])
    assert seen.close() is None


def test_letters_of_either_case_name_one_row_of_a_nocase_key() -> None:
    names = described("foo", {"id": "TEXT COLLATE NOCASE", "a": ""}, ["id"])
    seen = window(names, {"key_collation": "nocase"})
    seen.notify(table_update(("UPDATE", ["A"], {"id": "a"}), ("UPDATE", None, {"id": "B"})))
    seen.select([("A", None), ("b", None)])
    assert seen.close() is None


@pytest.mark.parametrize(
    ("entries", "void"),
    [
        ([("UPDATE", None, {"id": 5, "a": "x"})], "unexplained_update"),
        ([("UPDATE", None, {"id": -2, "a": "x"})], "unexplained_update"),
        ([("UPDATE", None, {"id": 5, "a": "x"}), ("DELETE", [5], {})], None),
        ([("UPDATE", None, {"id": 5, "a": "x"}), ("INSERT", None, {"id": 5})], None),
        ([("UPDATE", None, {"id": 5, "a": "x"}), ("UPDATE", [5], {"id": 6, "a": "x", "b": "y"})], None),
        ([("UPDATE", [5], {"id": 6, "a": "x", "b": "y"}), ("UPDATE", None, {"id": 6, "a": "z"})], None),
        ([("DELETE", [1], {}), ("UPDATE", None, {"id": 1, "a": "x"})], "unexplained_update"),
        ([("DELETE", [1], {}), ("UPDATE", None, {"id": 1}), ("UPDATE", None, {"id": 1})], "unexplained_update"),
        ([("INSERT", None, {"id": 9}), ("UPDATE", None, {"id": 9, "a": "x"})], None),
        ([("UPDATE", None, {"id": 1, "a": "x"}), ("UPDATE", None, {"id": 1, "b": "x"})], None),
        ([("INSERT", None, {"id": 1, "c": "x"})], "other_columns"),
        ([("INSERT", None, {"id": "x"})], None),
        ([("UPDATE", None, {"id": "x", "a": "y"})], None),
        ([("DELETE", ["x"], {}), ("UPDATE", None, {"id": "x", "a": "y"})], None),
        ([("UPDATE", ["x"], {"id": "y", "a": "z"})], "partial_move"),
    ],
)
def test_what_the_snapshot_does_not_explain_voids_it(entries: list[Any], void: str | None) -> None:
    seen = window()
    seen.select([(1, "p", "q"), (-1, "r", "s")])
    seen.notify(table_update(*entries))
    assert seen.close() == void


def test_a_composite_key_may_be_told_in_another_order() -> None:
    pairs = described("foo", {"a": "INT", "b": "INT", "v": "TEXT"}, ["a", "b"])
    seen = window(pairs)
    seen.notify(table_update(("UPDATE", None, {"a": 1, "b": 2, "v": "x"}), keys=("b", "a")))
    seen.select([(1, 2, "w")])
    assert seen.close() is None


def test_a_key_of_other_columns_voids_the_attempt() -> None:
    seen = window()
    seen.notify(table_update(("INSERT", None, {"id": 1, "a": "x"}), keys=("a",)))
    assert seen.void == "other_columns"


def test_a_generated_column_that_is_told_all_the_same_is_known() -> None:
    columns = (*FOO.columns, TableColumn("c", "TEXT", hidden=3))
    seen = window(Description("foo", columns, ("id",)))
    seen.notify(table_update(("INSERT", None, {"id": 1, "c": "x"})))
    assert seen.close() is None


def test_keys_that_do_not_fit_their_column_void_nothing_but_by_partial_moves() -> None:
    seen = window()
    seen.notify(table_update(("UPDATE", None, {"id": "AQI=", "a": "x"}), ("UPDATE", None, {"id": 1, "a": "x"})))
    seen.select([(b"\1\2", None, None), (1, "p", "q")])
    assert seen.close() is None
