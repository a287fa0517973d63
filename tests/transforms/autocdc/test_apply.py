"""Changes of anybody's, applied with the parameters of Spark's AUTO CDC."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from silverfold.conf.errors import SchemaDrift
from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.merge import Recorded
from silverfold.transforms.tombstones import read

SOURCE = "id int, name string, city string, op string, seq bigint"
TABLE = "id int, name string, city string, _position bigint"


def apply(spark: SparkSession, path: Path | str, number: int, *rows: tuple[Any, ...], **options: Any) -> None:
    """Apply a batch. Options that are functions are called, for no column can be made before there is a session."""
    source = own_session(spark).createDataFrame(list(rows), SOURCE)
    apply_changes(
        source,
        str(path),
        **{
            "keys": ["id"],
            "sequence_by": "seq",
            "apply_as_deletes": "op = 'D'",
            "except_column_list": ["op", "seq"],
            "recorded": Recorded("users", number),
            **{name: value() if callable(value) else value for name, value in options.items()},
        },
    )


def table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def assert_table(spark: SparkSession, path: Path, *rows: tuple[Any, ...]) -> None:
    assert_df_equality(table(spark, path), spark.createDataFrame(list(rows), TABLE), ignore_row_order=True)


@pytest.mark.nightly
def test_of_each_key_the_last_change_wins_in_whatever_order_they_come(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), (2, "Bob", "Bern", "U", 2), (1, "Ann", "Oslo", "U", 4))
    apply(spark, path, 2, (1, "Ann", "Paris", "U", 3), (3, "Cy", "Bonn", "U", 5), (2, None, None, "D", 6))
    apply(spark, path, 3, (2, "Bob", "Bern", "U", 2), (3, "Cy", None, "U", 7), (2, "Bob", "Late", "U", 5))

    assert_table(spark, path, (1, "Ann", "Oslo", 4), (3, "Cy", None, 7))


@pytest.mark.nightly
def test_a_batch_applied_twice_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1))
    apply(spark, path, 1, (1, "Ann", "Oslo", "U", 9))

    assert_table(spark, path, (1, "Ann", "Rome", 1))


@pytest.mark.nightly
def test_nulls_can_leave_columns_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), ignore_null_updates=True)
    apply(spark, path, 2, (1, None, "Oslo", "U", 2), (4, "Di", None, "U", 3), ignore_null_updates=True)

    late_and_new = [(1, "Late", None, "U", 1), (1, None, "Bern", "U", 4)]
    apply(spark, path, 3, *late_and_new, ignore_null_updates=True)

    assert_table(spark, path, (1, "Ann", "Bern", 4), (4, "Di", None, 3))


def test_the_tables_columns_can_be_listed_and_keys_are_always_among_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), column_list=["city"], except_column_list=None)

    assert table(spark, path).columns == ["id", "city", "_position"]


@pytest.mark.nightly
def test_every_version_is_kept_and_late_ones_find_their_place(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), (1, "Ann", "Oslo", "U", 5), stored_as_scd_type=2)
    apply(spark, path, 2, (1, "Ann", "Paris", "U", 3), (1, None, None, "D", 8), stored_as_scd_type=2)
    apply(spark, path, 3, (2, None, None, "D", 9), (2, "Bob", "Bern", "U", 7), stored_as_scd_type=2)

    expected = spark.createDataFrame(
        [
            (1, "Ann", "Rome", 1, 3),
            (1, "Ann", "Paris", 3, 5),
            (1, "Ann", "Oslo", 5, 8),
            (2, "Bob", "Bern", 7, 9),
        ],
        "id int, name string, city string, __START_AT bigint, __END_AT bigint",
    )
    assert_df_equality(table(spark, path), expected, ignore_row_order=True)


@pytest.mark.nightly
def test_deletes_are_remembered_until_nothing_older_can_come(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    remembered = []
    for number in range(4):
        deletes = [(10 * number + at, None, None, "D", 10 * number + at) for at in range(5)]
        apply(spark, path, number, *deletes, tombstone_horizon=f"t._position < {10 * number - 10}")
        remembered.append(read(spark, f"{path}__tombstones").count())

    assert remembered == [5, 10, 10, 10]


@pytest.mark.parametrize("kind", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_only_a_batch_with_deletes_writes_tombstones(spark: SparkSession, tmp_path: Path, kind: int) -> None:
    """And a path with a slash behind it names the same table, and the same tombstones."""
    path, written = tmp_path / "users", []
    for number, op in enumerate("UDU", 1):
        more = [(2, None, None, "D", 5)] if op == "D" else []
        apply(spark, path, number, (1, "Ann", "Rome", op, 2 * number), *more, stored_as_scd_type=kind)
        written.append(DeltaTable(f"{path}__tombstones").version())
    late = [(1, "Ann", "Oslo", "U", 3), (2, "Bob", "Bern", "U", 1)]  # before the deletes
    apply(spark, f"{path}/", 4, *late, (3, "Cy", "Bonn", "U", 1), stored_as_scd_type=kind)

    assert written == [0, 1, 1]
    cities = [row.city for row in table(spark, path).collect()]
    assert [cities.count(city) for city in ("Oslo", "Bern", "Bonn")] == [kind - 1, kind - 1, 1]


@pytest.mark.nightly
def test_the_order_may_get_a_wider_type_in_a_batch_without_deletes(spark: SparkSession, tmp_path: Path) -> None:
    path, narrow = tmp_path / "users", {"sequence_by": lambda: F.col("seq").cast("int")}
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), **narrow)
    apply(spark, path, 2, (1, None, None, "D", 3), **narrow)
    apply(spark, path, 3, (2, "Bob", "Bern", "U", 1 << 40))
    apply(spark, path, 4, (1, "Ann", "Late", "U", 2))

    assert_table(spark, path, (2, "Bob", "Bern", 1 << 40))
    assert [tuple(row) for row in read(spark, f"{path}__tombstones").collect()] == [(1, 3)]


VERSION = "id int, name string, city string, __START_AT bigint, __END_AT bigint"


def assert_versions(spark: SparkSession, path: Path, *rows: tuple[Any, ...]) -> None:
    assert_df_equality(table(spark, path), spark.createDataFrame(list(rows), VERSION), ignore_row_order=True)


@pytest.mark.nightly
def test_late_versions_end_at_the_delete_that_follows_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, None, None, "D", 2), (1, None, None, "D", 4), stored_as_scd_type="2")
    apply(spark, path, 2, (1, "Ann", "Rome", "U", 1), (1, "Ann", "Oslo", "U", 3), stored_as_scd_type="2")

    assert_versions(spark, path, (1, "Ann", "Rome", 1, 2), (1, "Ann", "Oslo", 3, 4))


@pytest.mark.nightly
def test_every_delete_of_a_history_is_remembered_until_nothing_older_can_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, *((1, None, None, "D", at) for at in (2, 4, 6)), stored_as_scd_type=2)
    apply(spark, path, 2, (1, None, None, "D", 8), stored_as_scd_type=2, tombstone_horizon="t._position < 5")

    assert sorted(row._position for row in read(spark, f"{path}__tombstones").collect()) == [6, 8]


@pytest.mark.nightly
def test_a_late_partial_update_completes_the_versions_after_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    partial = {"stored_as_scd_type": 2, "ignore_null_updates": True}
    apply(spark, path, 1, (1, "Ann", None, "U", 1), (1, "Anne", None, "U", 5), **partial)
    apply(spark, path, 2, (1, None, "Rome", "U", 3), **partial)

    assert_versions(spark, path, (1, "Ann", None, 1, 3), (1, "Ann", "Rome", 3, 5), (1, "Anne", "Rome", 5, None))


@pytest.mark.nightly
def test_a_late_partial_update_gives_a_row_what_no_later_one_has_sent(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Anne", None, "U", 5), ignore_null_updates=True)
    apply(spark, path, 2, (1, "Ann", "Rome", "U", 3), ignore_null_updates=True)

    assert_table(spark, path, (1, "Anne", "Rome", 5))


@pytest.mark.nightly
@pytest.mark.parametrize("swapped", [False, True])
def test_of_rows_with_one_sequence_the_fullest_wins_then_the_larger_and_any_over_a_delete(
    spark: SparkSession, tmp_path: Path, swapped: bool
) -> None:
    path = tmp_path / "users"
    first = [(1, "Ann", None, "U", 1), (2, "Bob", "Bern", "U", 1), (3, "Cy", "Bonn", "U", 1)]
    second = [(1, "Al", "Rome", "U", 1), (2, None, None, "D", 1), (3, "Di", "Bari", "U", 1)]
    apply(spark, path, 1, *(second if swapped else first))
    apply(spark, path, 2, *(first if swapped else second))

    assert_table(spark, path, (1, "Al", "Rome", 1), (2, "Bob", "Bern", 1), (3, "Cy", "Bonn", 1))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [1, 2])
def test_which_row_wins_does_not_depend_on_the_order_of_columns(
    spark: SparkSession, tmp_path: Path, kind: Literal[1, 2]
) -> None:
    one, other = "SELECT 1 AS id, 1 AS a, 2 AS b", "SELECT 1 AS id, 1 AS b, 2 AS a"
    for name, batches in (("there", (one, other)), ("back", (other, one))):
        for number, batch in enumerate(batches):
            apply_changes(
                own_session(spark).sql(batch),
                str(tmp_path / name),
                keys=["id"],
                sequence_by=F.lit(5),
                stored_as_scd_type=kind,
                recorded=Recorded("t", number),
            )

    rows = [table(spark, tmp_path / name).select("a", "b").collect() for name in ("there", "back")]
    assert rows == [[Row(a=2, b=1)]] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [1, 2])
def test_columns_are_followed_and_a_batch_that_lacks_one_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, kind: Literal[1, 2]
) -> None:
    def batch(number: int, rows: str) -> None:
        apply_changes(
            own_session(spark).sql(f"SELECT * FROM VALUES {rows}"),
            str(tmp_path / "t"),
            keys=["id"],
            sequence_by="seq",
            apply_as_deletes="a = 0",
            except_column_list=["seq"],
            stored_as_scd_type=kind,
            recorded=Recorded("t", number),
        )

    batch(1, "(1, 1.50BD, 5), (2, 200.25BD, 5) AS t(id, a, seq)")
    batch(2, "(1, 3.50BD, 'x', 6) AS t(id, a, `b (new)`, seq)")
    with pytest.raises(SchemaDrift, match=r"lacks column b \(new\) now"):
        batch(3, "(2, 0.00BD, 9) AS t(id, a, seq)")
    batch(4, "(2, 4.50BD, 'y', 7) AS t(id, a, `b (new)`, seq)")

    rows = table(spark, tmp_path / "t").where("TRUE" if kind == 1 else "__END_AT IS NULL").orderBy("id").collect()
    assert [(row.id, str(row.a), row["b (new)"]) for row in rows] == [(1, "3.50", "x"), (2, "4.50", "y")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "tracked",
    [
        {"track_history_column_list": ["city"]},
        {"track_history_except_column_list": lambda: [F.col("name")]},
    ],
)
def test_a_version_lasts_while_tracked_columns_are_equal_and_a_late_change_splits_it(
    spark: SparkSession, tmp_path: Path, tracked: dict[str, Any]
) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "A", "Rome", "U", 1), (1, "B", "Rome", "U", 5), stored_as_scd_type=2, **tracked)
    apply(spark, path, 2, (1, "C", "Oslo", "U", 3), stored_as_scd_type=2, **tracked)

    assert_versions(spark, path, (1, "A", "Rome", 1, 3), (1, "C", "Oslo", 3, 5), (1, "B", "Rome", 5, None))


@pytest.mark.nightly
def test_a_truncate_deletes_all_rows_older_than_it_also_those_that_come_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, truncates = tmp_path / "users", {"apply_as_truncates": F.col("op") == "T"}
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), (2, "Bob", "Bern", "U", 6), **truncates)
    apply(spark, path, 2, (None, None, None, "T", 5), (3, "Cy", "Bonn", "U", 7), **truncates)
    apply(spark, path, 3, (1, "Ann", "Oslo", "U", 4), (4, "Di", "Lyon", "U", 5), **truncates)

    assert_table(spark, path, (2, "Bob", "Bern", 6), (3, "Cy", "Bonn", 7), (4, "Di", "Lyon", 5))


def test_a_column_of_nulls_without_a_type_has_any_type(spark: SparkSession, tmp_path: Path) -> None:
    if spark.version.startswith("4.0"):
        pytest.skip("Delta 4.0 does not show such a column, so nothing can give it a type: it is refused")
    path, own = str(tmp_path / "users"), own_session(spark)
    for number, value in enumerate(["NULL", "'Ann'", "NULL"]):
        apply_changes(
            own.sql(f"SELECT {number % 2} AS id, {number} AS seq, {value} AS name"),
            path,
            keys=["id"],
            sequence_by="seq",
            except_column_list=["seq"],
            recorded=Recorded("users", number),
            tombstone_horizon="t._position < -1  -- nothing comes before",
        )
    expected = own.sql("SELECT 0 AS id, CAST(NULL AS STRING) AS name, 2 AS _position UNION ALL SELECT 1, 'Ann', 1")
    assert_df_equality(table(spark, tmp_path / "users"), expected, ignore_row_order=True, ignore_nullable=True)


def test_a_table_may_have_many_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Planning took twice as long for each column more: with 20 structs 17 minutes, then Spark's memory was used up."""
    path, names = tmp_path / "wide", [f"c{number}" for number in range(50)]
    own = own_session(spark)
    cells = [f"IF(id % 2 = 0, struct(id AS a, '{name}' AS b), NULL) AS {name}" for name in names]
    source = own.range(4).selectExpr("0 AS k", "id AS seq", *cells)
    apply_changes(
        source,
        str(path),
        keys=["k"],
        sequence_by="seq",
        ignore_null_updates=True,
        except_column_list=["seq"],
        recorded=Recorded("wide", 1),
    )
    expected = own.range(2, 3).selectExpr("0 AS k", *cells, "3L AS _position")
    assert_df_equality(table(spark, path), expected, ignore_nullable=True)
    assert own.conf.get("spark.sql.constraintPropagation.enabled") == "true"


