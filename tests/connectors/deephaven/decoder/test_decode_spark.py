"""Landed frames decoded in Spark: every type, every kind of change, and the golden streams up to silver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from silverfold.connectors.base import Cut, CutStatistics, Undecodable
from silverfold.connectors.common.arrow_rows import ArrowRows, InProcess, InSpark
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.deephaven.decoder.decoder import DeephavenDecoder
from silverfold.connectors.deephaven.options import DeephavenOptions
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.receiver.epoch import Epoch
from silverfold.connectors.frames import Kind, mark
from silverfold.connectors.wire.sbe.schema.load import with_byte_order
from silverfold.pipelines.landing.bronze import read_cut, read_frames
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.store import open_table
from silverfold.testing import assert_silver_equals
from tests.support.building import FEED, Built, table
from tests.support.deephaven.columns import CASES, written
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.deephaven.vectors import VECTORS, Vector, builtin_roles, of_kind

IN_SPARK = {
    "Byte": "tinyint",
    "Boolean": "boolean",
    "Char": "string",
    "Short": "smallint",
    "Int": "int",
    "Long": "bigint",
    "Float": "float",
    "Double": "double",
    "DateTime": "timestamp",
    "String": "string",
    "Decimal": "string",
    "StringSet": "array<string>",
    "StringArray": "array<string>",
    "ByteArray": "array<tinyint>",
    "BooleanArray": "array<boolean>",
    "CharArray": "array<string>",
    "ShortArray": "array<smallint>",
    "IntArray": "array<int>",
    "LongArray": "array<bigint>",
    "FloatArray": "array<float>",
    "DoubleArray": "array<double>",
    "DateTimeArray": "array<timestamp>",
}
ROWS = 8
"""No type has more cases; those with fewer have no value in the last rows."""

FIRST = datetime(1677, 9, 21, 0, 12, 43, 145224, tzinfo=UTC)
ZERO = datetime(1970, 1, 1, tzinfo=UTC)
FLIGHT = datetime(2017, 8, 25, 13, 37, 25, 123456, tzinfo=UTC)
LAST = datetime(2262, 4, 11, 23, 47, 16, 854775, tzinfo=UTC)
AS_TIMESTAMPS: Mapping[str, list[Any]] = {
    "DateTime": [None, FIRST, ZERO, FLIGHT, LAST],
    "DateTimeArray": [None, [], [None], [None, FIRST, ZERO, FLIGHT, LAST], [LAST, FLIGHT, ZERO, FIRST, None]],
}
"""The cases of `CASES`, whose nanoseconds end where microseconds do: below, for times before 1970."""


def expected_cell(type_name: str, row: int) -> Any:
    cases = AS_TIMESTAMPS.get(type_name, CASES[type_name])
    if row >= len(cases):
        return None
    value = cases[row]
    if type_name in {"Float", "Double"}:
        return math.nan if value == "NaN" else value
    if type_name in {"FloatArray", "DoubleArray"} and value is not None:
        return [math.nan if element == "NaN" else element for element in value]
    return value


@pytest.fixture(scope="module")
def every_type(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A table with a column of every type and a row for each case, built from two messages and more per column."""
    built = Built(spark, tmp_path_factory.mktemp("types"), {"t": table()})
    history = LandedHistory({"t": {name: name for name in IN_SPARK}}, limit=700)
    history.connect()
    history.begin("t", Kind.SNAPSHOT)
    for column_id, name in enumerate(IN_SPARK):
        values = written(name)
        keys = range(len(values))
        history.column("t", column_id, keys, values, modified=False, kind=Kind.SNAPSHOT)
    history.end("t", Kind.SNAPSHOT)
    assert built.land_and_build(history) == {}
    return built


def test_every_type_keeps_its_nulls_its_extremes_and_all_between(spark: SparkSession, every_type: Built):
    schema = ", ".join(["_row_key long", *(f"{name} {kind}" for name, kind in IN_SPARK.items())])
    rows = [(row, *(expected_cell(name, row) for name in IN_SPARK)) for row in range(ROWS)]

    assert_silver_equals(spark, every_type.silver_feed, "t", spark.createDataFrame(rows, schema))


def test_the_tests_know_every_type():
    assert set(IN_SPARK) == set(CASES)


def test_date_times_that_lost_nanoseconds_are_counted_in_the_cut(every_type: Built):
    (cut,) = read_cuts(every_type.places, FEED)

    assert cut.notes == {"truncated_nanoseconds": 9}, "three date-times, and twice three in arrays"


# One cut by hand, as change rows.

COLUMNS = {"Sym": "String", "Qty": "Long"}
CHANGE = """
    frame_seq long, op string, key struct<_row_key: long>, row struct<Sym: string, Qty: long>,
    present array<string>, error struct<error_class: string, reason: string>
"""


