"""Measures the engine on prepared changes, without any protocol: ``python -m tests.bench.engine [--rows N …]``.

Changes are read from a table, already decoded, so the measured steps are: statistics, fold, look-up of existing rows,
MERGE and reading back. Each JSON line has its limit or its peer, measured in the same run, alternating with ours:

``apply``: C changes into N rows x 10 longs, against a bare MERGE of the same changes, reduced beforehand.
``peer``: the same against delta-rs's merge, and against "latest change per key by a window, then MERGE".
``without``: the same without one of the optimizations; above 1, the optimization pays off.
``fold``: changes per second, complete rows and partial ones, with and without the consistency check.
``replace``: a snapshot equal to the table, against reading the table; and what it wrote.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.connectors.base import NO_STATISTICS, Cut, Decoder, Feed
from silverfold.connectors.common.arrow_rows import ArrowRows, InProcess, InSpark
from silverfold.pipelines.applying import fold_cut as folding
from silverfold.pipelines.applying.apply_cut import apply_cut
from silverfold.pipelines.applying.cut_job import CutJob, needs_statistics
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.session import start_spark
from silverfold.pipelines.storage.cuts import app_id, to_record
from silverfold.transforms.changes import compute_all
from silverfold.transforms.consistency import op_code
from silverfold.transforms.fold import fold
from silverfold.transforms.merge import Recorded, replace
from silverfold.transforms.sql import path_table
from tests.bench.silver import report, settings_at, timed
from tests.support.stub_connector import StubConnector, StubDecoder, StubOptions, StubTable

COLUMNS = [f"c{i}" for i in range(10)]
KEY = T.StructType().add("k", T.LongType())
ROW = T.StructType([*KEY, *(T.StructField(name, T.LongType()) for name in COLUMNS)])
TABLE = T.StructType([*ROW, T.StructField("_position", T.LongType())])
STREAM = "t"

FEW = 10_000
"""Maximum number of changes of a cut that is decoded in this process."""


class PreparedDecoder(StubDecoder):
    """`connectors.base.Decoder` of frames that already are change rows."""

    def row_type(self, context: None, cut: Cut, table: Any) -> T.StructType:
        return ROW

    def changes(self, frames: ArrowRows, context: None, cut: Cut, table: Any) -> ArrowRows:
        return frames


class PreparedConnector(StubConnector):
    """A connector of prepared changes."""

    def decoder(self, feed: Feed) -> Decoder:
        return PreparedDecoder()


@dataclass
class Bench:
    """A warehouse of tables of random longs."""

    spark: SparkSession
    folder: Path
    runs: int
    _position: int = field(default=0)
    _silver: dict[str, SilverTable] = field(default_factory=dict)

    def table(self, name: str, rows: int, *, vectors: bool = True, clustered: bool = False) -> str:
        """Make a table that has reached position 0; return its path."""
        path = str(self.folder / "silver" / name / STREAM)
        if clustered:
            columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in TABLE)
            self.spark.sql(f"CREATE TABLE {path_table(path)} ({columns}) USING DELTA CLUSTER BY (k)").collect()
        writer = self._rows(self.spark.range(rows).withColumnRenamed("id", "k"), 0).write.format("delta")
        writer.option("txnAppId", app_id(name, STREAM)).option("txnVersion", str(to_record(0, generation=0)))
        writer.option("delta.enableDeletionVectors", str(vectors).lower()).mode("append").save(path)
        return path

    def changes(self, rows: int, count: int, *, near: bool = False) -> str:
        """Write changes: 80 % updates, 10 % inserts and 10 % deletes; return their path.

        Rows whose key ends in 9 are reserved for deletes, each once, and are never updated.
        """
        self._position += 1
        path, span = str(self.folder / "changes" / str(self._position)), count * 16 if near else rows
        rounds = span // count
        picked = self.spark.range(count).withColumn("u", F.col("id") % 10)
        begin = 0 if not near else rows // 2
        tens = F.floor(F.rand(self._position + 1) * (span // 10)) * 10
        old = F.lit(begin) + tens + F.floor(F.rand(self._position + 2) * 9)
        new = F.lit(rows) + F.lit(self._position * 10_000_000) + F.col("id")
        ending = F.lit(begin) + (F.floor(F.col("id") / 10) * rounds + self._position % rounds) * 10 + 9
        op = F.when(F.col("u") < 8, "update").when(F.col("u") == 8, "insert").otherwise("delete")
        k = F.when(op == "insert", new).when(op == "delete", ending).otherwise(old).cast("long")
        change_rows = self._rows(picked.withColumn("op", op).withColumn("k", k), 0)
        frame = (F.lit(self._position * 1_000_000) + F.col("id")).cast("long")
        change_rows.select(
            frame.alias("frame_seq"),
            F.lit(0).alias("ordinal"),
            "op",
            F.struct("k").alias("key"),
            F.when(F.col("op") != "delete", F.struct(*ROW.names)).alias("row"),
        ).write.parquet(path)
        return path

    def engine(self, name: str, changes: str) -> None:
        """Apply prepared changes to a table, as a build does with a decoded cut."""
        silver = self.silver(name)
        last = (int(Path(changes).name) + 1) * 1_000_000 - 1
        assert silver.position() < last, "applied already"
        cut = Cut(STREAM, 1, silver.position(), last, ((1, last),), (1,), (last,), replaces=False)
        assert not needs_statistics(silver, None, cut)
        rows = ds.dataset(changes, format="parquet")
        few = rows.count_rows() <= FEW  # a build reads a small cut in its own process
        frames = InProcess(silver.session, rows.to_table()) if few else InSpark(silver.session.read.parquet(changes))
        job = CutJob(silver, cut, frames, None, None, NO_STATISTICS, is_checked=False, later=())
        assert apply_cut(job) is not None

    def silver(self, name: str) -> SilverTable:
        """Return a table as retained by a build between cuts."""
        if name not in self._silver:
            feed = Feed(name, "told", "unused", StubOptions(), {STREAM: StubTable(source="T")})
            connector, places = PreparedConnector(has_partial_updates=False), Places(str(self.folder))
            self._silver[name] = SilverTable(
                lambda: self.spark, feed, connector, connector.decoder(feed), STREAM, places
            )
        return self._silver[name]

    def reduced(self, changes: str) -> DataFrame:
        """Return the last change of each key, flat."""
        last = F.max_by(F.struct("op", "row"), "frame_seq").alias("last")
        grouped = self.spark.read.parquet(changes).groupBy("key.k").agg(last)
        return grouped.select("last.op", "k", *(f"last.row.{name}" for name in COLUMNS))

    def merge(self, path: str, net: DataFrame) -> None:
        """Run a bare MERGE of rows with ``op``."""
        session = self.spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")
        net.createOrReplaceGlobalTempView("net")
        session.sql(
            f"MERGE INTO {path_table(path)} AS t USING global_temp.net AS s ON t.k = s.k "
            "WHEN MATCHED AND s.op = 'delete' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.{c}' for c in COLUMNS)} "
            f"WHEN NOT MATCHED AND s.op <> 'delete' THEN INSERT (k, {', '.join(COLUMNS)}) "
            f"VALUES (s.k, {', '.join(f's.{c}' for c in COLUMNS)})"
        ).collect()

    def pairs(
        self, rows: int, count: int, ours: Callable[[str], object], other: Callable[[str], object], **kind: bool
    ) -> tuple[list[float], list[float]]:
        """Time two ways of applying the same changes, alternating; the first round is not counted."""
        found = []
        for _ in range(self.runs + 1):
            changes = self.changes(rows, count, **kind)
            found.append((timed(lambda changes=changes: ours(changes)), timed(lambda changes=changes: other(changes))))
        mine, theirs = map(list, zip(*found[1:], strict=True))
        return mine, theirs

    def _rows(self, keyed: DataFrame, position: int) -> DataFrame:
        values = {name: F.floor(F.rand(at + 5) * (1 << 40)).cast("long") for at, name in enumerate(COLUMNS)}
        return keyed.withColumns({**values, "_position": F.lit(position).cast("long")})


def apply(bench: Bench, sizes: Sequence[int], counts: Sequence[int]) -> None:
    """Measure the engine against a bare MERGE."""
    seconds: dict[int, float] = {}
    for rows in sizes:
        ours, bare = bench.table(f"ours{rows}", rows), bench.table(f"bare{rows}", rows)
        for count in (count for count in counts if count * 10 <= rows):

            def reduced_merge(changes: str, bare: str = bare) -> None:
                bench.merge(bare, bench.spark.read.parquet(f"{changes}.net"))

            def prepared(changes: str, rows: int = rows) -> None:
                bench.engine(f"ours{rows}", changes)

            mine, limit = [], []
            for run in range(bench.runs + 1):
                changes = bench.changes(rows, count)
                bench.reduced(changes).write.parquet(f"{changes}.net")
                times = timed(lambda changes=changes: prepared(changes)), timed(lambda c=changes: reduced_merge(c))
                if run:
                    mine.append(times[0])
                    limit.append(times[1])
            changed = count * 8 * len(TABLE)
            written = int(DeltaTable(ours).history(1)[0]["operationMetrics"].get("numTargetBytesAdded", 0))
            report("apply", mine, limit, rows=rows, changes=count, bytes_per_changed_byte=round(written / changed, 2))
            if count == min(counts):
                seconds[rows] = statistics.median(mine)
    if len(seconds) > 1:
        least, most = min(seconds), max(seconds)
        print(json.dumps({"bench": "growth", "rows": [least, most], "ratio": round(seconds[most] / seconds[least], 2)}))


def peers(bench: Bench, rows: int, count: int) -> None:
    """Measure the engine against other common methods."""
    bench.table("mine", rows)
    window, rust = bench.table("window", rows), bench.table("rust", rows, vectors=False)

    def latest(changes: str) -> None:
        bench.merge(window, bench.spark.sql(
            f"SELECT op, k, {', '.join(f'row.{c}' for c in COLUMNS)} FROM (SELECT *, key.k AS k, row_number() OVER "
            f"(PARTITION BY key.k ORDER BY frame_seq DESC) AS n FROM parquet.`{changes}`) WHERE n = 1"
        ))  # fmt: skip

    def delta_rs(changes: str) -> None:
        net = bench.reduced(changes).toArrow()
        values = {name: f"s.{name}" for name in COLUMNS}
        merging = DeltaTable(rust).merge(net, "t.k = s.k", source_alias="s", target_alias="t")
        merging.when_matched_delete("s.op = 'delete'").when_matched_update(values).when_not_matched_insert(
            {"k": "s.k", **values}, "s.op <> 'delete'"
        ).execute()

    for name, other in (("latest per key by window, then MERGE", latest), ("delta-rs merge", delta_rs)):
        ours, theirs = bench.pairs(rows, count, lambda changes: bench.engine("mine", changes), other)
        report("peer", ours, theirs, peer=name, rows=rows, changes=count)


def without(bench: Bench, rows: int, count: int) -> None:
    """Measure the engine with and without each optimization."""
    bench.table("with", rows)
    bench.table("no_vectors", rows, vectors=False)
    clustered = bench.table("clustered", rows, clustered=True)
    bench.spark.sql(f"OPTIMIZE {path_table(clustered)}").collect()
    kinds: list[tuple[str, str, dict[str, str], bool]] = [
        ("deletion vectors", "no_vectors", {}, False),
        ("one shuffle partition per core", "with", {"spark.sql.shuffle.partitions": "200"}, False),
        ("key bounds, changes of neighbouring keys, clustered", "clustered", {"bounds": "none"}, True),
        ("clustering by key, changes of neighbouring keys", "with", {}, True),
        ("whole-stage code generation", "with", {"spark.sql.codegen.wholeStage": "false"}, False),
    ]
    for name, table, confs, near in kinds:
        base = "clustered" if near else "with"

        def off(changes: str, table: str = table, confs: dict[str, str] = confs) -> None:
            with configured(bench.silver(table).session, confs), unbounded(drop="bounds" in confs):
                bench.engine(table, changes)

        def on(changes: str, base: str = base) -> None:
            bench.engine(base, changes)

        ours, others = [], []
        for run in range(bench.runs + 1):  # each way needs its own changes: a table cannot apply the same ones twice
            slow, fast = (bench.changes(rows, count, near=near) for _ in range(2))
            times = timed(lambda slow=slow: off(slow)), timed(lambda fast=fast: on(fast))
            if run:
                ours.append(times[0])
                others.append(times[1])
        report("without", ours, others, what=name, rows=rows, changes=count)


@contextmanager
def configured(session: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set options of a session inside the block."""
    named = {name: value for name, value in confs.items() if name.startswith("spark.")}
    before = {name: session.conf.get(name) for name in named}
    try:
        for name, value in named.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, given in before.items():
            session.conf.set(name, given)


