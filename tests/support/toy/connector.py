"""The toy's connector object."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from silverfold.connectors.base import Connector, Decoder, Problem, TableKind
from silverfold.connectors.frames import Receiver
from silverfold.connectors.verification import ReferenceReader
from toy.options import ToyFeed, ToyOptions, ToyTable


class ToyConnector(Connector[ToyOptions, ToyTable]):
    """Lands numbered lines. Lines are only ever added."""

    name = "toy"
    Options = ToyOptions
    TableOptions = ToyTable
    simulator_summary = "Print the lines of a toy."
    continuity = "resume"
    has_partial_updates = False

    def table_kind(self, table: ToyTable) -> TableKind:
        """Return APPEND."""
        return TableKind.APPEND

    def stream(self, feed: ToyFeed, table: str) -> str:
        """Return the only stream."""
        return "lines"

    def problems(self, feed: ToyFeed) -> Iterator[Problem]:
        """Yield an address where none belongs."""
        if feed.address:
            yield Problem("address", feed.address, "none: a toy is its own source")

    def receiver(self, feed: ToyFeed) -> Receiver:
        """Return a receiver for the feed."""
        from toy.receiver import ToyReceiver  # noqa: PLC0415 - settings need no receiver

        return ToyReceiver(feed)

    def decoder(self, feed: ToyFeed) -> Decoder[ToyTable]:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def reference(self, feed: ToyFeed, table: str) -> ReferenceReader:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def simulator(self) -> Callable[..., None]:
        """Return the command that prints lines."""
        from toy.server.command import toy  # noqa: PLC0415 - a feed needs no server

        return toy


CONNECTOR: Connector = ToyConnector()
"""The connector object for the registry."""