@pytest.fixture(scope="module")
def one_cut(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Cut]:
    """Two updates at positions 3 to 9 and 10 to 15: of every kind of change one."""
    built = Built(spark, tmp_path_factory.mktemp("changes"), {"t": table()})
    history = LandedHistory({"t": COLUMNS})
    history.connect()  # 0, 1, 2
    history.begin("t")  # 3
    history.rows("t", {1: {"Sym": "a", "Qty": 1}, 2: {"Sym": "b", "Qty": 2}}, modified=False)  # 4, 5
    history.rows("t", {9: {"Qty": 9}, 70_000: {"Qty": None}}, modified=True)  # 6
    history.removed("t", [(20, 21)])  # 7
    history.removed("t", [(1_000_000, 2_000_000)])  # 8
    history.end("t")  # 9
    history.begin("t")  # 10
    history.rows("t", {9: {"Sym": "i"}, 8: {"Sym": "h", "Qty": 8}}, modified=True)  # 11, 12
    history.removed("t", [(2, 2)])  # 13
    history.inside("t", VECTORS["bad-range-count"].body)  # 14
    history.end("t")  # 15
    built.land(history)
    cut = Cut("t", 1, after=-1, last=15, spans=((3, 15),), begins=(3, 10), ends=(9, 15), replaces=False)
    return built, cut


IN = pytest.mark.parametrize("where", ["in Spark", "in this process"])


def decoded(built: Built, cut: Cut, where: str, *, without: int = -1) -> tuple[DeephavenDecoder, ArrowRows, Any]:
    """The decoder, the frames of the cut, and what the control frames say."""
    decoder = DeephavenDecoder(built.feed)
    bronze = built.places.bronze(FEED)
    landed = built.spark.read.format("delta").load(bronze.url)
    many = InSpark(landed.where(f"frame_seq BETWEEN 3 AND {cut.last} AND frame_seq <> {without}"))
    few = read_cut(open_table(bronze), replace(cut, left_out=(without,)))
    assert few is not None
    frames = many if where == "in Spark" else InProcess(built.spark, few)
    return decoder, frames, decoder.context(read_frames(bronze, kind=Kind.CONTROL))


@IN
def test_a_cut_becomes_one_change_for_each_row_and_bad_frames_become_error_rows(
    spark: SparkSession, one_cut: tuple[Built, Cut], where: str
):
    built, cut = one_cut
    decoder, frames, context = decoded(built, cut, where)
    reason = "range-count: ranges hold 16 rows, there are 15 values"

    changes = decoder.changes(frames, context, cut, built.feed.tables["t"])

    expected = [
        (5, "insert", (1,), ("a", 1), None, None),
        (13, "delete", (2,), None, None, None),
        (12, "update", (8,), ("h", 8), None, None),
        (11, "update", (9,), ("i", 9), None, None),
        (7, "delete", (20,), None, None, None),
        (7, "delete", (21,), None, None, None),
        (6, "update", (70_000,), (None, None), ["Qty"], None),
        (14, None, None, None, None, ("INVALID_VALUE", reason)),
    ]
    assert_df_equality(changes.dataframe(), spark.createDataFrame(expected, CHANGE), ignore_row_order=True)


@IN
def test_versions_are_one_for_each_row_and_update_at_the_updates_end(
    spark: SparkSession, one_cut: tuple[Built, Cut], where: str
):
    built, cut = one_cut
    decoder, frames, context = decoded(built, cut, where, without=14)

    versions = decoder.versions(frames, context, cut, built.feed.tables["t"])

    expected = [
        (9, "insert", (1,), ("a", 1), None, None),
        (9, "insert", (2,), ("b", 2), None, None),
        (15, "delete", (2,), None, None, None),
        (15, "update", (8,), ("h", 8), None, None),
        (9, "update", (9,), (None, 9), ["Qty"], None),
        (15, "update", (9,), ("i", None), ["Sym"], None),
        (9, "delete", (20,), None, None, None),
        (9, "delete", (21,), None, None, None),
        (9, "update", (70_000,), (None, None), ["Qty"], None),
    ]
    assert_df_equality(versions.dataframe(), spark.createDataFrame(expected, CHANGE), ignore_row_order=True)


@IN
def test_only_what_the_snapshot_itself_adds_is_a_version_of_the_snapshot(
    spark: SparkSession, one_cut: tuple[Built, Cut], where: str
):
    built, cut = one_cut
    early = replace(cut, replaces=True, snapshot_end=9)
    late = replace(cut, replaces=True, snapshot_end=15)
    decoder, frames, context = decoded(built, cut, where)
    inserting = {
        snapshot_end.snapshot_end: {
            row.op
            for row in decoder.versions(frames, context, snapshot_end, built.feed.tables["t"]).dataframe().collect()
        }
        for snapshot_end in (early, late)
    }

    assert inserting == {
        9: {"snapshot", "update", "delete", None},
        15: {"insert", "update", "delete", None},
    }


@IN
def test_a_survey_finds_the_first_bad_frame_and_no_bounds_of_keys_in_wide_ranges(
    one_cut: tuple[Built, Cut], where: str
):
    built, cut = one_cut
    decoder, frames, context = decoded(built, cut, where)

    survey = decoder.statistics(frames, context, cut, built.feed.tables["t"])

    assert survey == CutStatistics(
        bad=[Undecodable(14, "INVALID_VALUE", "range-count: ranges hold 16 rows, there are 15 values")],
        changes=4 + 2 + 2 + 3 + 1,
        bounds={},
        wide_ranges=1,
        counters={},
    )


