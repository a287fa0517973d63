"""The demo's source: a table server whose two tables change, which breaks its connections once, and then is quiet.

Finally it adds one row to every table. Updates arrive in order, so a table with that row is complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random

from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.common.rate import Rate, change_steadily
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.jobs.demo.tables import TABLES

CHANGES_PER_SECOND = 50.0
"""Rows changed per second, in each table."""


class DemoSource(Closeable):
    """A running source and context manager.

    Args:
        rows: Number of initial rows of each table.
        seed: Seed: the same seed gives the same rows and sequence of updates.
    """

    def __init__(self, *, rows: int, seed: int) -> None:
        self.tables: Mapping[str, LiveTable] = {
            name: table.filled(rows, Random(f"{seed}/{name}"))  # noqa: S311 - repeatable, not secret
            for name, table in TABLES.items()
        }
        self._changers = [
            Changer(self.tables[name], f"{seed}/{name}", numbered=table.keys) for name, table in TABLES.items()
        ]
        self._stop, self._watched = threading.Event(), threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="demo-source")
        self._server = TableServer.start()
        for name, table in TABLES.items():
            self._server.export_table(table.source, self.tables[name])

    @property
    def address(self) -> str:
        """Address the source listens on."""
        return f"127.0.0.1:{self._server.port}"

    def change(self, seconds: float, *, say: Callable[[str], None]) -> Future[Mapping[str, int]]:
        """Change the tables until they have been watched for ``seconds``; half-way break every connection.

        Args:
            say: Called with progress messages, from another thread.

        Returns:
            A future of the row key of the last row of each table.
        """
        return self._thread.submit(self._change, seconds, say)

    def watch(self) -> None:
        """Start the time: the build now follows the changes."""
        self._watched.set()

    def close(self) -> None:
        """Stop changes, connections and the server. May be called repeatedly."""
        self._stop.set()
        self._watched.set()
        self._thread.shutdown()
        self._server.close()

    def _change(self, seconds: float, say: Callable[[str], None]) -> Mapping[str, int]:
        half = Rate(CHANGES_PER_SECOND, seconds / 2)
        self._change_until(Rate(CHANGES_PER_SECOND), self._watched)
        self._change_until(half, self._stop)
        if not self._stop.is_set():
            self._server.disconnect_all()
            say("the source broke the connection: a new epoch begins with new snapshots")
        self._change_until(half, self._stop)
        last = {name: self._add_last_row(name) for name in TABLES}
        if not self._stop.is_set():
            say("the source is quiet from now on")
        return last

    def _change_until(self, pace: Rate, until: threading.Event) -> None:
        change_steadily(self._changers, pace, clock=time.monotonic, stopped_within=until.wait)

    def _add_last_row(self, name: str) -> int:
        """Add a row that is null except for its key columns, and return its row key."""
        table = self.tables[name]
        numbers = {key: max((row[key] for row in table.rows().values()), default=0) + 1 for key in TABLES[name].keys}
        with table.update() as update:
            (row_key,) = update.add([numbers]).tolist()
        return int(row_key)
