"""Frames that an epoch lands: the schema in use, every message as its own update, and marks for irregularities.

======================  ==============================================================================================
control frame           the schema's XML, if it differs from the last control frame: bronze records the schema by which
                        the following frames were received
data frame              one message, header and body, without framing; ``stream`` is its template id, or
                        ``schema <id>`` for a message of another schema, ``encoding <type>`` for a frame of another
                        encoding type; with ``source_position`` if read from a file
``schema changed``      differences from the schema that landed last, and whether the new one misreads older messages
``unknown template``    once per template and epoch: its messages land, and are decoded once a schema has the template
``unknown encoding``    once per encoding type and epoch: frames that are no SBE land
``newer version``       once per epoch: messages are newer than the schema; the parts known to it are read
``deprecated``          once per element of a template: it, or its type, is deprecated in the version of a message; or,
                        for an enum's value or a set's choice, a message contains it
``sequence gap``        packet numbers are not consecutive
``part of a message``   once per position: the file ended, or was lost, inside a message; reading resumes there
``bad bytes``           bytes that cannot be cut into messages, or are SBE of the other byte order, the first of them
                        in base64; the epoch ends
======================  ==============================================================================================

Marks are logged once they have landed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.sbe.protocol.messages import BadBytes, MessageReceived, OtherEncodingReceived, SequenceGap
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.schema_change import what_changed
from silverfold.connectors.wire.sbe.codec.deprecated import DeprecatedValues
from silverfold.connectors.wire.sbe.codec.header import Header
from silverfold.connectors.wire.sbe.schema.model import (
    Body,
    Composite,
    Field,
    Member,
    Message,
    Schema,
    deprecated_since,
)

_CUT_SHORT: Final = ("truncated", "short-frame", "count-range")
"""Error reasons for an input that ends inside a message."""


class Landing:
    """Builds the frames of one epoch.

    Args:
        has_positions: Messages have a position to resume from.
        reported: What was already reported for the feed: deprecated elements, positions of partial messages. Updated.
    """

    def __init__(self, schema: Schema, session: Session, *, has_positions: bool, reported: set[str]) -> None:
        self._schema, self._session, self._has_positions, self._reported = schema, session, has_positions, reported
        self._values = DeprecatedValues(schema, reported)
        self._unknown: set[str] = set()
        self._seen: set[tuple[str, int]] = set()
        self._newer = self._grows = False
        self.error: RemoteProtocolError | None = None
        """The error for which the connection must be dropped."""

    def begin(self, text: bytes, before: bytes | None) -> list[Frame]:
        """Return the first frames of the epoch.

        Args:
            text: The schema's XML.
            before: The XML of the last control frame; None if there is none.
        """
        if text == before:
            return []
        frames = [Frame(text, Kind.CONTROL)]
        if before is not None:
            changed = what_changed(before, self._schema)
            level = {"level": "warning"} if changed["breaks"] else {}
            frames.append(mark("schema changed", stream=None, **level, **changed))
        return frames

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes and return the frames that they complete. After `error` is set, there are no more."""
        self._session.receive(chunk)
        return list(self._pull())

    def receive_eof(self) -> list[Frame]:
        """Take the end of the connection and return the remaining frames. A partial message is an error there."""
        self._session.receive_eof()
        return list(self._pull())

    def receive_end_of_file(self) -> list[Frame]:
        """Take the end of a file that is one message, or is gone. A partial message is left to a later epoch."""
        self._grows = True
        return self.receive_eof()

    def _pull(self) -> Iterator[Frame]:
        while (event := self._session.next_event()) is not None:
            match event:
                case MessageReceived():
                    yield from self._message(event)
                case OtherEncodingReceived():
                    yield from self._other_encoding(event)
                case SequenceGap(expected, found):
                    yield mark("sequence gap", level="warning", expected=expected, found=found)
                case BadBytes(error) if self._grows and error.reason in _CUT_SHORT:
                    yield from self._part(event)
                case BadBytes():
                    yield self._broken(event)

    def _message(self, event: MessageReceived) -> Iterator[Frame]:
        header, template = event.header, event.template
        stream = self._stream(header)
        if template is None:
            yield from self._unknown_template(header, stream)
        else:
            if header.version > self._schema.version and not self._newer:
                self._newer = True
                version, known = header.version, self._schema.version
                yield mark("newer version", template=template.name, version=version, schema_version=known)
            yield from self._deprecated(template, header.version, event.body)
        yield self._data(event, stream)

    def _other_encoding(self, event: OtherEncodingReceived) -> Iterator[Frame]:
        encoding = f"{event.encoding:#06x}"
        stream = f"encoding {encoding}"
        if stream not in self._unknown:
            self._unknown.add(stream)
            yield mark("unknown encoding", encoding=encoding)
        yield self._data(event, stream)

    def _data(self, event: MessageReceived | OtherEncodingReceived, stream: str) -> Frame:
        return Frame(event.body, Kind.DATA, Boundary.WHOLE, stream, event.resume_at if self._has_positions else None)

    def _stream(self, header: Header) -> str:
        return str(header.template_id) if header.schema_id == self._schema.id else f"schema {header.schema_id}"

    def _unknown_template(self, header: Header, stream: str) -> Iterator[Frame]:
        if stream not in self._unknown:
            self._unknown.add(stream)
            yield mark(
                "unknown template",
                template_id=header.template_id,
                schema_id=header.schema_id,
                version=header.version,
            )

    def _deprecated(self, template: Message, version: int, body: bytes) -> Iterator[Frame]:
        elements = self._values.find_new(template.name, body)
        if (template.name, version) not in self._seen:
            self._seen.add((template.name, version))
            known = deprecated(template, template.name, version)
            elements = [*(name for name in known if name not in self._reported), *elements]
        if elements:
            self._reported.update(elements)
            yield mark("deprecated", template=template.name, version=version, elements=elements)

    def _part(self, event: BadBytes) -> Iterator[Frame]:
        what = f"part at {event.begins}"
        if what not in self._reported:
            self._reported.add(what)
            yield mark("part of a message", level="warning", offset=event.begins, left=len(event.left))

    def _broken(self, event: BadBytes) -> Frame:
        self.error = RemoteProtocolError(str(event.error))
        return bad_input("bad bytes", event.left, event.error, offset=event.begins, left=len(event.left))


def deprecated(body: Body, path: str, version: int) -> Iterator[str]:
    """Yield the paths of elements that are deprecated in messages of a version."""
    parts = [(path, body.deprecated), *_deprecations(body.fields, path)]
    parts += [(f"{path}.{data.name}", deprecated_since(data)) for data in body.data]
    yield from (name for name, since in parts if since is not None and since <= version)
    for group in body.groups:
        if group.since_version <= version:
            yield from deprecated(group, f"{path}.{group.name}", version)


def _deprecations(parts: Iterable[Field | Member], path: str) -> Iterator[tuple[str, int | None]]:
    """Yield path and version of deprecation of fields and of the members of their composites; None if they are not."""
    for part in parts:
        name = f"{path}.{part.name}"
        yield name, deprecated_since(part)
        if isinstance(part.encoding, Composite):
            yield from _deprecations(part.encoding.members, name)
