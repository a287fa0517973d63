"""Measures decoding landed packets in Spark, against `from_json` with a schema on the same rows as JSON texts."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import InSpark
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.protocol.heads import encode_message_of
from silverfold.pipelines.spark.session import start_spark
from tests.bench.hstreamdb.decode import in_four_files
from tests.bench.silver import settings_at, timed
from tests.bench.sqlitecloud.decode import drain
from tests.bench.tengi.source import COLUMNS, TABLE, Stored, feed_at, row, table_of

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
DISTINCT = 1_000
"""Number of distinct packets; more are repetitions."""


def decode(packets: int, runs: int) -> Iterator[dict[str, object]]:
    """Decode both ways, alternating; yield a line for each size of packets."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(settings_at(Path(folder)), app="bench")
        try:
            for rows in (1, 10):
                yield decoded(spark, Path(folder) / str(rows), Stored(packets // rows, rows), runs)
        finally:
            spark.stop()


def decoded(spark: SparkSession, folder: Path, stored: Stored, runs: int) -> dict[str, object]:
    """Measure packets of a number of rows each."""
    packets, count = stored.packets, stored.packets * stored.rows
    landed, texts, schema = written(spark, folder, stored)
    cut = Cut(TABLE, 1, 0, packets, ((1, packets),), (1,), (packets,), replaces=False)
    feed = feed_at(8080, Transport.HTTP)
    decoder = CONNECTOR.decoder(feed)
    context = decoder.context([ControlFrame(0, 1, TABLE, schema)])
    ours = decoder.changes(InSpark(landed), context, cut, feed.tables[TABLE]).dataframe()
    theirs = texts.select(F.from_json("text", SCHEMA).alias("row")).select("row.*")
    assert ours.where("error IS NULL").count() == theirs.count() == count
    pairs = [(timed(lambda: drain(ours)), timed(lambda: drain(theirs))) for _ in range(runs + 1)][1:]
    mine, limit = map(statistics.median, zip(*pairs, strict=True))
    return {
        "bench": "tengi-decode",
        "packets": packets,
        "rows_each": stored.rows,
        "rows_per_second": round(count / mine),
        "from_json_rows_per_second": round(count / limit),
        "ratio": round(limit / mine, 2),
        "aim": 0.5,
        "runs": runs,
    }


def written(spark: SparkSession, folder: Path, stored: Stored) -> tuple[DataFrame, DataFrame, bytes]:
    """Return landed packets, the same rows as JSON texts, and the landed schema."""
    table = table_of(Stored(DISTINCT, stored.rows))
    bodies = [encode_message_of(table.update(number).body) for number in range(1, DISTINCT + 1)]
    texts = [json.dumps(row(number)) for number in range(DISTINCT * stored.rows)]
    packets, count = stored.packets, stored.packets * stored.rows
    columns = {
        "frame_seq": pa.array(range(1, packets + 1), pa.int64()),
        "kind": pa.repeat("data", packets),
        "body": pa.array([bodies[at % DISTINCT] for at in range(packets)], pa.binary()),
    }
    return (
        in_four_files(spark, folder / "packets", pa.table(columns)),
        in_four_files(spark, folder / "texts", pa.table({"text": [texts[at % len(texts)] for at in range(count)]})),
        encode_message_of(table.schema(table.version).body),
    )
