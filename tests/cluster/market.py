"""A feed, its source, and the commands that work on it, wherever its Spark and its tables are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.pipelines.places import Places
from tests.support.landing import Landed, landed
from tests.support.processes import Processes

FEED: Final = "market"
ROWS: Final = 6_000
"""Of half a kilobyte that no store compresses to less than half: 1 MiB would be decoded without a Spark job."""

ENDS_WITHIN: Final = 900.0
"""Seconds for a command on a busy machine: its JVM, those of executors, and the work."""

FEED_FILE: Final = """
connector = "deephaven"
address = "127.0.0.1:{port}"
commit = {{ interval_ms = 50 }}
[tables.quotes]
source = "Quotes"
expect = {{ no_debt = {{ condition = "Qty >= 0", action = "quarantine" }} }}
[tables.versions]
source = "Quotes"
stored_as_scd_type = 2
"""


class Market(Processes):
    """The feed's source, a table of `ROWS` rows with Qty from 0 to 999, and the commands that work on the feed.

    Args:
        folder: Empty; for settings and logs.
        settings: Environment variables that say where Spark and the warehouse are.
        places: The warehouse.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], places: Places) -> None:
        super().__init__(folder, Random(1))
        self.environ |= settings
        self.places = places
        self.table = LiveTable({"Sym": "String", "Qty": "Long"})
        with self.table.update() as update:
            names = [self.rng.randbytes(250).hex() for _ in range(ROWS)]
            update.add_columns({"Sym": names, "Qty": [row % 1000 for row in range(ROWS)]}, count=ROWS)
        self.source = TableServer.start()
        self.source.export_table("Quotes", self.table)
        (folder / "feeds").mkdir(parents=True)
        (folder / f"feeds/{FEED}.toml").write_text(FEED_FILE.format(port=self.source.port))

    def close(self) -> None:
        """End all processes and the source."""
        super().close()
        self.source.close()

    def receive(self) -> None:
        """Start a receiver; return once it has landed a snapshot of each table."""
        epoch = max((frame.epoch for frame in landed(self.places)), default=0)
        self.start("receive", *self.conf, FEED)
        self._await_landed(lambda frame: frame.kind == "snapshot" and frame.epoch > epoch)

    def change(self) -> None:
        """Change the table in one update, and let it land: row 0 fails the rule, 1 goes, 2 and 3 change, one is new."""
        with self.table.update() as update:
            update.modify_columns([0, 2, 3], {"Qty": [-5, 7_000, 3]})
            update.remove([1])
            update.add([{"Sym": "NEW", "Qty": 9}])
        self._await_landed(lambda frame: b"NEW" in frame.body)

    def report(self, *command: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(self._printed(*command, "--json"))

    def verdicts(self) -> dict[str, str]:
        """Return what ``verify`` finds, by table."""
        return {table["table"]: table["verdict"] for table in self.report("verify", FEED)["tables"]}

    def query(self, sql: str) -> list[Any]:
        """Return the rows of a query, each a list of its values."""
        return [list(json.loads(row).values()) for row in self._printed("sql", sql, "--format", "json").splitlines()]

    def take_over(self) -> int:
        """Let a second receiver land a snapshot, and change the table until the first ends; return its exit code."""
        first = self.running["the first receiver"] = self.running.pop("receive")
        self.receive()
        self.until(lambda: self._write_a_row() or first.poll() is not None)
        return first.returncode

    def _await_landed(self, meant: Callable[[Landed], bool]) -> None:
        """Wait until each table has a frame that is meant, and no update or snapshot of which a part is to come."""
        receiver = self.running["receive"]

        def has_landed(table: str) -> bool:
            frames = [frame for frame in landed(self.places) if frame.stream == table and frame.boundary != "none"]
            return any(map(meant, frames)) and frames[-1].boundary in {"whole", "end"}

        self.until(lambda: receiver.poll() is not None or all(map(has_landed, ("quotes", "versions"))))
        assert receiver.poll() is None, self.log.read_text()

    def _write_a_row(self) -> None:
        with self.table.update() as update:
            update.modify_columns([3], {"Qty": [self.rng.randrange(1000)]})

    def _printed(self, name: str, *arguments: str) -> str:
        """Run a command, which must end with 0; return what it prints."""
        running = self.start(name, *self.conf, *arguments, is_read=True)
        printed, _ = running.communicate(timeout=ENDS_WITHIN)
        assert running.returncode == 0, printed + self.log.read_text()
        return printed
