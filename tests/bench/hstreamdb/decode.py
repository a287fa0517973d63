"""Measures decoding landed batches in Spark, against `from_json` with a schema on the same rows as JSON texts."""

from __future__ import annotations

import json
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
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.protocol.frames import encode_entry
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord
from silverfold.pipelines.spark.session import start_spark
from tests.bench.hstreamdb.source import COLUMNS, STREAM, feed_at, rows
from tests.bench.silver import settings_at, timed
from tests.bench.sqlitecloud.decode import drain
from tests.support.hstreamdb.landed import frame_of

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
BATCH = 100


def decode(records: int, runs: int) -> Iterator[dict[str, object]]:
    """Decode both ways, alternating; yield a line for each kind of records."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(settings_at(Path(folder)), app="bench")
        try:
            for kind in ("hrecord", "raw"):
                yield decoded(spark, Path(folder) / kind, kind, records, runs)
        finally:
            spark.stop()


def decoded(spark: SparkSession, file: Path, kind: str, records: int, runs: int) -> dict[str, object]:
    """Measure records of a kind, in batches of 100."""
    count = records // BATCH
    batches, texts = written(spark, file, kind, count)
    cut = Cut(STREAM, 1, 0, count, ((1, count),), (1,), (count,), replaces=False)
    feed = feed_at("hstream://127.0.0.1:6570")
    decoder = CONNECTOR.decoder(feed)
    ours = decoder.changes(InSpark(batches), decoder.context([]), cut, feed.tables[STREAM]).dataframe()
    theirs = texts.select(F.from_json("text", SCHEMA).alias("row")).select("row.*")
    assert ours.where("error IS NULL").count() == theirs.count() == count * BATCH
    pairs = [(timed(lambda: drain(ours)), timed(lambda: drain(theirs))) for _ in range(runs + 1)][1:]
    mine, limit = map(statistics.median, zip(*pairs, strict=True))
    return {
        "bench": "hstreamdb-decode",
        "kind": kind,
        "records": count * BATCH,
        "rows_per_second": round(count * BATCH / mine),
        "from_json_rows_per_second": round(count * BATCH / limit),
        "ratio": round(limit / mine, 2),
        "aim": 0.8,
        "runs": runs,
    }


def written(spark: SparkSession, file: Path, kind: str, count: int) -> tuple[DataFrame, DataFrame]:
    """Return landed batches, and the same rows as JSON texts."""
    made = rows(BATCH)
    jsons = [json.dumps(row, ensure_ascii=False) for row in made]
    records = [HRecord(row) for row in made] if kind == "hrecord" else [RawRecord(text.encode()) for text in jsons]
    encoded = [encode_entry(each, "") for each in records]
    bodies = [frame_of(encoded, batch=number) for number in range(1, count + 1)]
    columns = {
        "frame_seq": pa.array(range(1, count + 1), pa.int64()),
        "kind": pa.repeat("data", count),
        "body": pa.array(bodies, pa.binary()),
    }
    return (
        in_four_files(spark, file / "batches", pa.table(columns)),
        in_four_files(spark, file / "texts", pa.table({"text": jsons * count})),
    )


def in_four_files(spark: SparkSession, folder: Path, table: pa.Table) -> DataFrame:
    """Write a table, a file for each task."""
    folder.mkdir(parents=True)
    for first in range(0, table.num_rows, size := -(-table.num_rows // 4)):
        pq.write_table(table.slice(first, size), folder / f"{first}.parquet")
    return spark.read.parquet(str(folder))
