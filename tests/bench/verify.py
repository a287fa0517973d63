"""Measures ``silverfold verify`` on a large table: ``python -m tests.bench.verify [--rows N] [--runs N]``.

Prints JSON lines: seconds, microseconds per row, and the peak memory of the verifying process, for a landed snapshot of
N rows x 10 long columns (Deephaven) and its silver table. The limit is reading both completely once, in the same
process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.frames import Kind
from silverfold.pipelines.landing.bronze import last_position, read_stream
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import app_id
from silverfold.pipelines.verifying.compared_rows import read_silver
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.bench.silver import COLUMNS, feed, report, timed
from tests.support.deephaven.landed_history import LandedHistory

FEED, TABLE = "big", "t"
_ROWS_AT_ONCE = 500_000


class Measured(NamedTuple):
    """Measurements of one process."""

    seconds: float
    limit_seconds: float
    peak_megabytes: int


def land(root: str, rows: int) -> None:
    """Land a snapshot and write its silver table, both in parts and in random order."""
    places, rng, history = Places(root), np.random.default_rng(7), LandedHistory({TABLE: COLUMNS})
    bronze, silver = places.bronze(FEED), places.silver(FEED, TABLE).url
    last = rows // _ROWS_AT_ONCE
    history.connect()
    history.begin(TABLE, Kind.SNAPSHOT)
    for part, keys in enumerate(np.array_split(rng.permutation(rows), last + 1)):
        values = {name: rng.integers(0, 1 << 40, len(keys)) for name in COLUMNS}
        order = np.argsort(keys)
        for column, cells in enumerate(values.values()):
            history.column(TABLE, column, keys[order].tolist(), cells[order], modified=False, kind=Kind.SNAPSHOT)
        if part == last:
            history.end(TABLE, Kind.SNAPSHOT)
        history.land(bronze, FEED)
        position = last_position(bronze, FEED)
        columns = {"_row_key": keys, **values, "_position": np.zeros(len(keys), np.int64)}
        recorded = CommitProperties(app_transactions=[Transaction(app_id(FEED, TABLE), position)])
        write_deltalake(silver, pa.table(columns), mode="append", commit_properties=recorded)


def measure(root: str, rows: int) -> Measured:
    """Verify once, then read everything once."""
    places, found = Places(root), []

    def read() -> None:
        through = last_position(places.bronze(FEED), FEED)
        for _ in read_stream(places.bronze(FEED), TABLE, first=0, last=through):
            pass
        silver = read_silver(places, FEED, TABLE)
        assert silver is not None
        assert silver.rows.table().num_rows == rows

    seconds = timed(lambda: found.append(verify_table(places, CONNECTOR, feed(FEED), TABLE)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert [(each.verdict, each.found_rows) for each in found] == [(Verdict.EQUAL, rows)]
    return Measured(seconds, timed(read), peak)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        lake = str(Path(root) / "lake")
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
            alone.submit(land, lake, arguments.rows).result()
            measured = [alone.submit(measure, lake, arguments.rows).result() for _ in range(arguments.runs)]
    seconds, limits, peaks = map(list, zip(*measured, strict=True))
    each = round(min(seconds) / arguments.rows * 1e6, 1)
    report("verify", seconds, limits, rows=arguments.rows, microseconds_a_row=each, peak_megabytes=max(peaks))


if __name__ == "__main__":
    main()
