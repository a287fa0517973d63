"""Measures the tengi connector: ``python -m tests.bench.tengi [--parts …] [--packets N] [--runs N]``.

Prints JSON lines with medians of several runs, alternating with their limits.

``landing``: packets received up to a sink that counts them, against a bare asyncio reader, from the same source in a
process of its own, over each transport (aim 0.5). The reader finds where packets end, by hand: nothing else tells how
many there are. The times of our client alone, and of only counting bytes, which is the source's, are reported too.
``codec``: bytes written and read, against `struct` written by hand: a packet of ten fields, and arrays (aim 0.5).
``decode``: rows per second in Spark, against `from_json` with a schema on the same rows as JSON texts (aim 0.5).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator

import structlog

from silverfold.connectors.tengi.protocol.events import Transport
from tests.bench.tengi.codec import codec
from tests.bench.tengi.decode import decode
from tests.bench.tengi.landing import landing
from tests.bench.tengi.source import Stored

PARTS = ("landing", "codec", "decode")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--packets", type=int, default=100_000)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    for part in chosen.parts:
        for line in measured(part, chosen.packets, chosen.runs):
            print(json.dumps(line), flush=True)


def measured(part: str, packets: int, runs: int) -> Iterator[dict[str, object]]:
    """Yield the lines of a part."""
    parts: dict[str, Callable[[], Iterator[dict[str, object]]]] = {
        "landing": lambda: (
            landing(transport, Stored(packets // rows, rows), runs) for rows in (1, 10) for transport in Transport
        ),
        "codec": lambda: codec(runs),
        "decode": lambda: decode(packets, runs),
    }
    yield from parts[part]()


if __name__ == "__main__":
    main()
