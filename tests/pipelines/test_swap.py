"""The side table of a rebuild: right for the old table and for the new one, and for a cut that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.swap import rows_of_both
from transforms.aside import in_force

Aside: TypeAlias = tuple[int, str, int, int | None]
"""Key, column a, where the row was put aside, and where that ended."""


def aside(spark: SparkSession, rows: Sequence[Aside]) -> DataFrame:
    return spark.createDataFrame(rows, "k LONG, a STRING, _since LONG, _over LONG")


def both(
    spark: SparkSession, new: Sequence[Aside], old: Sequence[Aside], *, table: Sequence[int], position: int, goal: int
) -> dict[int, list[tuple[int, str]]]:
    """Return what is in force at some positions of the table."""
    rebuilt = spark.createDataFrame([(key,) for key in table], "k LONG")
    sides = (aside(spark, new), aside(spark, old))
    rows = rows_of_both(*sides, rebuilt, keys=["k"], position=position, goal=goal).persist()
    found = {at: in_force(rows, at).select("k", "a").collect() for at in {position, goal, goal + 3}}
    rows.unpersist()
    return {at: sorted((row.k, row.a) for row in found[at]) for at in found}


def test_at_one_position_rows_that_only_the_old_table_needs_stay_and_a_row_nobody_needs_goes(spark: SparkSession):
    new, old = [(1, "new", 5, None)], [(1, "old", 4, None), (2, "old", 4, None), (3, "nowhere", 4, None)]

    found = both(spark, new, old, table=[2, 9], position=7, goal=7)

    assert found[7] == [(1, "new"), (2, "old")]


def test_what_a_cut_under_way_has_written_counts_once_it_is_committed_and_then_alone(spark: SparkSession):
    new = [(1, "new", 5, None), (4, "new", 5, None)]
    old = [(1, "old", 4, 10), (2, "old", 4, 10), (3, "over", 2, 6), (1, "coming", 10, None), (8, "coming", 10, None)]

    found = both(spark, new, old, table=[2, 9], position=7, goal=7)

    assert found == {7: [(1, "new"), (2, "old"), (4, "new")], 10: [(1, "coming"), (8, "coming")]}


@pytest.mark.parametrize("position", [6, -1])
def test_an_old_table_that_is_behind_keeps_its_own_rows_until_the_new_one_is_there(spark: SparkSession, position: int):
    new = [(1, "new", 5, None), (4, "new", 7, None)]
    old = [(1, "old", 4, 7), (2, "old", 4, None), (4, "died", 7, None)]

    found = both(spark, new, old, table=[2, 9], position=position, goal=7)

    assert found[position] == ([(1, "old"), (2, "old")] if position == 6 else [])
    assert found[7] == found[10] == [(1, "new"), (4, "new")]
