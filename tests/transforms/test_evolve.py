"""How a table follows the source's columns."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from silverfold.conf.errors import Overtaken, SchemaDrift
from silverfold.transforms.evolve import check_names, drift, follow, follow_columns
from silverfold.transforms.merge import create_empty, overwrite
from silverfold.transforms.spark_errors import named_errors

BYTE, SHORT, INT, LONG, FLOAT, DOUBLE = (
    T.ByteType(),
    T.ShortType(),
    T.IntegerType(),
    T.LongType(),
    T.FloatType(),
    T.DoubleType(),
)
TEXT, DATE, TIME = T.StringType(), T.DateType(), T.TimestampNTZType()


def columns(**kinds: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (BYTE, SHORT),
        (BYTE, LONG),
        (SHORT, INT),
        (INT, LONG),
        (INT, DOUBLE),
        (INT, T.DecimalType(10, 0)),
        (LONG, T.DecimalType(20, 0)),
        (LONG, T.DecimalType(24, 4)),
        (FLOAT, DOUBLE),
        (DATE, TIME),
        (T.DecimalType(10, 2), T.DecimalType(12, 2)),
        (T.DecimalType(10, 2), T.DecimalType(12, 4)),
    ],
)
def test_a_wider_type_is_followed_and_a_narrower_one_changes_nothing(narrow: T.DataType, wide: T.DataType) -> None:
    widened = drift(columns(a=narrow), columns(a=wide), table="t")
    narrowed = drift(columns(a=wide), columns(a=narrow), table="t")

    assert (widened.added, [(field.name, field.dataType) for field in widened.widened]) == ([], [("a", wide)])
    assert (narrowed.added, narrowed.widened) == ([], [])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (LONG, DOUBLE),
        (LONG, TEXT),
        (TEXT, LONG),
        (LONG, T.DecimalType(19, 0)),
        (T.DecimalType(10, 2), T.DecimalType(10, 4)),
        (DATE, T.TimestampType()),
        (DOUBLE, T.DecimalType(38, 10)),
    ],
)
def test_a_type_that_may_lose_values_stops_the_table(before: T.DataType, now: T.DataType) -> None:
    message = f"t: column a is {now.simpleString()} now, was {before.simpleString()}"
    with pytest.raises(SchemaDrift, match=re.escape(message)):
        drift(columns(a=before), columns(a=now), table="t")


def test_a_column_that_is_gone_stops_the_table_whatever_came_for_it() -> None:
    with pytest.raises(SchemaDrift, match="t: the source lacks column Bid now"):
        drift(columns(Sym=TEXT, Bid=DOUBLE), columns(Sym=TEXT, Offer=DOUBLE), table="t")


def test_a_renamed_key_stops_the_table() -> None:
    with pytest.raises(SchemaDrift, match="t: the source lacks the key 'Sym'"):
        check_names(columns(Symbol=TEXT, Bid=DOUBLE), reserved=(), keys=("Sym",), table="t")


def test_a_name_in_other_letters_is_the_same_column() -> None:
    assert drift(columns(Sym=TEXT), columns(SYM=TEXT), table="t") == ([], [], [], columns(Sym=TEXT))


ENTRY = columns(level=SHORT, price=columns(mantissa=LONG))
GROWN = columns(first=INT, level=SHORT, price=columns(mantissa=LONG, unit=TEXT), orders=T.ArrayType(columns(id=LONG)))


def test_what_came_inside_structs_and_arrays_is_told_with_its_place() -> None:
    found = drift(columns(a=T.ArrayType(ENTRY), b=ENTRY), columns(a=T.ArrayType(GROWN), b=ENTRY), table="t")

    assert (found.added, found.widened) == ([], [])
    assert found.inside == [
        (("a", "element", "first"), INT, None),
        (("a", "element", "price", "unit"), TEXT, "mantissa"),
        (("a", "element", "orders"), T.ArrayType(columns(id=LONG)), "price"),
    ]


@pytest.mark.parametrize(
    "now",
    [
        columns(level=SHORT),
        columns(price=columns(mantissa=LONG), level=SHORT),
        columns(level=INT, price=columns(mantissa=LONG)),
        columns(level=SHORT, price=columns(mantissa=INT)),
        T.ArrayType(ENTRY),
    ],
)
def test_what_is_gone_moved_or_another_inside_a_struct_stops_the_table(now: T.DataType) -> None:
    with pytest.raises(SchemaDrift, match="column a is "):
        drift(columns(a=ENTRY), columns(a=now), table="t")


def test_a_table_has_new_fields_inside_its_columns_in_the_order_of_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    rows = [([(1, (5,))], (2, (6,)))]
    spark.createDataFrame(rows, columns(a=T.ArrayType(ENTRY), b=ENTRY)).write.format("delta").save(path)

    for _ in range(2):
        follow_columns(spark, path, columns(a=T.ArrayType(GROWN), b=GROWN), table="t")

    found = spark.read.format("delta").load(path)
    assert found.schema == columns(a=T.ArrayType(GROWN), b=GROWN)
    (row,) = found.collect()
    grown = Row(first=None, level=1, price=Row(mantissa=5, unit=None), orders=None)
    assert (row.a, row.b.level, row.b.price.mantissa) == ([grown], 2, 6)


def test_a_table_has_new_columns_and_wider_types_and_is_read_by_any_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    before = columns(k=TEXT, n=INT, price=T.DecimalType(6, 2))
    spark.createDataFrame([("a", 1, Decimal("1.50")), ("b", None, None)], before).write.format("delta").option(
        "delta.enableDeletionVectors", "true"
    ).save(path)

    for _ in range(2):
        follow_columns(spark, path, columns(k=TEXT, n=LONG, price=T.DecimalType(8, 2), new=DATE), table="t")

    rows = spark.read.format("delta").load(path)
    assert rows.schema == columns(k=TEXT, n=LONG, price=T.DecimalType(8, 2), new=DATE)
    assert sorted(rows.collect()) == [
        Row(k="a", n=1, price=Decimal("1.50"), new=None),
        Row(k="b", n=None, price=None, new=None),
    ]
    assert "typeWidening" not in (DeltaTable(path).protocol().reader_features or [])


@pytest.mark.parametrize("wanted", [{"s": columns(a=INT), "new": LONG}, {"s": columns(a=INT, b=INT)}])
def test_whoever_adds_a_column_that_another_added_meanwhile_is_overtaken(
    spark: SparkSession, tmp_path: Path, wanted: dict[str, T.DataType]
) -> None:
    path, before = str(tmp_path / "t"), columns(s=columns(a=INT))
    create_empty(spark, before, path)
    drifted = drift(before, columns(**wanted), table="t")
    follow(spark, path, drifted)

    with pytest.raises(Overtaken), named_errors("t"):
        follow(spark, path, drifted)


def test_a_column_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    key_only, odd = columns(k=TEXT), "a b,;{c}(`d`)\n\t=."
    beside, after = str(tmp_path / "first"), str(tmp_path / "then")
    create_empty(spark, key_only, after)
    overwrite(spark.createDataFrame([("x", 1)], columns(**{"k": TEXT, odd: LONG})), beside)
    follow_columns(spark, after, columns(**{"k": TEXT, odd: LONG}), table="t")
    spark.read.format("delta").load(beside).write.format("delta").mode("append").save(after)
    overwrite(spark.createDataFrame([("x", 1)], columns(**{"k": TEXT, f"{odd} ": LONG})), after)

    read = [QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t") for path in (beside, after)]
    rows = [pa.table(each.read_all()).to_pylist() for each in read]
    assert rows == [[{"k": "x", odd: 1}], [{"k": "x", f"{odd} ": 1}]]


def test_a_field_inside_a_column_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    path, odd = str(tmp_path / "t"), "f`1`.x y"
    inside = T.MapType(TEXT, T.ArrayType(columns(**{odd: LONG})))
    create_empty(spark, columns(k=TEXT, s=columns(**{odd: LONG})), path)
    wanted = columns(k=TEXT, s=columns(**{odd: LONG, f"{odd}2": inside}), more=inside)

    follow_columns(spark, path, wanted, table="t")

    assert spark.read.format("delta").load(path).schema == wanted
