"""Repeats a case of the matrix: ``python -m tests.matrix --seed 7 --settings kind=upsert,key=text``."""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
import time

from pyspark.sql import SparkSession

from silverfold.conf.load import load_settings
from silverfold.pipelines.spark.session import start_spark, stop_spark
from tests.matrix.pairs import all_pairs
from tests.matrix.settings import SAMPLED, drawn, parsed, sample
from tests.matrix.shrink import Case, Failure, run_case, shrunk
from tests.matrix.story import LANES

_SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC -XX:+UseTransparentHugePages",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Same values as in tests/conftest.py."""

_LONGEST = 1800
"""Timeout of a case, in seconds."""


def main() -> int:
    """Run the selected cases; return 1 if any fails."""
    arguments = _arguments()
    if arguments.pairs:
        print("\n".join(map(str, min((all_pairs(SAMPLED, seed) for seed in range(arguments.pairs)), key=len))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        local = load_settings(None, "local", {})
        options = {**local.spark, **_SPARK, "spark.sql.warehouse.dir": folder}
        spark = start_spark(local.model_copy(update={"spark": options}), app="matrix")
        try:
            failures = [found for case in _cases(arguments) if (found := _run(spark, case, arguments.shrink))]
        finally:
            stop_spark(spark)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


def _run(spark: SparkSession, case: Case, tries: int) -> Failure | None:
    began = time.monotonic()
    found = _guarded(spark, case)
    print(f"{'FAIL' if found else 'ok  '} {time.monotonic() - began:5.1f} s  {case.command}", flush=True)
    if found is None:
        return None
    found = shrunk(found, lambda smaller: _guarded(spark, smaller), tries)
    print(found, flush=True)
    return found


def _guarded(spark: SparkSession, case: Case) -> Failure | None:
    """Run a case; if it hangs, end the process with a traceback."""
    faulthandler.dump_traceback_later(_LONGEST, exit=True)
    try:
        return run_case(spark, case)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _cases(arguments: argparse.Namespace) -> list[Case]:
    if arguments.settings is not None:
        lanes = tuple(range(LANES)) if arguments.lanes is None else _numbers(arguments.lanes)
        return [Case(parsed(arguments.settings), arguments.seed, lanes, _numbers(arguments.without), arguments.short)]
    rows = sample()
    rng = random.Random(arguments.seed)
    more = [drawn(rng, row) for _ in range(arguments.night) for row in rows] if arguments.night else rows
    return [Case(row, arguments.seed + number, short=arguments.short) for number, row in enumerate(more)][
        arguments.first :
    ]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", help="what differs from the tamest; without, all pairs of settings are run")
    parser.add_argument("--lanes", help="only these of the lanes, such as 3,5")
    parser.add_argument("--without", default="", help="numbers of steps that do not happen")
    parser.add_argument("--short", action="store_true", help="stories as by day")
    parser.add_argument("--night", type=int, default=0, metavar="N", help="N times as many settings, drawn anew")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="print a sample: the shortest of N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with the Nth case")
    parser.add_argument("--shrink", type=int, default=0, metavar="N", help="make failures smaller, by at most N tries")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
