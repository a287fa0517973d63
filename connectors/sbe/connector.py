"""The SBE connector for the registry: any stream of messages of one schema, over TCP or from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from silverfold.conf.errors import SchemaError, SourceRefused
from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Decoder, Feed, Problem, Receiver, SourceChange, TableKind
from silverfold.connectors.common.transport import address_problems
from silverfold.connectors.sbe.address import FILE, parse_place
from silverfold.connectors.sbe.decoder.checks import problems_of
from silverfold.connectors.sbe.decoder.layout import layout_of
from silverfold.connectors.sbe.options import SbeOptions, SbeTable
from silverfold.connectors.sbe.protocol.schemas import BUILTIN, feed_schema, read_schema, stream_of, template_of
from silverfold.connectors.sbe.receiver.changed import source_change
from silverfold.connectors.verification import ReferenceReader, SourceSubscription
from silverfold.connectors.wire.framing.known import FRAMINGS
from silverfold.connectors.wire.sbe.schema.model import Schema


@dataclass(frozen=True)
class SbeConnector:
    """See `connectors.base.Connector`. A file resumes at its last position; over TCP nothing is requested."""

    name: str = "sbe"
    Options: type[BaseModel] = SbeOptions
    TableOptions: type[Table] = SbeTable
    continuity: Literal["resync", "resume"] = "resume"
    folds: bool = False
    has_partial_updates: bool = True
    source_ordered: bool = False
    packages: tuple[str, ...] = ()
    simulator_summary: str = (
        "Send a made-up market's messages in Simple Binary Encoding: book entries with update actions, and trades."
    )

    def has_snapshots(self, table: Table) -> bool:
        """Return False: no message carries the state of the source."""
        return False

    def table_kind(self, table: Table) -> TableKind:
        """Return ``STATE`` for a table with keys, ``APPEND`` for one that stores every row."""
        return TableKind.STATE if table.keys else TableKind.APPEND

    def stream(self, feed: Feed, table: str) -> str:
        """Return the id of the table's template. Raises SchemaError if the schema has no such template."""
        return stream_of(template_of(_schema(feed), table, feed.tables[table].source))

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return the table's row settings, and the schema's names of the enum values in its keys.

        Raises:
            SchemaError: The schema cannot be read, or lacks the table's message or group.
        """
        settings, schema = feed.tables[table], _schema(feed)
        assert isinstance(settings, SbeTable)
        columns = layout_of(schema, template_of(schema, table, settings.source), settings).columns
        names = {
            f"value {raw} of {column.name}": name
            for column in columns
            if column.name in settings.keys
            for raw, name in column.values.items()
        }
        return {**settings.row_settings, **names}

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield problems that the models cannot find: in the address, the schema, and the names in tables."""
        yield from address_problems(feed, parse_place)
        framing = _options(feed).framing
        if framing.length is None and framing.unframed == "whole" and not feed.address.startswith(FILE):
            what = "how messages stand in a stream, such as sofh: whole is for a file that is one message"
            yield Problem("options.framing", "whole", what)
        if framing.packet.size and framing.per_packet == "until-end":
            name = next(
                (name for name, known in FRAMINGS.items() if known == framing), "packets that end with the input"
            )
            what = "a framing whose packets say how many messages they have, as memx: others end with their datagrams"
            yield Problem("options.framing", name, f"{what}, which neither a connection nor a file shows")
        try:
            schema = _schema(feed)
        except SchemaError as error:
            yield Problem("options.schema", _options(feed).schema_, f"{BUILTIN}, or a valid SBE schema: {error}")
            return
        for name, table in feed.tables.items():
            assert isinstance(table, SbeTable)
            yield from problems_of(schema, name, table)

    def listens_at(self, feed: Feed) -> None:
        """Return None: the receiver connects and does not listen."""

    def schema_change(self, feed: Feed, last_control: bytes) -> SourceChange | None:
        """Return how the schema file differs from the schema that landed. Raises SchemaError."""
        now = read_schema(_options(feed).schema_, _options(feed).accept)
        return None if now.text == last_control else source_change(last_control, now.load())

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. No I/O yet, except for reading the schema."""
        from silverfold.connectors.sbe.receiver.receiver import SbeReceiver  # noqa: PLC0415 - a build needs no sockets

        return SbeReceiver(feed)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from silverfold.connectors.sbe.decoder.decoder import SbeDecoder  # noqa: PLC0415 - a receiver must not load Spark

        return SbeDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's template."""
        from silverfold.connectors.sbe.reference import SbeReferenceReader  # noqa: PLC0415 - only verify needs it

        settings, schema = feed.tables[table], _schema(feed)
        assert isinstance(settings, SbeTable)
        return SbeReferenceReader(schema, template_of(schema, table, settings.source), settings)

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Raise SourceRefused: a stream carries changes, never the current state."""
        raise SourceRefused(code="no-snapshot", text="a stream of messages cannot be asked for what there is")

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sbe.server.command import sbe  # noqa: PLC0415 - a feed needs no server

        return sbe


def _options(feed: Feed) -> SbeOptions:
    assert isinstance(feed.options, SbeOptions)
    return feed.options


def _schema(feed: Feed) -> Schema:
    """Return the current schema. Raises SchemaError."""
    return feed_schema(_options(feed).schema_, _options(feed).accept)


CONNECTOR: Connector = SbeConnector()
"""The connector object for the registry."""
