"""Base of the connectors' worlds: a changing source, its feed, and the expected silver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self, TypeAlias

from silverfold.conf.model import Commit, Reconnect
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.places import Places
from tests.matrix.connectors.space import Choice, Settings
from tests.matrix.oracle import Rule
from tests.support.landing import Landed, landed
from tests.support.polling import wait_until
from tests.support.receiver_thread import ReceiverThread

Row: TypeAlias = dict[str, Any]

FEED = "feed"
SWIFT = {"commit": Commit(interval_ms=20), "reconnect": Reconnect(first=0.01, longest=0.05)}
"""Feed settings with minimal delays."""

TRUE = Rule("TRUE", lambda _row: True)


@dataclass(frozen=True)
class Expected:
    """Expected state of one table.

    Args:
        rows: Rows of silver.
        side_rows: Rows of the source that fail a quarantine rule.
        ignored: Columns of the engine that do not come from the source.
        history: The table keeps history, whose current versions equal the rows.
        shown: Converts a row of silver to the form of ``rows``: to one, several or no rows.
    """

    rows: Sequence[Row]
    side_rows: Sequence[Row] = ()
    ignored: Sequence[str] = ("_position",)
    history: bool = False
    shown: Callable[[Row], Iterable[Row]] = lambda row: [row]


class World(ExitStack):
    """A connector's source, and the receiver of its feed. Closes what it opened on exit.

    Args:
        connector: The real connector.
        folder: Folder for the source's files and the warehouse.
        rng: Draws all events at the source.
    """

    def __init__(self, connector: Connector, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__()
        self.connector, self.folder, self.settings, self.rng = connector, folder, settings, rng
        self.places = Places(str(folder / "warehouse"))
        self.chosen: Mapping[str, Choice] = {f"t{number}": table for number, table in enumerate(settings.tables)}
        self._receiver: ReceiverThread | None = None

    @property
    @abstractmethod
    def feed(self) -> Feed:
        """The feed with its current settings."""

    @abstractmethod
    def change(self) -> None:
        """Make a few changes at the source."""

    @abstractmethod
    def disturb(self) -> None:
        """Break connections, stop the receiver or let it die, or change the source's schema."""

    @abstractmethod
    def rest(self) -> None:
        """Wait until everything that the source has sent has landed."""

    @abstractmethod
    def expected(self, table: str) -> Expected:
        """Return the expected state of a table, from the current state of the source."""

    @property
    def keeps_time(self) -> bool:
        """Whether the source sends snapshots periodically: too many would land while a build runs."""
        return False

    def pause(self) -> None:
        """Stop the receiver once nothing is in flight."""
        self.stop()

    def receive(self) -> None:
        """Start the receiver."""
        self._receiver = ReceiverThread(self.feed, self.connector, self.places, self.rng)

    def stop(self) -> None:
        """Stop the receiver, if running. It must not have failed."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()

    def let_die(self, change: Callable[[], object]) -> None:
        """Let the receiver die at the commit that lands a change; then start another."""
        assert self._receiver is not None
        with self._receiver.dies(after=self.rng.random() < 0.5):
            change()
        self.receive()

    def landed(self) -> list[Landed]:
        """Return all frames that have landed."""
        return landed(self.places.bronze(FEED))

    def wait_until(self, met: Callable[[], object], what: str) -> None:
        """Wait for a condition that reads the disk, polling slowly."""
        wait_until(met, what, pause=0.03, seconds=30)

    def __enter__(self) -> Self:
        self.callback(self.stop)
        return super().__enter__()


def split(rows: Iterable[Row], choice: Choice, met: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    """Return the rows of silver and those of the side table, which has rows only if the table's rule quarantines."""
    every = list(rows)
    if choice["rules"] != "quarantine":
        return every, []
    return [row for row in every if met(row)], [row for row in every if not met(row)]


def expect(choice: Choice, rule: Rule) -> dict[str, Any]:
    """Return the setting ``expect``; a rule that would hold the table is replaced by one that every row meets."""
    if choice["rules"] == "none":
        return {}
    sql = TRUE.sql if choice["rules"] == "fail" else rule.sql
    return {"judged": {"condition": sql, "action": choice["rules"]}}


RULES = ("none", "warn", "quarantine", "fail")
HISTORY = ("1", "2")
HISTORY_LAW = (
    "history with a rule that quarantines is refused: versions are of all rows",
    lambda c: c["history"] == "1" or c["rules"] != "quarantine",
)
