"""Comparing silver with the source, cell by cell; and what is shown of the differences."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.jobs.demo.check import Difference, compare, has_row, read_silver, same
from silverfold.jobs.demo.show import differences_table
from silverfold.jobs.demo.tables import TABLES
from silverfold.pipelines.places import Place

COLUMNS = {"Sym": TYPES["String"], "Bid": TYPES["Double"], "Sizes": TYPES["IntArray"]}


def rows() -> dict[int, dict[str, Any]]:
    return {
        7: {"Sym": "AAPL", "Bid": math.nan, "Sizes": [1, None]},
        8: {"Sym": None, "Bid": None, "Sizes": None},
        9: {"Sym": "", "Bid": 0.5, "Sizes": []},
    }


def test_equal_rows_are_equal_in_any_order() -> None:
    found = compare(COLUMNS, rows(), reversed(rows().items()))
    assert (found.rows, found.cells, found.different, found.first) == (3, 9, 0, [])


@pytest.mark.parametrize(
    ("row_key", "column", "source", "silver"),
    [
        (7, "Sym", "AAPL", "AAPl"),
        (7, "Sizes", [1, None], [1, 0]),
        (7, "Sizes", [1, None], [1]),
        (7, "Sizes", [1, None], None),
        (8, "Sym", None, ""),
        (8, "Sizes", None, []),
        (9, "Sym", "", None),
        (9, "Bid", 0.5, 0.5000000000000001),
        (9, "Bid", 0.5, math.nan),
    ],
)
def test_a_single_changed_cell_is_found(row_key: int, column: str, source: Any, silver: Any) -> None:
    changed = rows()
    changed[row_key][column] = silver
    found = compare(COLUMNS, rows(), changed.items())
    assert found.different == 1
    assert found.first == [Difference(row_key, column, source, silver)]


def test_a_missing_row_is_found() -> None:
    silver = rows()
    del silver[8]
    found = compare(COLUMNS, rows(), silver.items())
    assert (found.rows, found.cells, found.different) == (2, 6, 1)
    assert found.first == [Difference(8, None, {"Sym": None, "Bid": None, "Sizes": None}, None)]


@pytest.mark.parametrize("row_key", [6, 9, None])
def test_an_extra_row_is_found_be_it_unknown_a_double_or_without_a_key(row_key: int | None) -> None:
    extra = {"Sym": "", "Bid": 0.5, "Sizes": []}
    found = compare(COLUMNS, rows(), [*rows().items(), (row_key, extra)])
    assert (found.rows, found.different) == (3, 1)
    assert found.first == [Difference(row_key, None, None, extra)]


def test_all_differences_are_counted_and_the_first_are_kept() -> None:
    source = {key: {"Sym": "A"} for key in range(50)}
    silver = {key: {"Sym": "B"} for key in range(50)}
    found = compare({"Sym": TYPES["String"]}, source, silver.items())
    assert found.different == 50
    assert [each.row_key for each in found.first] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("kind", "source", "silver"),
    [
        ("DateTime", 1_700_000_000_123_456_000, datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
        ("DateTime", -1_000, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("DateTime", 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        ("DateTimeArray", [None, 0], [None, datetime(1970, 1, 1, tzinfo=UTC)]),
        ("Decimal", Decimal("1.50"), "1.50"),
        ("Decimal", Decimal("1.5"), Decimal("1.50")),
        ("StringSet", ["a", "b"], ["b", "a"]),
        ("Float", math.nan, math.nan),
        ("FloatArray", [math.nan], [math.nan]),
        ("Double", math.inf, math.inf),
        ("Char", "\uffff", "\uffff"),
    ],
)
def test_values_that_are_the_same_in_silvers_types(kind: str, source: Any, silver: Any) -> None:
    assert same(TYPES[kind], source, silver)


@pytest.mark.parametrize(
    ("kind", "source", "silver"),
    [
        ("DateTime", 1_700_000_000_123_456_789, datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
        ("Decimal", Decimal("1.5"), "1.50"),
        ("Decimal", Decimal("1.5"), Decimal("1.51")),
        ("Decimal", Decimal("1.5"), 1.5),
        ("StringSet", ["a", "b"], ["a", "b", "b"]),
        ("StringSet", ["a"], [None]),
        ("StringArray", ["a", "b"], ["b", "a"]),
        ("Double", math.nan, None),
        ("Boolean", True, 1),
        ("Byte", 1, True),
        ("Double", 1.0, 1),
        ("IntArray", [], ""),
    ],
)
def test_values_that_are_not_the_same(kind: str, source: Any, silver: Any) -> None:
    assert not same(TYPES[kind], source, silver)


def test_differences_are_shown_by_cell() -> None:
    silver: dict[int | None, dict[str, Any]] = dict(rows())
    silver[9] = {"Sym": "x", "Bid": 0.5, "Sizes": list(range(30))}
    del silver[8]
    found = compare(COLUMNS, rows(), silver.items())
    out = io.StringIO()
    Console(file=out, width=200).print(differences_table("quotes", found))
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.getvalue().splitlines() if "│" in line]
    assert out.getvalue().startswith("quotes: 3 differences")
    assert shown == [
        ["9", "Sym", "''", "'x'"],
        ["9", "Sizes", "[]", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1…"],
        ["8", "whole row", "{'Sym': None, 'Bid': None, 'Sizes': None}", "no row"],
    ]


def test_the_demos_tables_have_every_column_type_with_nulls_and_nan() -> None:
    made = {name: table.filled(200, Random(1)) for name, table in TABLES.items()}
    assert {kind.name for table in made.values() for kind in table.columns.values()} == set(TYPES)
    for name, table in made.items():
        for column in table.columns.keys() - set(TABLES[name].keys):
            assert None in values_of(table, column)
    assert any(value is not None and math.isnan(value) for value in values_of(made["trades"], "Price"))
    assert values_of(made["baskets"], "Id") == list(range(1, 201))


def values_of(table: LiveTable, column: str) -> list[Any]:
    return [row[column] for row in table.rows().values()]


def test_silver_is_read_whole_with_its_deletion_vectors(spark: Any, warehouse: Path) -> None:
    silver = Place(str(warehouse / "quotes"))
    spark.sql(
        f"CREATE TABLE delta.`{silver}` (_row_key long, Sym string, At timestamp, Fees array<decimal(38, 2)>, x int) "
        "USING DELTA TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(
        f"INSERT INTO delta.`{silver}` SELECT * FROM VALUES "
        "(1L, 'a', TIMESTAMP '2024-01-02 03:04:05.000006Z', array(1.5, NULL), 0), (NULL, 'b', NULL, NULL, 0), "
        "(3L, 'gone', NULL, NULL, 0)"
    )
    spark.sql(f"DELETE FROM delta.`{silver}` WHERE Sym = 'gone'")
    assert sorted(read_silver(silver, ["Sym", "At", "Fees"]), key=lambda row: row[1]["Sym"]) == [
        (1, {"Sym": "a", "At": datetime(2024, 1, 2, 3, 4, 5, 6, UTC), "Fees": [Decimal("1.50"), None]}),
        (None, {"Sym": "b", "At": None, "Fees": None}),
    ]
    assert has_row(silver, 1)
    assert not has_row(silver, 3)


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    nowhere = Place(str(tmp_path / "nowhere"))
    assert list(read_silver(nowhere, ["Sym"])) == []
    assert not has_row(nowhere, 1)