@contextmanager
def unbounded(*, drop: bool) -> Iterator[None]:
    """Disable file skipping by key bounds inside the block."""
    original = folding.skipping_bounds
    if drop:
        folding.skipping_bounds = lambda *_: {}
    try:
        yield
    finally:
        folding.skipping_bounds = original


def folds(bench: Bench, count: int, keys: int) -> None:
    """Measure the fold only."""
    numbered = bench.spark.range(count).withColumn("k", F.floor(F.rand(3) * keys).cast("long"))
    some = F.array(F.lit("k"), *(F.lit(name) for name in COLUMNS[:3]))
    path = str(bench.folder / "folded")
    bench._rows(numbered, 0).select(
        F.col("id").alias("frame_seq"),
        F.lit(0).alias("ordinal"),
        F.lit("update").alias("op"),
        F.struct("k").alias("key"),
        F.struct(*ROW.names).alias("row"),
        some.alias("present"),
    ).write.parquet(path)
    whole, partial = bench.spark.read.parquet(path).drop("present"), bench.spark.read.parquet(path)
    ways: list[tuple[str, Callable[[], DataFrame]]] = [
        ("whole rows", lambda: fold(whole, whole=True)),
        ("whole rows, telling", lambda: fold(whole, whole=True, op_code=op_code())),
        ("partial rows", lambda: fold(partial)),
        ("partial rows, telling", lambda: fold(partial, op_code=op_code())),
    ]
    for name, way in ways:
        seconds = [timed(lambda way=way: compute_all(way())) for _ in range(bench.runs + 1)][1:]
        limit = [timed(lambda: compute_all(whole)) for _ in range(bench.runs)]
        report("fold", seconds, limit, what=name, changes_per_second=int(count / statistics.median(seconds)))


