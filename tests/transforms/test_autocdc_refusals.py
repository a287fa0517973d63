"""What AUTO CDC refuses: before the table is touched, so that a batch put right can follow under the same number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from silverfold.conf.errors import ApplyError, NullKey, SchemaDrift, UnusableKey
from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.merge import Recorded
from tests.transforms.autocdc.test_apply import TABLE, apply, table


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ((None, "Ann", "Rome", "U", 1), {}),
        ((1, "Ann", "Rome", "U", None), {}),
        ((1, "Ann", "Rome", "D", None), {"stored_as_scd_type": 2}),
        ((1, "Ann", None, "U", 1), {"sequence_by": lambda: F.struct("seq", "city")}),
        ((None, "Ann", "Rome", "U", 1), {"ignore_null_updates": True}),
    ],
)
def test_keys_and_order_are_never_null_and_a_batch_that_says_so_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, row: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(NullKey):
        apply(spark, tmp_path / "users", 1, row, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": []}, "keys is empty"),
        ({"keys": ["nr"]}, "the source lacks nr"),
        ({"keys": lambda: [F.upper("name")]}, "the source lacks "),
        ({"keys": lambda: [F.col("id").cast("string")]}, "an expression is to be made a column of it first"),
        (
            {"column_list": lambda: [F.upper("city").alias("name")], "except_column_list": None},
            "an expression is to be made a column of it first",
        ),
        ({"column_list": ["name"]}, "column_list and except_column_list are both given"),
        ({"stored_as_scd_type": 3}, "stored_as_scd_type is 3, neither 1 nor 2"),
        ({"stored_as_scd_type": "2", "apply_as_truncates": "op = 'T'"}, "apply_as_truncates is for"),
        ({"track_history_column_list": ["name"]}, "tracked columns are for stored_as_scd_type 2"),
        ({"stored_as_scd_type": 2, "track_history_column_list": ["op"]}, "names op: no column of the table"),
        (
            {"stored_as_scd_type": 2, "track_history_column_list": [], "track_history_except_column_list": []},
            "track_history_column_list and track_history_except_column_list are both given",
        ),
        ({"keys": ["id", "ID"]}, "keys is empty, or names a column twice"),
        ({"apply_as_deletes": "op"}, "apply_as_deletes is string, not a condition"),
        ({"recorded": Recorded("users", 1 << 63)}, "recorded is .*: it names whose batch this is"),
        ({"recorded": Recorded("", 1)}, "recorded is .*: it names whose batch this is"),
        ({"sequence_by": lambda: F.create_map(F.lit(1), "seq")}, "sequence_by is map<int,bigint>, which has no order"),
    ],
)
def test_wrong_parameters_are_named(spark: SparkSession, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply(spark, tmp_path / "users", 1, (1, "Ann", "Rome", "U", 1), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"keys": "id"},
        {"keys": [1]},
        {"sequence_by": 1},
        {"apply_as_deletes": True},
        {"apply_as_truncates": 0},
        {"column_list": "name", "except_column_list": None},
        {"stored_as_scd_type": 2.0},
        {"stored_as_scd_type": True},
        {"ignore_null_updates": "yes"},
        {"recorded": ("users", 1)},
        {"tombstone_horizon": 5},
    ],
)
def test_parameters_of_wrong_types_are_refused_as_spark_does(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(PySparkTypeError, match="NOT_EXPECTED_TYPE"):
        apply(spark, tmp_path / "users", 1, (1, "Ann", "Rome", "U", 1), **options)


def test_what_is_settled_is_understood_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        apply(spark, tmp_path / "users", 1, (1, "Ann", "Rome", "U", 1), tombstone_horizon="t.seq < 1")

    assert not list(tmp_path.iterdir())


def test_a_relative_path_is_refused_before_anything_is_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="path is 'users', neither an absolute path nor a URL"):
        apply(spark, "users", 1, (1, "Ann", "Rome", "U", 1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{}, {"stored_as_scd_type": 2}, {"ignore_null_updates": True}])
@pytest.mark.parametrize("rows", [[(1, "Ann", "Rome", 1)], []])
def test_a_table_of_others_is_refused(
    spark: SparkSession, tmp_path: Path, rows: list[Any], options: dict[str, Any]
) -> None:
    path = tmp_path / "users"
    spark.createDataFrame(rows, TABLE).write.format("delta").save(str(path))
    with pytest.raises(ValueError, match="made by others or with other parameters"):
        apply(spark, path, 1, (1, "Ann", "Oslo", "U", 2), **options)

    assert [each.name for each in tmp_path.iterdir()] == ["users"]


@pytest.mark.parametrize(
    ("options", "beside", "change", "named"),
    [
        (
            {"apply_as_deletes": "TRUE"},
            "tombstones",
            "SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            r"delta\.appendOnly",
        ),
        pytest.param(
            {"ignore_null_updates": True},
            "changes",
            "ADD CONSTRAINT known CHECK (name <> 'X')",
            r"delta\.constraints\.known",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_batch_refused_by_its_table_is_not_remembered(
    spark: SparkSession, tmp_path: Path, *, options: dict[str, Any], beside: str, change: str, named: str
) -> None:
    """By its columns, by the parameters that it was made with, or by a constraint, which it gets no more."""
    path, other = tmp_path / "users", {"ignore_null_updates": "ignore_null_updates" not in options}
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), **options)
    with pytest.raises(SchemaDrift, match="the source lacks column city now"):
        apply(spark, path, 2, (2, "Bob", "Bern", "U", 2), except_column_list=["op", "seq", "city"], **options)
    with pytest.raises(ValueError, match="made by others or with other parameters"):
        apply(spark, path, 2, (1, None, "Oslo", "U", 2), **{**options, **other})
    spark.sql(f"ALTER TABLE delta.`{path}` {change}").collect()
    with pytest.raises(ValueError, match=f"the table has a constraint, {named}"):
        apply(spark, path, 2, (1, "X", "Rome", "U", 2), **options)

    assert [row["id"] for row in table(spark, tmp_path / f"users__{beside}").collect()] == [1]


def test_a_column_called_as_one_of_deltas_own_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    source = own_session(spark).sql("SELECT 1 AS id, 2 AS _metadata, 1 AS seq")
    with pytest.raises(SchemaDrift, match="_metadata, which is a name of Delta's"):
        apply_changes(source, str(tmp_path / "t"), keys=["id"], sequence_by="seq", recorded=Recorded("t", 0))


def test_a_float_is_no_key(spark: SparkSession, tmp_path: Path) -> None:
    source = own_session(spark).range(1).select(F.col("id").cast("double").alias("id"), F.lit(1).alias("seq"))
    with pytest.raises(UnusableKey, match="id is double"):
        apply_changes(source, str(tmp_path / "t"), keys=["id"], sequence_by="seq", recorded=Recorded("t", 1))


@pytest.mark.parametrize("value", ["array(NULL)", "struct()", "map('k', INTERVAL '1' DAY)"])
def test_a_type_that_delta_does_not_store_is_refused_before_anything_is_made(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    batch = spark.sql(f"SELECT 1 AS id, 1 AS seq, {value} AS odd")
    with pytest.raises(ApplyError, match=r"column odd is .*, which Delta does not store"):
        apply_changes(batch, str(tmp_path / "t"), keys=["id"], sequence_by="seq", recorded=Recorded("t", 1))
    assert not list(tmp_path.iterdir())
