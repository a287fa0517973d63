"""Reads message headers, as laid out in the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from silverfold.conf.errors import TruncatedMessage
from silverfold.connectors.wire.sbe.codec.blocks import BlockOptions, BlockPlan, BlockReader
from silverfold.connectors.wire.sbe.codec.roles import RoleReader
from silverfold.connectors.wire.sbe.schema.model import Buffer, Schema

ROLES = ("blockLength", "templateId", "schemaId", "version")
_NO_EXTRAS: Mapping[str, Any] = {}


class Header(NamedTuple):
    """Message header: the bytes before the root block."""

    block_length: int
    """Length of the root block, without the header."""
    template_id: int
    schema_id: int
    version: int
    """Acting version: the schema version the message was written with."""
    size: int
    """Size of the header itself: offset of the root block."""
    extras: Mapping[str, Any] = _NO_EXTRAS
    """Values of members besides the four, by name."""


class HeaderReader:
    """Reads the headers of one schema."""

    __slots__ = ("_extras", "_reader", "read_roles", "size")

    def __init__(self, schema: Schema) -> None:
        self._reader = RoleReader(schema.header, ROLES, schema.byte_order)
        self.read_roles: Callable[[Buffer, int], tuple[int, ...]] = self._reader.read
        """Maps a message and offset 0 to the values of the four roles; raises struct.error if bytes are missing."""
        self.size = schema.header.size
        others = [member for member in schema.header.composite.members if member.name not in ROLES]
        options = BlockOptions(schema.byte_order, schema.version, "replace")
        self._extras: BlockReader | None = BlockPlan(others, options, self.size).full if others else None

    def read(self, body: Buffer) -> Header:
        """Return the header of a message. Raises TruncatedMessage, ``short-frame``, if it is incomplete."""
        if len(body) < self.size:
            detail = f"frame of {len(body)} bytes is below the {self.size}-byte header"
            raise TruncatedMessage(detail, offset=len(body), reason="short-frame")
        block_length, template_id, schema_id, version = self._reader.read(body, 0)
        extras = _NO_EXTRAS if self._extras is None else self._extras.read(body, 0)
        return Header(block_length, template_id, schema_id, version, self.size, extras)


def read_header(schema: Schema, body: Buffer) -> Header:
    """Return the header of a message. Only its layout is used: ids and versions are not checked.

    Raises:
        TruncatedMessage: ``short-frame``: fewer bytes than a header.
    """
    reader = schema.plans.get("header")
    if reader is None:
        reader = schema.plans["header"] = HeaderReader(schema)
    header: Header = reader.read(body)
    return header