@pytest.mark.nightly
def test_order_may_be_a_struct_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    path, order = tmp_path / "users", {"sequence_by": F.struct("seq", "name"), "keys": [F.col("ID")]}
    apply(spark, path, 1, (1, "b", "Rome", "U", 1), (1, "a", "Oslo", "U", 1), stored_as_scd_type=2, **order)
    apply(spark, path, 2, (1, "ab", "Bern", "U", 1), stored_as_scd_type=2, **order)

    rows = table(spark, path).orderBy("__START_AT").select("city", "__START_AT.name", "__END_AT.name").collect()
    assert [tuple(row) for row in rows] == [("Oslo", "a", "ab"), ("Bern", "ab", "b"), ("Rome", "b", None)]


@pytest.mark.parametrize("partial", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_columns_may_have_any_names_and_types(spark: SparkSession, tmp_path: Path, partial: bool) -> None:
    source = own_session(spark).sql(
        "SELECT 1 AS `a.b`, 'x' AS `op`, 'y' AS `row`, map('k', 1) AS `t`, named_struct('p', 1) AS `s`, 1 AS `select`"
    )
    for number in range(2):
        apply_changes(
            source,
            str(tmp_path / "t"),
            keys=["a.b"],
            sequence_by="`select`" if partial else F.col("`a.b`"),
            ignore_null_updates=partial,
            recorded=Recorded("t", number),
        )

    (row,) = table(spark, tmp_path / "t").collect()
    assert tuple(row) == (1, "x", "y", {"k": 1}, Row(p=1), 1, 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"ignore_null_updates": True}, marks=pytest.mark.nightly),
        pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly),
    ],
)
def test_a_timestamp_without_a_zone_may_come_later(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    batches = [
        "SELECT 1 AS id, DATE'2020-01-01' AS at, DATE'2020-01-01' AS seq",
        "SELECT 1 AS id, TIMESTAMP_NTZ'2020-01-02 03:04:05' AS at, TIMESTAMP_NTZ'2020-01-02 00:00:00' AS seq",
        "SELECT 1 AS id, DATE'2020-01-03' AS at, DATE'2020-01-03' AS seq, TIMESTAMP_NTZ'2020-01-02 03:04:05' AS more",
    ]
    for number, batch in enumerate(batches):
        path, recorded = str(tmp_path / "t"), Recorded("t", number)
        source = own_session(spark).sql(batch)
        apply_changes(source, path, keys=["id"], sequence_by="seq", recorded=recorded, **options)

    newest = table(spark, tmp_path / "t").orderBy("at").collect()[-1]
    assert (newest["at"], newest["more"]) == (datetime(2020, 1, 3), datetime(2020, 1, 2, 3, 4, 5))
    properties = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 't'}`").where("operation = 'SET TBLPROPERTIES'")
    assert properties.count() == 1


def test_a_timestamp_is_one_whatever_the_session_calls_so(spark: SparkSession, tmp_path: Path) -> None:
    session = own_session(spark)
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    first, wider = ("SELECT 1 AS id, {v} AS v, timestamp_millis(86400000) AS t, 1 AS seq", "2L")
    more = ", array(timestamp_millis(86400000)) AS more"
    for number, text in enumerate(
        [first.format(v="1"), first.format(v=wider).replace(", 1 AS seq", ", 2 AS seq" + more)]
    ):
        recorded = Recorded("t", number)
        apply_changes(session.sql(text), str(tmp_path / "t"), keys=["id"], sequence_by="seq", recorded=recorded)

    found = table(spark, tmp_path / "t")
    assert [found.schema[name].dataType.simpleString() for name in ("v", "t", "more")] == [
        "bigint",
        "timestamp",
        "array<timestamp>",
    ]
    assert found.selectExpr("unix_seconds(t)", "unix_seconds(more[0])").collect() == [(86400, 86400)]
