"""The SBE connector for the registry: any stream of messages of one schema, over TCP or from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from silverfold.conf.errors import SchemaError
from silverfold.connectors.base import Connector, Decoder, Problem, SourceChange, TableKind, address_problems
from silverfold.connectors.frames import Receiver
from silverfold.connectors.sbe.address import FILE, parse_source
from silverfold.connectors.sbe.decoder.checks import problems_of
from silverfold.connectors.sbe.decoder.layout import layout_of
from silverfold.connectors.sbe.options import SbeFeed, SbeOptions, SbeTable
from silverfold.connectors.sbe.protocol.schemas import BUILTIN, feed_schema, read_schema, stream_of, template_of
from silverfold.connectors.sbe.receiver.schema_change import source_change
from silverfold.connectors.verification import ReferenceReader
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.sbe.schema.model import Schema


class SbeConnector(Connector[SbeOptions, SbeTable]):
    """Lands the messages of a schema. A file resumes at its last position; over TCP nothing is requested.

    No message carries the state of the source.
    """

    name = "sbe"
    Options = SbeOptions
    TableOptions = SbeTable
    simulator_summary = (
        "Send a made-up market's messages in Simple Binary Encoding: book entries with update actions, and trades."
    )
    continuity = "resume"

    def table_kind(self, table: SbeTable) -> TableKind:
        """Return ``STATE`` for a table with keys, ``APPEND`` for one that stores every row."""
        return TableKind.STATE if table.keys else TableKind.APPEND

    def stream(self, feed: SbeFeed, table: str) -> str:
        """Return the id of the table's template. Raises SchemaError if the schema has no such template."""
        return stream_of(template_of(_schema(feed), table, feed.tables[table].source))

    def row_settings(self, feed: SbeFeed, table: str) -> Mapping[str, str | list[str]]:
        """Return the table's row settings, and the schema's names of the enum values in its keys.

        Raises:
            SchemaError: The schema cannot be read, or lacks the table's message or group.
        """
        settings, schema = feed.tables[table], _schema(feed)
        columns = layout_of(schema, template_of(schema, table, settings.source), settings).columns
        names = {
            f"value {raw} of {column.name}": name
            for column in columns
            if column.name in settings.keys
            for raw, name in column.values.items()
        }
        return {**settings.row_settings, **names}

    def column_comments(self, feed: SbeFeed, table: str) -> Mapping[str, str]:
        """Return the schema's descriptions of fields, groups and data. Raises SchemaError, as `row_settings`."""
        settings, schema = feed.tables[table], _schema(feed)
        columns = layout_of(schema, template_of(schema, table, settings.source), settings).columns
        return {column.name: column.comment for column in columns if column.comment}

    def problems(self, feed: SbeFeed) -> Iterator[Problem]:
        """Yield problems that the models cannot find: in the address, the schema, and the names in tables."""
        yield from address_problems(feed, parse_source)
        framing = feed.options.framing
        if framing.length is None and framing.unframed == "whole" and not feed.address.startswith(FILE):
            what = "how messages stand in a stream, such as sofh: whole is for a file that is one message"
            yield Problem("options.framing", "whole", what)
        if framing.needs_datagrams:
            name = next(
                (name for name, known in FRAMINGS.items() if known == framing), "packets that end with the input"
            )
            what = "a framing whose packets say how many messages they have, as memx: others end with their datagrams"
            yield Problem("options.framing", name, f"{what}, which neither a connection nor a file shows")
        try:
            schema = _schema(feed)
        except SchemaError as error:
            yield Problem("options.schema", feed.options.schema_, f"{BUILTIN}, or a valid SBE schema: {error}")
            return
        for name, table in feed.tables.items():
            yield from problems_of(schema, name, table)

    def schema_change(self, feed: SbeFeed, last_control: bytes) -> SourceChange | None:
        """Return how the schema file differs from the schema that landed. Raises SchemaError."""
        now = read_schema(feed.options.schema_, feed.options.accept)
        return None if now.text == last_control else source_change(last_control, now.load())

    def receiver(self, feed: SbeFeed) -> Receiver:
        """Return a receiver for the feed. No I/O yet, except for reading the schema."""
        from silverfold.connectors.sbe.receiver.receiver import SbeReceiver

        return SbeReceiver(feed)

    def decoder(self, feed: SbeFeed) -> Decoder[SbeTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.sbe.decoder.decoder import SbeDecoder

        return SbeDecoder(feed)

    def reference(self, feed: SbeFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's template."""
        from silverfold.connectors.sbe.reference import SbeReferenceReader

        settings, schema = feed.tables[table], _schema(feed)
        return SbeReferenceReader(schema, template_of(schema, table, settings.source), settings)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sbe.server.command import sbe

        return sbe


def _schema(feed: SbeFeed) -> Schema:
    """Return the current schema. Raises SchemaError."""
    return feed_schema(feed.options.schema_, feed.options.accept)


CONNECTOR: Connector = SbeConnector()
"""The connector object for the registry."""
