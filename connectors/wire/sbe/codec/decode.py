"""Decodes complete messages to values by name, limited by their acting version and block lengths.

Four results are distinguished (SBE 1.0, sections 2 and 5): a value; null, which is None; absent, which has no key; and
empty, which is an empty list, text or set. Readers are compiled once for each template and each range of versions
without changes.
"""

from __future__ import annotations

import json
import math
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from silverfold.conf.errors import InvalidValue, UnknownTemplate
from silverfold.connectors.wire.sbe.codec.blocks import BlockOptions, member_versions
from silverfold.connectors.wire.sbe.codec.bodies import BodyReader, Counts, Scan
from silverfold.connectors.wire.sbe.codec.compiled_decoder import CompiledDecoder, compile_decoder
from silverfold.connectors.wire.sbe.codec.header import Header, HeaderReader
from silverfold.connectors.wire.sbe.codec.skip import Skipper
from silverfold.connectors.wire.sbe.codec.value_checks import newer_values
from silverfold.connectors.wire.sbe.codec.values import Fault, Finding, SetValue
from silverfold.connectors.wire.sbe.codec.walk import MAX_EMPTY_ENTRIES
from silverfold.connectors.wire.sbe.schema.model import Body, Buffer, Composite, Encoding, Enum, Message, Schema, Set
from silverfold.connectors.wire.sbe.schema.text import TextMode


def json_text(decoded: Decoded, *, size: int) -> str:
    """Return a decoded message as one line of JSON; ``length`` is the number of bytes read, header included.

    Args:
        size: Of the message; ``left`` is what of it was not read.
    """
    header = decoded.header
    left = {"left": size - decoded.consumed} if size > decoded.consumed else {}
    message = {
        "template": decoded.message.name,
        "template_id": header.template_id,
        "schema_id": header.schema_id,
        "version": header.version,
        "length": decoded.consumed,
        **left,
        "fields": decoded.values,
    }
    try:
        return _encode(message)
    except ValueError:  # a float without a JSON number: rare, so only such messages pay for the search
        return _encode(_replace_nonfinite(message))


def _to_json(value: Any) -> Any:
    """Return the JSON form of a value that is not JSON-serializable."""
    return value.names if isinstance(value, SetValue) else bytes(value).hex()


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, default=_to_json).encode


