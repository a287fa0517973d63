"""What a connector's world is to a history: a source that changes, a feed of it, and what silver must come to."""

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
from tests.support.receiver_thread import ReceiverThread
from tests.support.waiting import wait_until

Row: TypeAlias = dict[str, Any]

FEED = "feed"
SWIFT = {"commit": Commit(interval_ms=20), "reconnect": Reconnect(first=0.01, longest=0.05)}
"""Of a feed: waits for next to nothing."""

TRUE = Rule("TRUE", lambda _row: True)


@dataclass(frozen=True)
class Expected:
    """What one table must come to.

    Args:
        rows: What silver has.
        aside: Rows of the source that fail a rule which keeps them out.
        ignored: Columns of ours that say nothing of the source.
        history: The versions that stand are the rows.
        shown: Puts a row of silver into the form of those expected; it may become several, or none.
    """

    rows: Sequence[Row]
    aside: Sequence[Row] = ()
    ignored: Sequence[str] = ("_position",)
    history: bool = False
    shown: Callable[[Row], Iterable[Row]] = lambda row: [row]


class World(ExitStack):
    """One connector's source, and a receiver of its feed. What is opened is closed with it.

    Args:
        connector: The real one.
        folder: For the source's files and the warehouse.
        rng: Draws all that happens at the source.
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
        """The feed as it is set now."""

    @abstractmethod
    def change(self) -> None:
        """Let a few things happen at the source."""

    @abstractmethod
    def disturb(self) -> None:
        """Let connections break, the receiver end or die, or the source's schema change."""

    @abstractmethod
    def rest(self) -> None:
        """Wait until everything that the source has said has landed."""

    @abstractmethod
    def expected(self, table: str) -> Expected:
        """Return what a table must be, from what the source itself holds now."""

    @property
    def keeps_time(self) -> bool:
        """The source sends snapshots by the clock: while a build runs, there would be too many."""
        return False

    def pause(self) -> None:
        """Stop the receiver while nothing is on its way."""
        self.stop()

    def receive(self) -> None:
        """Start the receiver."""
        self._receiver = ReceiverThread(self.feed, self.connector, self.places, self.rng)

    def stop(self) -> None:
        """Stop the receiver, if there is one. It must not have failed."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()

    def let_die(self, change: Callable[[], object]) -> None:
        """Let the receiver die of the commit in which it lands a change; then start another."""
        assert self._receiver is not None
        with self._receiver.dies(after=self.rng.random() < 0.5):
            change()
        self.receive()

    def landed(self) -> list[Landed]:
        """Return all frames that have landed."""
        return landed(self.places.bronze(FEED))

    def wait_until(self, met: Callable[[], object], what: str) -> None:
        """Wait for what needs the disk to be looked at."""
        wait_until(met, what, pause=0.03, seconds=30)

    def __enter__(self) -> Self:
        self.callback(self.stop)
        return super().__enter__()


def split(rows: Iterable[Row], choice: Choice, met: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    """Return the rows that are in silver and those that are aside, where the table's rule quarantines."""
    every = list(rows)
    if choice["rules"] != "quarantine":
        return every, []
    return [row for row in every if met(row)], [row for row in every if not met(row)]


def expect(choice: Choice, rule: Rule) -> dict[str, Any]:
    """Return the setting ``expect``; a rule that would stop the table is one that every row meets."""
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
