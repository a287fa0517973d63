"""Repeats histories: ``python -m tests.matrix.connectors --connector sbe --seed 7 --settings='framing=memx|-'``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

from silverfold.conf.load import load_settings
from silverfold.jobs.common.logs import start_logs
from silverfold.pipelines.spark.session import start_spark, stop_spark
from tests.matrix.__main__ import _SPARK
from tests.matrix.connectors.cases import WORLDS, Case, case_of
from tests.matrix.connectors.history import ROUNDS


def main() -> int:
    """Run the selected histories; return 1 if any fails."""
    arguments = _arguments()
    start_logs("error")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        local = load_settings(None, "local", {})
        options = {**local.spark, **_SPARK, "spark.sql.warehouse.dir": folder}
        spark = start_spark(local.model_copy(update={"spark": options}), app="matrix of connectors")
        try:
            for case in _cases(arguments):
                began = time.monotonic()
                found = case.run(spark)
                failed += found is not None
                print(f"{'FAIL' if found else 'ok  '} {time.monotonic() - began:5.1f} s  {case.command}", flush=True)
                if found:
                    print(found, flush=True)
        finally:
            stop_spark(spark)
    print(f"{failed} failed")
    return 1 if failed else 0


def _cases(arguments: argparse.Namespace) -> list[Case]:
    if arguments.settings is not None:
        settings = WORLDS[arguments.connector][0].parsed(arguments.settings)
        return [
            Case(arguments.connector, arguments.seed + number, settings, arguments.rounds)
            for number in range(arguments.count)
        ]
    return [case_of(arguments.connector, arguments.seed + number) for number in range(arguments.count)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.connectors", description=__doc__)
    parser.add_argument("--connector", required=True, choices=list(WORLDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", help="of the feed and of each table; without, those of the seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from that one on")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how long histories with given settings last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
