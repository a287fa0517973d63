"""Measures decoding notifications in Spark, against `from_json` with a schema on the same strings."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import InSpark
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.protocol.frame_access import notification_text
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.pipelines.spark.session import start_spark
from tests.bench.silver import settings_at, timed
from tests.bench.sqlitecloud.source import DISTINCT, KEY, TABLE, feed_at, frames

SCHEMA = (
    "sender STRING, channel STRING, channel_type STRING, sqlite_pk_name ARRAY<STRING>, payload ARRAY<STRUCT<"
    "sqlite_type: STRING, id: BIGINT, customer: STRING, total: DOUBLE, quantity: BIGINT, note: STRING, "
    "sqlite_pk_value: ARRAY<BIGINT>>>"
)
DESCRIBED = Description(
    TABLE,
    (
        TableColumn("id", "INTEGER", pk=1),
        TableColumn("customer", "TEXT"),
        TableColumn("total", "REAL"),
        TableColumn("quantity", "INTEGER"),
        TableColumn("note", "TEXT"),
    ),
    KEY,
)


def decode(notifications: int, runs: int) -> Iterator[dict[str, object]]:
    """Decode both ways, alternating; yield a line for each size of notifications."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(settings_at(Path(folder)), app="bench")
        try:
            for rows in (1, 10):
                yield decoded(spark, Path(folder) / f"landed{rows}", notifications // rows, rows, runs)
        finally:
            spark.stop()


def decoded(spark: SparkSession, file: Path, notifications: int, rows: int, runs: int) -> dict[str, object]:
    """Measure notifications of ``rows`` rows each."""
    landed = written(spark, file, notifications, rows)
    cut = Cut(TABLE, 1, 0, notifications, ((1, notifications),), (1,), (notifications,), replaces=False)
    feed = feed_at("unused")
    decoder = CONNECTOR.decoder(feed)
    context = decoder.context([ControlFrame(0, 1, TABLE, DESCRIBED.to_json())])
    ours = decoder.changes(InSpark(landed), context, cut, feed.tables[TABLE]).dataframe()
    parsed = landed.select("frame_seq", F.from_json("text", SCHEMA).alias("told"))
    theirs = parsed.select("frame_seq", F.inline("told.payload"))
    assert ours.count() == theirs.count() == notifications * rows
    pairs = [(timed(lambda: drain(ours)), timed(lambda: drain(theirs))) for _ in range(runs + 1)][1:]
    mine, limit = map(statistics.median, zip(*pairs, strict=True))
    changes = notifications * rows
    return {
        "bench": "sqlitecloud-decode",
        "notifications": notifications,
        "rows_each": rows,
        "rows_per_second": round(changes / mine),
        "from_json_rows_per_second": round(changes / limit),
        "ratio": round(limit / mine, 2),
        "aim": 0.5,
        "runs": runs,
    }


def written(spark: SparkSession, file: Path, notifications: int, rows: int) -> DataFrame:
    """Return landed notifications, each with its text in a string column."""
    made = frames(DISTINCT, rows)
    every = [made[at % DISTINCT] for at in range(notifications)]
    texts = [notification_text(each).decode() for each in made]
    columns = {
        "frame_seq": pa.array(range(1, notifications + 1), pa.int64()),
        "kind": pa.repeat("data", notifications),
        "body": pa.array(every, pa.binary()),
        "text": pa.array([texts[at % DISTINCT] for at in range(notifications)]),
    }
    file.mkdir()
    for first in range(0, notifications, size := -(-notifications // 4)):  # a file for each task
        pq.write_table(pa.table(columns).slice(first, size), file / f"{first}.parquet")
    return spark.read.parquet(str(file))


def drain(rows: DataFrame) -> None:
    """Compute every row and discard it."""
    rows.write.format("noop").mode("overwrite").save()
