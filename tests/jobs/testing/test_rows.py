"""How rows are compared, and what a message shows; without Spark, but for what has a schema."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from silverfold.jobs.testing.rows import assert_rows_equal, assert_same_rows, listed

CELL = Row("Sym", "Value")
RED = "\033[31m"


def rows(*values: Any) -> list[Row]:
    return [CELL("A", value) for value in values]


def message(found: list[Row], expected: list[Row]) -> str:
    """Return the message of the assertion, which must fail; cells that differ are red in it."""
    with pytest.raises(AssertionError) as caught:
        assert_same_rows("t", found, expected)
    return str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.nan, float("nan")),
        (0.0, -0.0),
        ([1.0, math.nan], [1.0, float("nan")]),
        (Row(x=math.nan), Row(x=float("nan"))),
        ({"a": math.nan, "b": 1.0}, {"b": 1.0, "a": float("nan")}),
        ({"a": [{"b": None}]}, {"a": [{"b": None}]}),
        (bytearray(b"\0"), b"\0"),
    ],
)
def test_values_that_sql_takes_for_one_are_equal(one: object, other: object):
    assert_same_rows("t", rows(one), rows(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.nan, None),
        (math.nan, 0.0),
        ([1, 2], [2, 1]),
        ({"a": math.nan}, {"a": 1.0}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {}),
        (datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1)),
        ("1", 1),
    ],
)
def test_other_values_are_not(one: object, other: object):
    assert "lacks 1 that are" in message(rows(one), rows(other))


def test_the_order_of_rows_has_no_meaning_but_how_often_each_is_there_has():
    assert_same_rows("t", rows({"a": 1}, 2, None), rows(None, {"a": 1}, 2))
    assert message(rows(1, 1, 2), rows(2, 1)).startswith("t has 1 rows (left) that are not expected, and lacks 0 ")


def test_the_message_shows_only_rows_that_differ_each_beside_the_one_most_like_it():
    row = Row("Sym", "Bid", "Ask")
    same = row("SAME", 1, math.nan)
    shown = message(
        [same, row("IBM", 20, math.nan), row("NEW", 1, 2.0)], [row("IBM", 21, math.nan), row("AAPL", 10, 3.0), same]
    )

    assert [name for name in ("Sym", "Bid", "Ask") if f"{RED}{name}=" in shown] == ["Bid"]
    lines = re.sub("\033\\[\\d+m", "", shown).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if line.startswith("|")]
    assert cells[1:] == [
        ["Sym=IBM, Bid=20, Ask=nan", "Sym=IBM, Bid=21, Ask=nan"],
        ["Row(Sym='NEW', Bid=1, Ask=2.0)", "None"],
        ["None", "Row(Sym='AAPL', Bid=10, Ask=3.0)"],
    ]


def test_of_many_rows_some_are_shown_and_all_are_counted():
    shown = message(rows(*range(50)), [])
    assert shown.startswith(
        "t has 50 rows (left) that are not expected, and lacks 0 that are (right), of which up to 20"
    )
    assert shown.count("Value=") == 20


def test_columns_are_compared_by_name_and_type_whatever_they_are_called(spark: SparkSession):
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    schema = "`a.b` long, `back``tick` double, m map<string, double>, at timestamp, _position long"
    found = spark.createDataFrame([(1, math.nan, {"x": math.nan}, moment, 7)], schema)
    optional = {"_position"}
    row = {"at": moment, "m": {"x": math.nan}, "back`tick": math.nan, "a.b": 1}

    assert_rows_equal(spark, "t", found, [row], optional=optional)
    assert_rows_equal(spark, "t", found, [{**row, "_position": 7}], optional=optional)
    reordered = spark.createDataFrame([({"x": math.nan}, 1)], "m map<string, double> not null, `a.b` long")
    assert_rows_equal(spark, "t", found.select("`a.b`", "m"), reordered)
    for expected, why in (
        ([{**row, "_position": 8}], "lacks 1 that are"),
        ([{**row, "At": moment}], "t has no column At; its columns: a.b, back`tick, m, at\n?that is all"),
        (found.drop("m"), "has other columns"),
        (found.selectExpr("int(`a.b`) AS `a.b`", "`back``tick`", "m", "at"), "has other columns"),
    ):
        with pytest.raises(AssertionError, match=why):
            assert_rows_equal(spark, "t", found, expected, optional=optional, note="\nthat is all")
    with pytest.raises(AssertionError, match="lacks 1 that are"):
        assert_rows_equal(spark, "t", found, [row])


def test_expected_rows_may_come_from_an_iterator_and_must_be_rows():
    assert listed(row for row in [{"id": 1}]) == [{"id": 1}]
    for none in ({"id": 1}, [("id", 1)]):
        with pytest.raises(TypeError, match="a list of mappings"):
            listed(none)  # type: ignore[arg-type]  # what the annotation forbids
