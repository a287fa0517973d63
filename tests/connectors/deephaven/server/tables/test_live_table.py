"""Live tables: what an update does, and what listeners are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue, LocalProtocolError
from silverfold.connectors.deephaven.server.tables.cells import to_python
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows
from silverfold.connectors.deephaven.server.tables.table_update import TableUpdate
from tests.support.polling import wait_until

ALL_TYPES = {
    "byte": "Byte",
    "boolean": "Boolean",
    "char": "Char",
    "short": "Short",
    "int": "Int",
    "long": "Long",
    "float": "Float",
    "double": "Double",
    "moment": "DateTime",
    "text": "String",
    "amount": "Decimal",
    "tags": "StringSet",
    "longs": "LongArray",
    "texts": "StringArray",
    "chars": "CharArray",
    "booleans": "BooleanArray",
}
FULL_ROW = {
    "byte": 127,
    "boolean": True,
    "char": "é",
    "short": -32767,
    "int": 2**31 - 1,
    "long": 2**63 - 1,
    "float": 0.5,
    "double": float("inf"),
    "moment": 1_500_000_000_123_456_789,
    "text": "",
    "amount": Decimal("1.500"),
    "tags": ["b", "a"],
    "longs": [1, None],
    "texts": ["x", None],
    "chars": ["a", None],
    "booleans": [True, None, False],
}


def quotes() -> LiveTable:
    table = LiveTable({"Sym": "String", "Bid": "Long"})
    with table.update() as update:
        update.add([{"Sym": "AAPL", "Bid": 1}, {"Sym": "IBM", "Bid": 2}, {"Sym": "MSFT", "Bid": 3}])
    return table


def values(rows: Rows) -> dict[str, list[object]]:
    return {name: to_python(rows.types[name], cells) for name, cells in rows.columns.items()}


def deltas_of(table: LiveTable, *before: str) -> list[NetChange]:
    deltas: list[NetChange] = []
    table.listen(deltas.append, before=before)
    return deltas


def test_every_type_keeps_its_values_and_its_null() -> None:
    table = LiveTable(ALL_TYPES)
    with table.update() as update:
        update.add([FULL_ROW, {}])
    assert table.rows() == {0: {**FULL_ROW, "tags": ["a", "b"]}, 1: dict.fromkeys(ALL_TYPES)}


def test_arrow_rows_have_the_types_of_decoded_columns() -> None:
    table = LiveTable(ALL_TYPES)
    with table.update() as update:
        update.add([FULL_ROW, {}], keys=[9, 4])
    arrow = table.to_arrow()
    assert arrow.column("_row_key").to_pylist() == [4, 9]
    assert arrow.to_pylist()[1] == {**FULL_ROW, "_row_key": 9, "tags": ["a", "b"], "amount": "1.500"}
    assert arrow.to_pylist()[0] == {**dict.fromkeys(ALL_TYPES), "_row_key": 4}
    assert arrow.schema.field("amount").type == pa.string()
    assert arrow.schema.field("moment").type == pa.int64()
    assert arrow.schema.field("longs").type == pa.list_(pa.int64())


def test_a_nan_is_a_value_and_not_null() -> None:
    table = LiveTable({"x": "Double"})
    with table.update() as update:
        update.add([{"x": float("nan")}, {"x": None}])
    found = table.to_arrow().column("x")
    assert found.null_count == 1
    assert str(found[0].as_py()) == "nan"


def test_an_update_is_heard_once_as_its_net_effect() -> None:
    table = quotes()
    deltas = deltas_of(table, "Bid")
    with table.update() as update:
        update.modify({0: {"Bid": 10}})
        update.remove([1])
        (new,) = update.add([{"Sym": "T", "Bid": 4}])
        update.modify({int(new): {"Bid": 5}, 0: {"Bid": 11}})
        update.remove(update.add([{"Sym": "gone"}]))
    (delta,) = deltas
    assert delta.update == 2
    assert delta.removed.tolist() == [1]
    assert (delta.added.keys.tolist(), values(delta.added)) == ([3], {"Sym": ["T"], "Bid": [5]})
    assert (delta.modified.keys.tolist(), values(delta.modified)) == ([0], {"Sym": ["AAPL"], "Bid": [11]})
    assert {name: keys.tolist() for name, keys in delta.written.items()} == {"Bid": [0]}
    assert (delta.before.keys.tolist(), values(delta.before)) == ([0, 1], {"Bid": [1, 2]})


def test_a_row_removed_and_added_again_in_one_update_is_replaced() -> None:
    table = quotes()
    deltas = deltas_of(table)
    with table.update() as update:
        update.remove([1])
        update.add([{"Sym": "new"}], keys=[1])
        update.modify({1: {"Bid": 7}})
    assert deltas[0].removed.tolist() == [1]
    assert deltas[0].modified.keys.tolist() == []
    assert values(deltas[0].added) == {"Sym": ["new"], "Bid": [7]}
    assert table.rows()[1] == {"Sym": "new", "Bid": 7}


def test_what_was_captured_does_not_change_with_later_updates() -> None:
    table = quotes()
    deltas = deltas_of(table)
    snapshot = table.snapshot()
    with table.update() as update:
        update.modify({0: {"Bid": 10}})
    with table.update() as update:
        update.modify({0: {"Bid": 20}})
        update.remove([2])
    assert values(deltas[0].modified) == {"Sym": ["AAPL"], "Bid": [10]}
    assert values(snapshot.rows) == {"Sym": ["AAPL", "IBM", "MSFT"], "Bid": [1, 2, 3]}
    with pytest.raises(ValueError, match="read-only"):
        snapshot.rows.columns["Bid"][0] = 5


def test_nothing_of_a_block_that_raises_is_applied() -> None:
    table = quotes()
    deltas = deltas_of(table)

    def interrupted() -> None:
        with table.update() as update:
            update.add([{"Sym": "T"}])
            update.remove([0])
            raise KeyError("interrupted")

    with pytest.raises(KeyError, match="interrupted"):
        interrupted()
    assert (deltas, table.updates, len(table)) == ([], 1, 3)
    with table.update() as update:
        assert update.add([{"Sym": "next"}]).tolist() == [3]


def test_a_block_without_net_effect_is_no_update() -> None:
    table = quotes()
    deltas = deltas_of(table)
    with table.update() as update:
        update.remove(update.add([{"Sym": "T"}]))
        update.remove_range(100, 10**12)
    assert (deltas, table.updates) == ([], 1)


def test_a_removed_range_may_be_far_wider_than_the_rows_in_it() -> None:
    table = quotes()
    deltas = deltas_of(table)
    with table.update() as update:
        update.add([{"Sym": "far"}], keys=[10**12])
        update.remove_range(1, 10**12)
    assert deltas[0].removed.tolist() == [1, 2]
    assert list(table.rows()) == [0]


def test_keys_go_on_after_the_largest_ever_used() -> None:
    table = quotes()
    with table.update() as update:
        update.add([{}], keys=[50])
        update.remove([50])
        assert update.add([{}, {}]).tolist() == [51, 52]


def test_columns_of_arrays_are_added_in_the_order_given() -> None:
    table = LiveTable({"a": "Int", "b": "String"})
    with table.update() as update:
        keys = update.add_columns({"a": np.array([1, 2, 3]), "b": pa.array(["x", None, "z"])}, keys=[7, 5, 6])
    assert keys.tolist() == [7, 5, 6]
    assert table.rows() == {5: {"a": 2, "b": None}, 6: {"a": 3, "b": "z"}, 7: {"a": 1, "b": "x"}}


def test_modified_columns_of_arrays_leave_the_others() -> None:
    table = quotes()
    with table.update() as update:
        update.modify_columns([2, 0], {"Bid": [30, 10]})
    assert [row["Bid"] for row in table.rows().values()] == [10, 2, 30]
    assert [row["Sym"] for row in table.rows().values()] == ["AAPL", "IBM", "MSFT"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda update: update.add([{"Nope": 1}]), "there is no column 'Nope'; the columns are Sym, Bid"),
        (lambda update: update.add([{}], keys=[1]), "row key 1 is in use"),
        (lambda update: update.add([{}, {}], keys=[8, 8]), "must not be negative or repeat"),
        (lambda update: update.add([{}], keys=[-1]), "must not be negative or repeat"),
        (lambda update: update.add([{}], keys=[8, 9]), "2 row keys for 1 rows"),
        (lambda update: update.add([{}], keys=[1.5]), "64-bit integers"),
        (lambda update: update.add_columns({"Sym": ["a"], "Bid": [1, 2]}), "of one length"),
        (lambda update: update.modify({9: {"Bid": 1}}), "no row with key 9"),
        (lambda update: update.remove([0, 0]), "must not be negative or repeat"),
        (lambda update: (update.remove([0]), update.modify({0: {}})), "no row with key 0"),
    ],
)
def test_a_wrong_change_names_what_is_wrong(change: Callable[[TableUpdate], object], complaint: str) -> None:
    with quotes().update() as update, pytest.raises(LocalProtocolError, match=complaint):
        change(update)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Long", 1.5),
        ("Long", True),
        ("Long", "1"),
        ("Byte", 200),
        ("Boolean", 1),
        ("Char", "ab"),
        ("Char", "\U0001f600"),
        ("Float", 1e300),
        ("Double", "x"),
        ("DateTime", "2020"),
        ("String", 1),
        ("String", "\ud800"),
        ("Decimal", 1.5),
        ("Decimal", Decimal("NaN")),
        ("StringSet", "ab"),
        ("StringSet", [None]),
        ("IntArray", [2**31]),
        ("IntArray", 3),
    ],
)
def test_a_value_of_another_type_is_refused_and_its_column_named(kind: str, value: object) -> None:
    table = LiveTable({"c": kind})
    with table.update() as update, pytest.raises(InvalidValue, match="column c: not of type") as caught:
        update.add([{"c": value}])
    assert caught.value.reason == "column-value"


def test_a_table_of_unknown_types_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="'a': 'Number'"):
        LiveTable({"a": "Number"})
    with pytest.raises(LocalProtocolError, match="at least one column"):
        LiveTable({})


def test_an_update_cannot_be_used_after_its_block_nor_inside_another() -> None:
    table = quotes()
    with table.update() as update:
        with pytest.raises(LocalProtocolError, match="open in this thread"), table.update():
            pass
        update.remove([0])
    with pytest.raises(LocalProtocolError, match="block has ended"):
        update.remove([1])


def test_a_listener_hears_every_update_after_its_snapshot_exactly_once() -> None:
    table = LiveTable({"n": "Long"})
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with table.update() as update:
                update.add([{"n": 1}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            deltas: list[NetChange] = []
            snapshot, detach = table.listen_from(deltas.append, ["n"])
            wait_until(lambda deltas=deltas: len(deltas) >= 3, "three updates", pause=0)
            detach()
            assert len(snapshot.rows) == snapshot.update
            assert [delta.update for delta in deltas[:3]] == [snapshot.update + n for n in (1, 2, 3)]
    finally:
        stop.set()
        writer.join()


def test_a_detached_listener_hears_nothing() -> None:
    table = quotes()
    deltas: list[NetChange] = []
    detach = table.listen(deltas.append)
    detach()
    with table.update() as update:
        update.remove([0])
    assert deltas == []


KEYS = st.integers(0, 12)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("modify"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("remove"), KEYS, st.just(0)),
        st.tuples(st.just("range"), KEYS, st.integers(0, 6)),
    ),
    max_size=12,
)


@given(st.lists(CHANGES, max_size=6))
def test_updates_do_what_a_dictionary_does_and_deltas_lead_from_state_to_state(
    history: list[list[tuple[str, int, int]]],
) -> None:
    table = LiveTable({"n": "Long"})
    model: dict[int, int] = {}
    replayed: dict[int, int] = {}

    def replay(delta: NetChange) -> None:
        for key in delta.removed.tolist():
            del replayed[key]
        for rows, exists in ((delta.added, False), (delta.modified, True)):
            for key, value in zip(rows.keys.tolist(), rows.columns["n"].tolist(), strict=True):
                assert (key in replayed) is exists
                replayed[key] = value

    table.listen(replay)
    for changes in history:
        with table.update() as update:
            for kind, key, value in changes:
                if kind == "add" and key not in model:
                    update.add([{"n": value}], keys=[key])
                    model[key] = value
                elif kind == "modify" and key in model:
                    update.modify({key: {"n": value}})
                    model[key] = value
                elif kind == "remove" and key in model:
                    update.remove([key])
                    del model[key]
                elif kind == "range":
                    update.remove_range(key, key + value)
                    model = {held: n for held, n in model.items() if not key <= held <= key + value}
        assert {key: row["n"] for key, row in table.rows().items()} == model
        assert replayed == model
