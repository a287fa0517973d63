"""Measures the Spark function on one core, against Spark passing the same frames through Arrow untouched."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from silverfold.conf.load import load_settings
from silverfold.connectors.sbe.decoder.rows import decode
from silverfold.pipelines.spark.session import start_spark
from tests.bench.sbe.messages import Kind


def spark_seconds(kinds: dict[str, Kind], count: int, runs: int) -> dict[str, tuple[float, float]]:
    """Return the seconds per message of each kind: decoded, and merely passed through Python."""
    local = load_settings(None, "local", {})
    session = start_spark(local.model_copy(update={"spark": {**local.spark, "spark.master": "local[1]"}}), app="bench")
    try:
        with tempfile.TemporaryDirectory() as folder:
            return {name: _measured(session, kind, count, runs, Path(folder) / name) for name, kind in kinds.items()}
    finally:
        session.stop()


def _measured(session: SparkSession, kind: Kind, count: int, runs: int, file: Path) -> tuple[float, float]:
    bodies = pa.array((kind.messages * (count // len(kind.messages) + 1))[:count])
    pq.write_table(pa.table({"position": pa.array(range(count)), "body": bodies}), file)
    frames = session.read.parquet(str(file))
    rows = decode(frames, kind.schema, template=kind.template)
    untouched = frames.mapInArrow(_pass, frames.schema)
    pairs = [(_timed(_drain, rows), _timed(_drain, untouched)) for _ in range(runs + 1)][1:]
    ours, limit = zip(*pairs, strict=True)
    return statistics.median(ours) / count, statistics.median(limit) / count


def _pass(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _timed(work: Callable[[DataFrame], None], rows: DataFrame) -> float:
    began = time.perf_counter()
    work(rows)
    return time.perf_counter() - began
