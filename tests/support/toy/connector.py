"""The toy's connector object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from silverfold.conf.errors import SourceRefused
from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Decoder, Feed, Problem, Receiver, TableKind
from silverfold.connectors.verification import ReferenceReader, SourceSubscription
from toy.options import ToyOptions, ToyTable


@dataclass(frozen=True)
class ToyConnector:
    """See `connectors.base.Connector`."""

    name: str = "toy"
    Options: type[BaseModel] = ToyOptions
    TableOptions: type[Table] = ToyTable
    continuity: Literal["resync", "resume"] = "resume"
    folds: bool = False
    has_partial_updates: bool = False
    source_ordered: bool = False
    packages: tuple[str, ...] = ()
    simulator_summary: str = "Print the lines of a toy."

    def has_snapshots(self, table: Table) -> bool:
        """Return False: lines are only ever added."""
        return False

    def table_kind(self, table: Table) -> TableKind:
        """Return APPEND."""
        return TableKind.APPEND

    def stream(self, feed: Feed, table: str) -> str:
        """Return the only stream."""
        return "lines"

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return the settings that determine the table's rows."""
        return feed.tables[table].row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield an address where none belongs."""
        if feed.address:
            yield Problem("address", feed.address, "none: a toy is its own source")

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return None: lines have no schema."""

    def listens_at(self, feed: Feed) -> None:
        """Return None."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed."""
        from toy.receiver import ToyReceiver  # noqa: PLC0415 - settings need no receiver

        return ToyReceiver(feed)

    def decoder(self, feed: Feed) -> Decoder:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Raise SourceRefused: the source has no snapshots."""
        raise SourceRefused(code="no-snapshot", text="a toy has lines alone")

    def simulator(self) -> Callable[..., None]:
        """Return the command that prints lines."""
        from toy.server.command import toy  # noqa: PLC0415 - a feed needs no server

        return toy


CONNECTOR: Connector = ToyConnector()
"""The connector object for the registry."""
