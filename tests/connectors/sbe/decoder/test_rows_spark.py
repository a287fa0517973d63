"""SBE messages of any table become rows in Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from silverfold.conf.errors import ConfigError
from silverfold.connectors.sbe.decoder.rows import decode, errors
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.load import load_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).parents[3] / "golden" / "sbe"
QUOTE = bytes.fromhex(json.loads((GOLDEN / "messages.json").read_text(encoding="utf-8"))[0]["hex"])
LANDED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def frames(spark: SparkSession) -> DataFrame:
    """Return frames as a user has them: a position, when they came, and the message."""
    bodies = [QUOTE, QUOTE[:-3], None, QUOTE[:2] + b"\xff" + QUOTE[3:], QUOTE]
    rows = [(position, LANDED, body) for position, body in enumerate(bodies)]
    return spark.createDataFrame(rows, "position long, landed timestamp, payload binary").repartition(2)


def shown(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows.orderBy("position").collect()]


def test_messages_become_typed_rows_beside_the_other_columns(frames: DataFrame):
    rows = decode(frames, GOLDEN / "sample.xml", template="Quote", column="payload")

    assert rows.dtypes == [
        ("position", "bigint"),
        ("landed", "timestamp"),
        ("seq", "bigint"),
        ("code", "string"),
        ("side", "string"),
        ("level", "string"),
        ("flags", "array<string>"),
        ("triple", "array<smallint>"),
        ("opt", "smallint"),
        ("venue", "string"),
        ("fixedSide", "string"),
        ("price", "struct<mantissa:bigint,exponent:tinyint>"),
        ("stop", "struct<mantissa:bigint,exponent:tinyint>"),
        ("at", "struct<time:decimal(20,0),unit:smallint>"),
        ("qty", "struct<mantissa:int,exponent:tinyint,side:string>"),
        ("legs", "array<struct<legId:int,ratio:float,marks:array<struct<mark:smallint>>,blob:binary>>"),
        ("text", "string"),
        ("extra", "binary"),
    ]
    first, second = shown(rows)
    assert (first["position"], second["position"]) == (0, 4)
    assert first == second | {"position": 0}
    assert {name: first[name] for name in ("seq", "code", "side", "level", "flags", "triple", "opt", "text")} == {
        "seq": 1001,
        "code": "AB12",
        "side": "Sell",
        "level": None,
        "flags": ["firm", "hidden"],
        "triple": [1, -2, 300],
        "opt": None,
        "text": "é!",
    }
    assert first["at"] == {"time": Decimal(1728051442944000000), "unit": 9}
    assert first["stop"] == {"mantissa": None, "exponent": -2}
    assert first["legs"] == [
        {"legId": 7, "ratio": 0.5, "marks": [{"mark": 10}, {"mark": 11}], "blob": bytearray(b"\xca\xfe")},
        {"legId": 8, "ratio": -1.0, "marks": [], "blob": bytearray()},
    ]


def test_what_cannot_be_read_is_told_beside_the_other_columns(frames: DataFrame):
    lost = errors(frames, GOLDEN / "sample.xml", column="payload", keep=["position"])

    assert lost.dtypes[1:] == [
        ("error_class", "string"),
        ("reason", "string"),
        ("element", "string"),
        ("offset", "bigint"),
        ("message", "string"),
    ]
    assert [tuple(row.values())[:5] for row in shown(lost)] == [
        (1, "TRUNCATED_MESSAGE", "truncated", "Quote.text", 110),
        (2, "TRUNCATED_MESSAGE", "short-frame", "", 0),
        (3, "UNKNOWN_TEMPLATE", "unknown-template", "", 0),
    ]


def test_the_messages_may_be_retained_and_columns_have_any_names(frames: DataFrame):
    named = frames.withColumnRenamed("payload", "a.b").withColumnRenamed("position", "p`q")

    rows = decode(
        named, GOLDEN / "sample.xml", template="Quote", column="a.b", keep=["a.b", "p`q", "a.b"], into="quote"
    )
    lost = errors(named, GOLDEN / "sample.xml", column="a.b", keep=["a.b"])

    assert rows.columns == ["a.b", "p`q", "quote"]
    assert sorted(row["p`q"] for row in rows.collect()) == [0, 4]
    assert all(row["a.b"] for row in rows.collect())
    assert [row["error_class"] for row in lost.collect()].count("UNKNOWN_TEMPLATE") == 1


def test_a_message_without_fields_needs_a_column_beside_it(frames: DataFrame):
    schema = load_schema(
        b'<messageSchema id="1" version="0"><types><composite name="messageHeader">'
        + b"".join(
            b'<type name="%b" primitiveType="uint16"/>' % name
            for name in (b"blockLength", b"templateId", b"schemaId", b"version")
        )
        + b'</composite></types><message name="Z" id="4"/></messageSchema>'
    )
    beat = frames.select(F.unhex(F.lit("0000040001000000")).alias("body"), "position").limit(1)

    assert decode(beat, schema, template="Z").count() == 1
    with pytest.raises(ConfigError, match="some column"):
        decode(beat, schema, template="Z", keep=[])


def test_a_message_may_go_into_one_struct_and_its_decimals_be_numbers(frames: DataFrame):
    named = frames.withColumnRenamed("position", "seq")

    rows = decode(
        named,
        GOLDEN / "sample.xml",
        template="Quote",
        column="payload",
        keep=["seq"],
        into="quote",
        options=ColumnOptions(decimals=True),
    )

    assert rows.columns == ["seq", "quote"]
    quotes = rows.orderBy("seq").select("seq", F.col("quote.seq").alias("sent"), "quote.price", "quote.stop")
    assert [tuple(row) for row in quotes.collect()] == [
        (0, 1001, Decimal("123.45"), None),
        (4, 1001, Decimal("123.45"), None),
    ]


def test_an_included_schema_is_read_once_where_the_job_is_written(frames: DataFrame, tmp_path: Path):
    xml = (GOLDEN / "sample.xml").read_text(encoding="utf-8")
    types = xml[xml.index("<types>") : xml.index("</types>") + len("</types>")]
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="types.xml"/>'
    (tmp_path / "types.xml").write_text(types, encoding="utf-8")
    (tmp_path / "schema.xml").write_text(xml.replace(types, include, 1), encoding="utf-8")

    rows = decode(frames, tmp_path / "schema.xml", template="Quote", column="payload")
    for file in ("types.xml", "schema.xml"):
        (tmp_path / file).unlink()

    assert rows.select("seq").collect() == [(1001,), (1001,)]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"template": "Trade"}, "template: found 'Trade', allowed: one of Quote"),
        ({"column": "body"}, "column: found 'body', allowed: a binary column"),
        ({"column": "position"}, "column: found 'position:bigint', allowed: a binary column"),
        ({"keep": ["time"]}, "keep: found 'time', allowed: some of position, landed, payload, CODE"),
        ({}, "keep: found 'code', allowed: columns that the result lacks, or the result in a struct"),
    ],
)
def test_what_was_asked_for_in_vain_is_named(frames: DataFrame, wrong: dict[str, Any], expected: str):
    options = {"template": "Quote", "column": "payload"} | wrong

    with pytest.raises(ConfigError) as caught:
        decode(frames.withColumn("CODE", F.lit(1)), GOLDEN / "sample.xml", **options)

    assert str(caught.value).endswith(expected)
