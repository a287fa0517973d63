"""A published table: its packets, its history, and the changes it refuses."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import InvalidValue, LocalProtocolError, OversizedMessage
from silverfold.connectors.tengi.protocol.values import Byte, Identifier, Int, Packet
from silverfold.connectors.tengi.server.feed.tables import PartLimits, RowChanges, SourceTable
from tests.support.tengi.model_receiver import decoded

EPOCH = "00001700000000000000"
ID = Identifier(b"0123456789abcdef")


def orders(count: int = 2, *, history: int = 100) -> SourceTable:
    rows = [{"id": number, "name": f"n{number}"} for number in range(1, count + 1)]
    return SourceTable("orders", {"id": "bigint", "name": "string"}, ["id"], rows, epoch=EPOCH, history=history)


def head(seq: int) -> dict[str, object]:
    return {"table": "orders", "epoch": EPOCH, "seq": seq, "version": Int(1)}


def test_a_schema_names_the_keys_and_the_types() -> None:
    found = decoded(orders().schema(1))
    assert found == Packet(
        "schema",
        {
            "table": "orders",
            "version": Int(1),
            "keys": Packet("keys", {"0": "id"}),
            "columns": Packet("columns", {"id": "bigint", "name": "string"}),
        },
    )


def row(**values: object) -> Packet:
    return Packet("row", values)


def key(number: int) -> Packet:
    return Packet("key", {"id": number})


NO_NAME = {"nulls": Packet("nulls", {"name": Byte(1)})}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            RowChanges(added=[{"id": 3, "name": None}]),
            Packet("change", {**head(1), "op": "INSERT", "key": key(3), "row": row(id=3), **NO_NAME}),
        ),
        (
            RowChanges(modified=[((1,), {"name": "x"})]),
            Packet("change", {**head(1), "op": "UPDATE", "key": key(1), "row": row(name="x")}),
        ),
        (
            RowChanges(modified=[((1,), {"id": 9, "name": None})]),
            Packet("change", {**head(1), "op": "UPDATE", "key": key(1), "row": row(id=9), **NO_NAME}),
        ),
        (RowChanges(removed=[(2,)]), Packet("change", {**head(1), "op": "DELETE", "key": key(2)})),
        (
            RowChanges(removed=[(2,)], modified=[((1,), {"id": 2})], added=[{"id": 1, "name": "y"}]),
            Packet(
                "update",
                {
                    **head(1),
                    "removed": Packet("removed", {"0": Packet("entry", {"key": key(2)})}),
                    "modified": Packet("modified", {"0": Packet("entry", {"key": key(1), "row": row(id=2)})}),
                    "added": Packet("added", {"0": Packet("entry", {"row": row(id=1, name="y")})}),
                },
            ),
        ),
    ],
)
def test_one_change_is_a_change_and_several_are_an_update(changes: RowChanges, expected: Packet) -> None:
    table = orders()
    assert table.apply(changes) == 1
    assert decoded(table.update(1)) == expected


def test_changes_apply_in_the_order_removed_modified_added() -> None:
    table = orders()
    table.apply(RowChanges(removed=[(2,)], modified=[((1,), {"id": 2})], added=[{"id": 1, "name": "y"}]))
    assert table.rows == {(2,): {"id": 2, "name": "n1"}, (1,): {"id": 1, "name": "y"}}


def test_the_time_of_the_commit_is_sent_where_it_is_known() -> None:
    table = orders()
    table.apply(RowChanges(removed=[(1,)]), ts=5)
    assert decoded(table.update(1)).get_value("ts") == 5


@pytest.mark.parametrize(
    "changes",
    [
        RowChanges(),
        RowChanges(removed=[(3,)]),
        RowChanges(removed=[(1,), (1,)]),
        RowChanges(modified=[((1,), {"id": 2})]),
        RowChanges(modified=[((1,), {"id": None})]),
        RowChanges(modified=[((1,), {"size": 1})]),
        RowChanges(removed=[(2,)], added=[{"id": 1, "name": "x"}]),
        RowChanges(added=[{"id": 3}]),
    ],
)
def test_changes_that_do_not_fit_the_rows_change_nothing(changes: RowChanges) -> None:
    table = orders()
    before = dict(table.rows)
    with pytest.raises(LocalProtocolError):
        table.apply(changes)
    assert (table.rows, table.seq, table.oldest) == (before, 0, 1)


def test_a_table_without_keys_takes_inserts_only() -> None:
    table = SourceTable("log", {"line": "string"}, [], epoch=EPOCH)
    table.apply(RowChanges(added=[{"line": "a"}]))
    table.apply(RowChanges(added=[{"line": "a"}]))
    assert [row["line"] for row in table.rows.values()] == ["a", "a"]
    assert decoded(table.update(2)).get_value("key") == Packet("key")
    with pytest.raises(LocalProtocolError):
        table.apply(RowChanges(removed=[(0,)]))


def test_history_holds_the_newest_changes_and_always_the_last_update() -> None:
    table = orders(0, history=3)
    for number in range(4):
        table.apply(RowChanges(added=[{"id": number, "name": "x"}]))
    assert (table.oldest, table.seq) == (2, 4)
    assert [table.can_continue(each) for each in (1, 2, 5, 6)] == [False, True, True, False]
    table.apply(RowChanges(added=[{"id": number, "name": "x"} for number in range(10, 20)]))
    assert (table.oldest, table.seq) == (5, 5)


def test_history_that_nobody_needs_is_released() -> None:
    table = orders(0)
    for number in range(4):
        table.apply(RowChanges(added=[{"id": number, "name": "x"}]))
    table.release(3)
    assert table.oldest == 4
    table.release(9)
    assert (table.oldest, table.can_continue(5)) == (5, True)


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2])])
def test_a_snapshot_comes_in_parts_the_last_of_which_is_marked(count: int, sizes: list[int]) -> None:
    table = orders(count)
    parts = [decoded(each) for each in table.snapshot(PartLimits(rows=2), lambda: ID)]
    assert [len(each.get_value("rows").values) for each in parts] == sizes
    assert [each.get_value("part") for each in parts] == list(range(len(sizes)))
    assert [each.get_value("last") for each in parts] == [0] * (len(sizes) - 1) + [1]
    assert {each.get_value("id") for each in parts} == {ID}
    assert {each.get_value("seq") for each in parts} == {0}


def test_large_rows_make_small_parts() -> None:
    rows = [{"id": number, "name": "x" * 1000} for number in range(20)]
    table = SourceTable("orders", {"id": "bigint", "name": "string"}, ["id"], rows, epoch=EPOCH)
    parts = [decoded(each) for each in table.snapshot(PartLimits(size=10_000), lambda: ID)]
    assert [len(each.get_value("rows").values) for each in parts] == [3, 3, 3, 3, 3, 3, 2]


@pytest.mark.parametrize("value", [None, ""])
def test_long_names_of_columns_count_as_well(value: str | None) -> None:
    columns = ["\u5217" * 200 + str(number) for number in range(30)]
    rows = [{"id": number, **dict.fromkeys(columns, value)} for number in range(100)]
    table = SourceTable("t", {"id": "int", **dict.fromkeys(columns, "string")}, ["id"], rows, epoch=EPOCH)
    parts = list(table.snapshot(PartLimits(size=100_000), lambda: ID))
    assert max(len(each.body) for each in parts) <= 100_000


def test_the_largest_row_is_a_part_of_its_own_that_fits_a_packet() -> None:
    rows = [{"id": number, "name": "x" * size} for number, size in enumerate((100_000, (16 << 20) - 5_000, 100_000))]
    table = SourceTable("orders", {"id": "bigint", "name": "string"}, ["id"], rows, epoch=EPOCH)
    parts = list(table.snapshot(PartLimits(), lambda: ID))
    assert [len(decoded(each).get_value("rows").values) for each in parts] == [1, 1, 1]
    assert max(len(each.body) for each in parts) <= (16 << 20) - 39


def test_a_snapshot_is_of_one_moment_whatever_changes_meanwhile() -> None:
    table = orders(3)
    parts = map(decoded, table.snapshot(PartLimits(rows=1), lambda: ID))
    first = next(parts)
    table.apply(RowChanges(removed=[(2,)], modified=[((3,), {"name": "new"})]))
    rows = [each.get_value("rows").get_value("0").get_value("row") for each in (first, *parts)]
    assert rows == [row(id=1, name="n1"), row(id=2, name="n2"), row(id=3, name="n3")]


def test_a_new_version_adds_and_drops_columns() -> None:
    table = orders(1)
    assert table.set_columns({"id": "bigint", "size": "int"}) == 2
    table.apply(RowChanges(modified=[((1,), {"size": 4})]))
    assert table.rows == {(1,): {"id": 1, "size": 4}}
    assert decoded(table.update(1)).get_value("version") == 2
    assert decoded(table.schema(2)).get_value("columns") == Packet("columns", {"id": "bigint", "size": "int"})
    with pytest.raises(LocalProtocolError, match="not all columns"):
        table.set_columns({"size": "int"})


def test_old_versions_go_with_the_history_that_needs_them() -> None:
    table = orders(1)
    table.apply(RowChanges(modified=[((1,), {"name": "x"})]))
    table.set_columns({"id": "bigint"})
    assert [table.update_version(each) for each in (1, 2)] == [1, 2]
    assert decoded(table.schema(1)).get_value("version") == 1
    table.release(1)
    with pytest.raises(KeyError):
        table.schema(1)


def test_a_new_epoch_numbers_from_one_and_has_no_history() -> None:
    table = orders(1)
    table.apply(RowChanges(modified=[((1,), {"name": "x"})]))
    table.begin_epoch("00001800000000000000")
    assert (table.seq, table.oldest, table.rows) == (0, 1, {(1,): {"id": 1, "name": "x"}})
    table.apply(RowChanges(removed=[(1,)]))
    assert decoded(table.update(1)).get_value("epoch") == "00001800000000000000"


def test_an_update_that_no_receiver_takes_is_refused() -> None:
    table = orders()
    with pytest.raises(OversizedMessage, match="16777177 are allowed"):
        table.apply(RowChanges(modified=[((1,), {"name": "x" * (16 << 20)})]))
    assert (table.seq, table.rows[(1,)]["name"]) == (0, "n1")


def test_rows_that_no_receiver_takes_are_refused_also_if_they_grow() -> None:
    columns, half = {"id": "bigint", "one": "string", "other": "string"}, "x" * (9 << 20)
    row = {"id": 1, "one": half, "other": ""}
    table = SourceTable("t", columns, ["id"], [row], epoch=EPOCH)
    with pytest.raises(OversizedMessage, match=r"t: the row with the key \(1,\) takes 1887\d+ bytes"):
        table.apply(RowChanges(modified=[((1,), {"other": half})]))
    assert table.rows == {(1,): row}
    with pytest.raises(OversizedMessage, match="the row with the key"):
        SourceTable("t", columns, ["id"], [{**row, "other": half}], epoch=EPOCH)


@pytest.mark.parametrize(
    ("added", "error"),
    [
        ({"v": "string", "note": "string"}, OversizedMessage),
        ({"v": "int"}, InvalidValue),
        ({"v": "text"}, InvalidValue),
    ],
)
def test_columns_that_a_row_cannot_have_change_nothing(added: dict[str, str], error: type[Exception]) -> None:
    largest = [{"id": 1, "v": "x" * 16_774_772}]
    table = SourceTable("t", {"id": "int", "v": "string"}, ["id"], largest, epoch=EPOCH)
    with pytest.raises(error):
        table.set_columns({"id": "int", **added})
    assert (table.version, list(table.rows.values())) == (1, largest)
    assert [len(each.body) for each in table.snapshot(PartLimits(), lambda: ID)] == [16_777_177]


def test_a_column_is_a_key_once() -> None:
    with pytest.raises(LocalProtocolError, match="each once"):
        SourceTable("t", {"id": "bigint"}, ["id", "id"], epoch=EPOCH)
