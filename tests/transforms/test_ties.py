"""Of two rows that claim one place the same one wins, whichever comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.changes import struct_type
from silverfold.transforms.merge import Recorded
from silverfold.transforms.ties import rank, rank_sql

NOTHING_BUT_A_TIE = {"keys": ["id"], "sequence_by": "seq", "except_column_list": ["seq"]}
UNLIKE = [
    ("map(X'FF', 1, X'FE', 1)", "map(X'FE', 1, X'FF', 2)", "string(m)"),
    ("array(map('k', 0.0D))", "array(map('k', -0.0D))", "string(m)"),
    ("parse_json('[1]')", "parse_json('[2]')", "string(m)"),
    ("CAST(DATE'2020-01-01' AS VARIANT)", "CAST('2020-01-01' AS VARIANT)", "schema_of_variant(m)"),
    ("array(NULL, parse_json('null'))", "array(parse_json('null'), NULL)", "string(m[0] IS NULL)"),
    ("named_struct('f', float('-0.0'))", "named_struct('f', float('0.0'))", "string(m)"),
]
"""Values that Spark's own comparison, or JSON, does not tell apart by what they are."""


def table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def test_rows_compare_alike_in_any_order_of_columns_and_any_time_zone(spark: SparkSession) -> None:
    at = "TIMESTAMP'2020-11-01 05:30:00.000001Z'"  # 01:30, before clocks go back, in New York
    moment = f"to_variant_object(named_struct('at', {at}))"
    found = []
    for zone, columns in (("UTC", f"1 AS a, {moment} AS b"), ("America/New_York", f"{moment} AS b, 1 AS a")):
        session = own_session(spark)
        session.conf.set("spark.sql.session.timeZone", zone)
        row = session.sql(f"SELECT struct({columns}) AS r, {columns}")
        kind = struct_type(row, "r")
        found += row.select(rank(kind, "r").alias("rank")).collect()
        row.createOrReplaceTempView("t")
        found += session.sql(f"SELECT {rank_sql(kind, 't')} AS rank FROM t").collect()
    assert [each.rank[0] for each in found] == [2] * 4
    expected = ('{"value":{"at":"2020-11-01 05:30:00.000001+00:00"}}', "OBJECT<at: TIMESTAMP>")
    assert {tuple(each.rank[1]) for each in found} == {(1, expected)}


@pytest.mark.parametrize("unlike", [UNLIKE[0], *(pytest.param(each, marks=pytest.mark.nightly) for each in UNLIKE[1:])])
@pytest.mark.parametrize("kind", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_of_two_values_of_any_type_the_same_one_wins_in_any_order(
    spark: SparkSession, tmp_path: Path, unlike: tuple[str, str, str], kind: Literal[1, 2]
) -> None:
    one, other, shown = unlike
    there, back = "SELECT id, {} AS m, 1 AS seq FROM range(3)", "SELECT id + 3 AS id, {} AS m, 1 AS seq FROM range(3)"
    batches = [(there.format(one), back.format(other)), (there.format(other), back.format(one)), (back.format(one),)]
    for number, batch in enumerate(batches):
        source = own_session(spark).sql(" UNION ALL ".join(batch))
        path, recorded = str(tmp_path / "t"), Recorded("t", number)
        apply_changes(source, path, stored_as_scd_type=kind, recorded=recorded, **NOTHING_BUT_A_TIE)

    found = table(spark, tmp_path / "t").selectExpr("id", f"{shown} AS m").collect()
    assert sorted(row.id for row in found) == list(range(6))
    assert len({row.m for row in found}) == 1


@pytest.mark.nightly
def test_a_version_lasts_while_maps_are_equal_and_not_while_zeros_have_other_signs(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, value in enumerate(["0.0D", "0.0D", "-0.0D"]):
        source = own_session(spark).sql(f"SELECT 1 AS id, map(X'FF', {value}) AS m, {number} AS seq")
        apply_changes(
            source,
            str(tmp_path / "t"),
            stored_as_scd_type=2,
            track_history_except_column_list=[],
            recorded=Recorded("t", number),
            **NOTHING_BUT_A_TIE,
        )

    rows = table(spark, tmp_path / "t").selectExpr("__START_AT", "__END_AT", "string(map_values(m)[0]) AS value")
    assert sorted(map(tuple, rows.collect())) == [(0, 2, "0.0"), (2, None, "-0.0")]


@pytest.mark.nightly
def test_of_a_tie_a_variant_that_is_null_is_the_least(spark: SparkSession, tmp_path: Path) -> None:
    for number, cells in enumerate(["CAST(NULL AS VARIANT) AS a, 1 AS b", "parse_json('1') AS a, INT(NULL) AS b"]):
        source = own_session(spark).sql(f"SELECT 1 AS id, {cells}, 1 AS seq")
        apply_changes(source, str(tmp_path / "t"), recorded=Recorded("t", number), **NOTHING_BUT_A_TIE)

    (row,) = table(spark, tmp_path / "t").selectExpr("string(a) AS a", "b").collect()
    assert tuple(row) == ("1", None)
