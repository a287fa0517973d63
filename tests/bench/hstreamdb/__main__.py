"""Measures the HStreamDB connector: ``python -m tests.bench.hstreamdb [--parts …] [--records N] [--runs N]``.

Prints JSON lines with medians of several runs, alternating with their peers, from the same cluster: one node in a
process of its own, with a stream that has all records beforehand. On few cores the cluster is what both wait for: the
processor times, of the reader or producer alone, do not depend on that.

``landing``: records fetched, landed and acknowledged up to the checkpoint, against a bare gRPC reader that only parses
and acknowledges (aim 0.6), and against the official Python client doing the same (aim 5). It has no zstd.
``appending``: records appended by our producer, against the official one (aim 5).
``decode``: rows per second in Spark, against `from_json` with a schema on the same rows as JSON texts (aim 0.8).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType
from tests.bench.hstreamdb.appending import appending
from tests.bench.hstreamdb.decode import decode
from tests.bench.hstreamdb.landing import landing
from tests.bench.hstreamdb.source import Stored
from tests.interop.hstreamdb_client import python_client
from tests.interop.sqlitecloud_clients import Missing, OfficialClient

PARTS = ("landing", "appending", "decode")
SIZES = (100, 1_000)
"""Records of a batch."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    with tempfile.TemporaryDirectory() as folder:
        official = official_client(Path(folder)) if {"landing", "appending"} & set(chosen.parts) else None
        for part in chosen.parts:
            for line in measured(part, chosen.records, chosen.runs, official):
                print(json.dumps(line), flush=True)


def official_client(folder: Path) -> OfficialClient | None:
    """Return the official client; None, and a line that says why, if it cannot be installed."""
    try:
        return python_client(folder, Path(__file__).with_name("official_client.py"))
    except Missing as reason:
        print(json.dumps({"bench": "hstreamdb-official", "missing": str(reason)}), flush=True)
        return None


def measured(part: str, records: int, runs: int, official: OfficialClient | None) -> Iterator[dict[str, object]]:
    """Yield the lines of a part."""
    parts: dict[str, Callable[[], Iterator[dict[str, object]]]] = {
        "landing": lambda: (
            landing(Stored(records, size, kind), runs, official) for size in SIZES for kind in CompressionType
        ),
        "appending": lambda: (appending(records, size, runs, official) for size in SIZES),
        "decode": lambda: decode(records, runs),
    }
    yield from parts[part]()


if __name__ == "__main__":
    main()