def _replace_nonfinite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _replace_nonfinite(element) for name, element in value.items()}
        case list():
            return [_replace_nonfinite(element) for element in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


_MAX_COMPILED = 256
"""Most header values with a compiled reader; senders use few, and forged ones must not fill the memory."""
_new = tuple.__new__


class Decoded(NamedTuple):
    """A decoded message."""

    header: Header
    message: Message
    values: dict[str, Any]
    """By name, in the order of the schema. Numbers are int or float, text str, data without a charset bytes, enums
    their name (or raw value if unlisted), sets `SetValue`, composites dicts, arrays and groups lists."""
    consumed: int
    """Bytes read, header included: the offset of a message packed behind this one."""
    warnings: tuple[Finding, ...]


class MessageReader:
    """Decodes the messages of one schema.

    Args:
        text: How to treat bytes that are not text in their charset.
        strict: Trailing bytes after a message that is not newer than the schema are an error, not a warning.
        max_empty_entries: Most group entries of no bytes to read from one message.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        text: TextMode = "strict",
        strict: bool = False,
        max_empty_entries: int = MAX_EMPTY_ENTRIES,
    ) -> None:
        self._schema = schema
        self._header = HeaderReader(schema)
        self._skipper = Skipper(schema)
        self._text: TextMode = text
        self._strict = strict
        self._max_empty_entries = max_empty_entries
        self._templates: dict[int, _Template] = {}
        self._read_roles = self._header.read_roles
        self._counts_parts = "numGroups" in schema.header.roles
        self._compiled: dict[tuple[int, ...], tuple[CompiledDecoder, int, Header, Message]] = {}
        """Header values → compiled decoder, end of the root block, header, message. For messages without findings."""

    def read(self, body: Buffer) -> Decoded:
        """Return the values of one complete message, including its header.

        Raises:
            TruncatedMessage: ``short-frame``, ``truncated``: the message ends too early.
            UnknownTemplate: ``unknown-template``: the schema has no such message. Keep the bytes and go on.
            InvalidValue: ``schema-id``, ``count-range``, ``length-max``, ``charset``, ``unskippable``; in strict
                mode ``trailing-bytes``.
        """
        try:
            compiled, end, header, message = self._compiled[self._read_roles(body, 0)]
        except (KeyError, struct.error):
            return self._read_parts(body)
        values = compiled(body, end)
        if values is None:
            return self._read_parts(body)
        return _new(Decoded, (header, message, values, len(body), ()))

    def _read_parts(self, body: Buffer) -> Decoded:
        """Read any message, part by part."""
        header = self._header.read(body)
        template = self._template(header)
        scan = Scan(body, empty_entries=self._max_empty_entries, skipper=self._skipper)
        if header.version < template.message.since_version:
            detail = f"version {header.version}, the message exists since {template.message.since_version}"
            scan.note("template-newer-than-version", template.message.name, detail, 0)
        extras = header.extras
        counts = Counts(extras["numGroups"], extras["numVarDataFields"]) if self._counts_parts else None
        try:
            reader = template.reader(header.version)
            values, consumed = reader.read(scan, header.size, header.block_length, counts)
        except Fault as fault:
            raise fault.wire_error(template.message.name) from None
        if consumed < len(body) and header.version <= self._schema.version and not scan.stopped:
            self._note_trailing(scan, template.message, consumed)
        if header.version < template.newest_value:
            for element, detail in newer_values(template.message, values, header.version):
                scan.note("value-newer-than-version", element, detail, None)
        if not scan.findings and len(self._compiled) < _MAX_COMPILED:
            self._cache_compiled(header, template)
        return Decoded(header, template.message, values, consumed, tuple(scan.findings.values()))

    def _cache_compiled(self, header: Header, template: _Template) -> None:
        """Cache a compiled decoder for this header: the first message with it had no findings."""
        if header.extras or header.version < template.newest_value:
            return
        compiled = template.compiled(header.version, header.size)
        if compiled is not None:
            self._compiled[header[:4]] = compiled, header.size + header.block_length, header, template.message

    def _template(self, header: Header) -> _Template:
        if header.schema_id != self._schema.id:
            detail = f"schema id {header.schema_id}, expected {self._schema.id}"
            raise InvalidValue(detail, offset=0, reason="schema-id")
        template = self._templates.get(header.template_id)
        if template is None:
            message = self._schema.templates.get(header.template_id)
            if message is None:
                detail = f"template id {header.template_id} is not in the schema"
                raise UnknownTemplate(detail, offset=0, reason="unknown-template")
            template = self._templates[header.template_id] = _Template(message, self._schema, self._text)
        return template

    def _note_trailing(self, scan: Scan, message: Message, consumed: int) -> None:
        detail = f"{len(scan.body) - consumed} bytes are left behind the message"
        if self._strict:
            raise InvalidValue(detail, offset=consumed, reason="trailing-bytes", element=message.name)
        scan.note("trailing-bytes", message.name, detail, consumed)


class _Template:
    """The readers of one message template, by acting version."""

    def __init__(self, message: Message, schema: Schema, text: TextMode) -> None:
        self.message = message
        self._schema = schema
        self._text: TextMode = text
        self._versions = sorted({version for version in element_versions(message) if version > 0})
        self._readers: list[BodyReader | None] = [None] * (len(self._versions) + 1)
        self._compiled: dict[int, CompiledDecoder | None] = {}
        self.newest_value = max(_value_versions(message), default=0)
        """The newest sinceVersion of the values in the message's enums and sets."""

    def reader(self, version: int) -> BodyReader:
        """Return the reader for an acting version; versions with the same elements share one."""
        index = bisect_right(self._versions, version)
        reader = self._readers[index]
        if reader is None:
            reader = BodyReader(self.message, self._options(index), path=self.message.name, root=True)
            self._readers[index] = reader
        return reader

    def compiled(self, version: int, header_size: int) -> CompiledDecoder | None:
        """Return the compiled decoder for an acting version; None if the template cannot have one."""
        index = bisect_right(self._versions, version)
        if index not in self._compiled:
            self._compiled[index] = compile_decoder(self.message, self._options(index), header_size)
        return self._compiled[index]

    def _options(self, index: int) -> BlockOptions:
        representative = self._versions[index - 1] if index else 0
        return BlockOptions(self._schema.byte_order, representative, self._text)


def decode(schema: Schema, body: Buffer, *, text: TextMode = "strict", strict: bool = False) -> Decoded:
    """Return the values of one complete message; see `MessageReader`, which is cached in the schema."""
    key = ("message", text, strict)
    reader = schema.plans.get(key)
    if reader is None:
        reader = schema.plans[key] = MessageReader(schema, text=text, strict=strict)
    decoded: Decoded = reader.read(body)
    return decoded


def element_versions(body: Body) -> Iterator[int]:
    """Yield the sinceVersion of every element of the body."""
    for field in body.fields:
        yield field.since_version
        yield from member_versions(field.encoding)
    for data in body.data:
        yield data.since_version
    for group in body.groups:
        yield group.since_version
        yield from element_versions(group)


def _value_versions(body: Body) -> Iterator[int]:
    for field in body.fields:
        yield from _encoding_value_versions(field.encoding)
    for group in body.groups:
        yield from _value_versions(group)


def _encoding_value_versions(encoding: Encoding) -> Iterator[int]:
    if isinstance(encoding, Composite):
        for member in encoding.members:
            yield from _encoding_value_versions(member.encoding)
    elif isinstance(encoding, Enum | Set):
        yield from encoding.versions.values()
