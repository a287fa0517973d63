"""Random changes: they fit their table, repeat with their seed, meet every kind of change, and let no table grow."""

from __future__ import annotations

from collections import Counter

import pytest

from silverfold.connectors.tengi.server.feed.tables import RowChanges, SourceTable
from silverfold.connectors.tengi.server.workload.changer import Changer

EPOCH = "00001700000000000000"
EVERY_TYPE = {
    "id": "bigint",
    "b": "tinyint",
    "s": "smallint",
    "i": "int",
    "f": "float",
    "d": "double",
    "yes": "boolean",
    "text": "string",
    "raw": "binary",
    "price": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "place": "struct<x:double,names:array<string>>",
    "sizes": "map<string,decimal(38,10)>",
}


def changed_table(
    columns: dict[str, str], keys: list[str], count: int, updates: int, *, seed: int = 0
) -> tuple[SourceTable, list[RowChanges]]:
    rows = [dict.fromkeys(columns) | dict.fromkeys(keys, number) for number in range(count)]
    table = SourceTable("t", columns, keys, rows, epoch=EPOCH)
    made: list[RowChanges] = []

    def apply(to: SourceTable, changes: RowChanges) -> None:
        made.append(changes)
        to.apply(changes)

    changer = Changer(table, apply, seed)
    for _ in range(updates):
        changer.change()
    return table, made


def test_one_seed_is_one_sequence_of_changes() -> None:
    one, made = changed_table(EVERY_TYPE, ["id"], 20, 100)
    again, made_again = changed_table(EVERY_TYPE, ["id"], 20, 100)
    assert (one.rows, made) == (again.rows, made_again)
    assert changed_table(EVERY_TYPE, ["id"], 20, 100, seed=1)[1] != made


@pytest.mark.parametrize("count", [0, 1, 40])
def test_all_kinds_of_changes_are_met_and_can_be_written(count: int) -> None:
    table, made = changed_table(EVERY_TYPE, ["id"], count, 400)
    kinds = Counter[str]()
    for changes in made:
        kinds["delete"] += len(changes.removed)
        kinds["insert"] += len(changes.added)
        kinds["move"] += sum("id" in values for _, values in changes.modified)
        kinds["partial"] += sum(len(values) < len(EVERY_TYPE) - 1 for _, values in changes.modified)
        kinds["single"] += len(changes) == 1
        kinds["again"] += sum((row["id"],) in changes.removed for row in changes.added)
    assert set(kinds) == {"delete", "insert", "move", "partial", "single", "again"}
    assert all(kinds.values())
    assert all(any(row[name] is not None for row in table.rows.values()) for name in EVERY_TYPE)


def test_a_table_neither_grows_nor_empties_over_a_long_run() -> None:
    table, _ = changed_table({"id": "int", "n": "int"}, ["id"], 100, 4_000)
    assert 20 < len(table.rows) < 250


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"id": "int"}, ["id"]),
        ({"k": "boolean", "n": "int"}, ["k"]),
        ({"k": "tinyint", "n": "int"}, ["k"]),
        ({"k": "string", "l": "date", "n": "int"}, ["k", "l"]),
        ({"k": "binary", "n": "int"}, ["k"]),
        ({"k": "decimal(3,1)", "n": "int"}, ["k"]),
        ({"line": "string"}, []),
    ],
)
def test_keys_of_each_type_serve_however_few_values_it_has(columns: dict[str, str], keys: list[str]) -> None:
    _, made = changed_table(columns, keys, 0, 500)
    assert sum(map(len, made)) > 100