@IN
def test_wide_ranges_stay_apart_with_the_end_of_the_update_that_removes_them(
    spark: SparkSession, one_cut: tuple[Built, Cut], where: str
):
    built, cut = one_cut
    decoder, frames, context = decoded(built, cut, where)

    ranges = decoder.removed_ranges(frames, context, cut, built.feed.tables["t"])

    schema = "moment long, frame_seq long, first_key long, last_key long"
    assert_df_equality(ranges.dataframe(), spark.createDataFrame([(9, 8, 1_000_000, 2_000_000)], schema))


def test_the_row_type_is_that_of_the_newest_response(spark: SparkSession, one_cut: tuple[Built, Cut]):
    built, cut = one_cut
    decoder, _, context = decoded(built, cut, "in Spark")

    row = decoder.row_type(context, cut, built.feed.tables["t"])

    assert row == spark.createDataFrame([], "Sym string, Qty long").schema


# The golden streams, through the pure half of the receiver and the whole build.

STREAMS = of_kind("stream")


def stream_of(vector: Vector, subscription_id: int) -> str:
    return f"v{STREAMS.index(vector)}s{subscription_id}"


@pytest.fixture(scope="module")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One feed, with an epoch for each stream and a table for each of its subscriptions."""
    columns = {stream_of(vector, int(s)): {} for vector in STREAMS for s in vector.expect["tables"]}
    built = Built(spark, tmp_path_factory.mktemp("golden"), {name: table() for name in columns})
    history = LandedHistory(columns)
    for vector in STREAMS:
        streams = {stream_of(vector, int(s)): table() for s in vector.expect["tables"]}
        backoffs = {name: Backoff(1.0, 1.0, Random(0)) for name in streams}
        suspensions = dict.fromkeys(streams, 0.0)
        epoch = Epoch(Session(builtin_roles()), streams, suspensions=suspensions, backoffs=backoffs, clock=lambda: 0.0)
        history.epoch += 1
        landed = epoch.receive(vector.octets[:16])
        epoch.requests()
        landed += epoch.receive(vector.octets[16:]) + epoch.receive_eof() + [mark("closed")]
        history.frames += [(history.epoch, frame) for frame in landed]
    assert built.land_and_build(history) == {}
    return built


@pytest.mark.parametrize(
    ("vector", "subscription_id"),
    [(vector, int(s)) for vector in STREAMS for s in vector.expect["tables"]],
    ids=lambda value: value.name if isinstance(value, Vector) else str(value),
)
def test_a_golden_stream_becomes_its_tables(golden: Built, vector: Vector, subscription_id: int):
    rows = golden.rows(stream_of(vector, subscription_id))

    wanted = vector.expect["tables"][str(subscription_id)]
    assert {str(key): row for key, row in rows.items()} == wanted


# Settings, and epochs that differ in byte order.

PRICES = {"At": "DateTime", "All": "DateTimeArray", "Price": "Decimal"}


@pytest.fixture(scope="module")
def prices(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Date-times as numbers, decimals of two digits: an epoch in little-endian, then one in big-endian."""
    tables = {"fits": table(decimals={"Price": 2}), "odd": table(decimals={"Price": 2})}
    options = DeephavenOptions(date_times="nanoseconds")
    built = Built(spark, tmp_path_factory.mktemp("prices"), tables, options=options)
    history = LandedHistory(dict.fromkeys(tables, PRICES))
    history.connect()
    good = {"At": 1503668245123456789, "All": [1, None], "Price": Decimal("1.5")}
    for name in tables:
        history.snapshot(name, {1: good, 2: {"At": None, "All": None, "Price": None}})
    history.update("odd", modified={1: {"Price": Decimal("1.005")}})
    history.close()
    history.roles = bind(with_byte_order(builtin_roles().schema, ">"))
    history.connect()
    history.snapshot("fits", {1: good, 3: {"At": -1, "All": [], "Price": Decimal("-12E+1")}})
    history.update("fits", modified={1: {"At": 7}})
    built.land(history)
    built.build()
    return built


PRICE = "_row_key long, At long, All array<long>, Price decimal(38, 2)"


def test_settings_hold_in_either_byte_order(spark: SparkSession, prices: Built):
    expected = [(1, 7, [1, None], Decimal("1.50")), (3, -1, [], Decimal("-120.00"))]

    assert_silver_equals(spark, prices.silver_feed, "fits", spark.createDataFrame(expected, PRICE))


def test_a_decimal_that_does_not_fit_is_never_rounded(spark: SparkSession, prices: Built):
    expected = [(1, 1503668245123456789, [1, None], Decimal("1.50")), (2, None, None, None)]

    assert_silver_equals(spark, prices.silver_feed, "odd", spark.createDataFrame(expected, PRICE))
    (hold,) = prices.holds("odd")
    assert "decimal-scale" in hold.reason
