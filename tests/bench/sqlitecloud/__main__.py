"""Measures the SQLite Cloud connectors: ``python -m tests.bench.sqlitecloud [--parts …] [--runs N]``.

Prints JSON lines with medians of several runs, alternating with their limits, from the same sender.

``landing``: notifications received and landed, against only reading them (aim 0.5). The sender is a separate process
that has joined its frames beforehand. The time of only writing the same rows is reported too.
``official``: the same over TLS, against the official Python client receiving one frame per TLS record, since it loses
frames otherwise (aim 5).
``webhooks``: requests answered once they have landed, against a bare handler that reads and answers.
``decode``: rows per second in Spark, against `from_json` with a schema on the same strings, which neither distinguishes
absent columns from NULL nor reports invalid values (aim 0.5).
``visible``: time from the end of a commit at the source until its rows are in silver, with receiver and build running,
against a bare MERGE of the same rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator

import structlog

from tests.bench.sqlitecloud.decode import decode
from tests.bench.sqlitecloud.landing import landing
from tests.bench.sqlitecloud.official import official
from tests.bench.sqlitecloud.visible import visible
from tests.bench.sqlitecloud.webhooks import webhooks

PARTS = ("landing", "official", "webhooks", "decode", "visible")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--notifications", type=int, default=500_000)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    for part in chosen.parts:
        for line in measured(part, chosen.notifications, chosen.runs):
            print(json.dumps(line), flush=True)


def measured(part: str, notifications: int, runs: int) -> Iterator[dict[str, object]]:
    """Yield the lines of a part."""
    parts: dict[str, Callable[[], Iterator[dict[str, object]]]] = {
        "landing": lambda: (landing(notifications // rows, rows, runs) for rows in (1, 10)),
        "official": lambda: iter([official(notifications // 20, runs)]),
        "webhooks": lambda: (webhooks(notifications // 25, connections, runs) for connections in (16, 64)),
        "decode": lambda: decode(notifications, runs),
        "visible": lambda: iter([visible(notifications // 5, runs)]),
    }
    yield from parts[part]()


if __name__ == "__main__":
    main()
