"""Runs the benchmarks, each in its own process: ``python -m tests.bench [NAME …] [--quick]``.

Prints their JSON lines as they come, then a table of the results: the benchmark, our seconds, those of the limit or
peer in the same run, and the ratio of the two, below 1 where ours takes less time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

BENCHES: Mapping[str, tuple[str, ...]] = {
    "small": ("--rows", "5000", "--runs", "5"),
    "once": ("--runs", "2"),
    "live": ("--rows", "5000", "--seconds", "60"),
    "many": ("--rows", "1000", "--runs", "2", "--shapes", "5x3", "1x10"),
    "silver": ("--rows", "200000", "--runs", "3"),
    "engine": ("--rows", "100000", "--changes", "1000", "--runs", "2"),
    "autocdc": ("--runs", "3"),
    "verify": ("--rows", "1000000", "--runs", "2"),
    "landing": ("--megabytes", "64", "--runs", "3"),
    "sqlitecloud": ("--parts", "decode", "--notifications", "50000", "--runs", "3"),
    "hstreamdb": ("--records", "50000", "--runs", "3"),
    "tengi": ("--packets", "20000", "--runs", "3"),
    "sbe": ("--messages", "50000", "--runs", "3"),
}
"""Arguments for ``--quick``, by name: they reduce each benchmark to a minute or two."""

_OF_TABLE = ("bench", "seconds", "limit_seconds", "ratio", "aim")


def main() -> int:
    """Run the selected benchmarks; return 1 if any fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small tables and few runs")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHES)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    lines, failed = [], False
    for name in arguments.names or BENCHES:
        command = [sys.executable, "-m", f"tests.bench.{name}", *(BENCHES[name] if arguments.quick else ())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                print(line, end="", flush=True)
                lines += _figures(line)
        failed |= running.returncode != 0
    Console().print(_table(lines))
    return int(failed)


def _figures(line: str) -> Iterator[dict[str, Any]]:
    """Yield the figures of an output line, if it has any."""
    if line.startswith("{"):
        yield json.loads(line)


def _table(lines: list[dict[str, Any]]) -> Table:
    table = Table("what", *_OF_TABLE)
    for line in lines:
        what = ", ".join(f"{key} {value}" for key, value in line.items() if key not in (*_OF_TABLE, "ratios", "runs"))
        table.add_row(what, *(str(line.get(key, "")) for key in _OF_TABLE))
    return table


if __name__ == "__main__":
    sys.exit(main())