def replaced(bench: Bench, rows: int) -> None:
    """Measure a snapshot that changes nothing."""
    path = bench.table("same", rows)
    table = bench.spark.newSession().read.format("delta").load(path)
    same = str(bench.folder / "snapshot")
    table.write.parquet(same)
    ours, limit = [], []
    for run in range(bench.runs + 1):
        session = bench.spark.newSession()
        net = session.read.parquet(same).selectExpr(
            "'snapshot' AS _op", f"{run + 1}L AS _position", "CAST(NULL AS ARRAY<STRING>) AS _present", *ROW.names
        )
        ours.append(
            timed(lambda net=net, run=run: replace(net, path_table(path), keys=["k"], recorded=Recorded("s", run + 1)))
        )
        limit.append(timed(lambda: compute_all(bench.spark.read.format("delta").load(path))))
    metrics = DeltaTable(path).history(1)[0]["operationMetrics"]
    wrote = {name: metrics[name] for name in metrics if name.startswith("numTargetFiles") and "Skipping" not in name}
    report("replace", ours[1:], limit[1:], rows=rows, wrote=wrote)


def main() -> None:
    """Run all measurements in a temporary warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--changes", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    try:
        spark = start_spark(settings_at(folder), app="silverfold bench")
        bench, middle = Bench(spark, folder, options.runs), sorted(options.rows)[len(options.rows) // 2]
        apply(bench, options.rows, options.changes)
        peers(bench, middle, min(options.changes))
        without(bench, middle, min(options.changes))
        folds(bench, 1_000_000, 500_000)
        replaced(bench, middle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
