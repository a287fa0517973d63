"""Learns from the first frame what is not documented: byte order, what the length counts, which schema is spoken.

The first frame must be a ConnectionResponse, whose root block is one integer. The block length after the length prefix
therefore has few possible values, and the two numbers together have only one interpretation::

    0c000000 0400…   little-endian, the length counts the message: 8 bytes of header and 4 of body
    10000000 0400…   little-endian, it counts its own 4 bytes too
    04000000 0400…   little-endian, it counts the body only
    0c000000 0004…   big-endian
    10000000 0800…   little-endian, counts the message, a buffer size of 8 bytes
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from silverfold.conf.errors import OversizedMessage, RemoteProtocolError
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.frames import PREFIX_SIZE, PrefixCounts
from silverfold.connectors.deephaven.protocol.layouts import primitive_of
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.wire.sbe.schema.load import with_byte_order
from silverfold.connectors.wire.sbe.schema.model import ByteOrder
from silverfold.connectors.wire.sbe.schema.primitives import UNSIGNED

FIRST_FRAME = 64
"""Largest length that the first frame may announce."""

_SIZES = (1, 2, 4, 8)
_ENDIAN: dict[ByteOrder, Literal["little", "big"]] = {"<": "little", ">": "big"}
BYTE_ORDERS: dict[str, ByteOrder] = {"littleEndian": "<", "bigEndian": ">"}
"""From the names in a schema to the characters of `struct`."""


@dataclass(frozen=True)
class Calibration:
    """The parameters of a connection, learned from its first frame.

    Args:
        byte_order: Byte order of the schema.
        prefix_counts: What the length prefix counts.
        prefix: The length prefix of the first frame, as sent.
        message_buffer_size: Largest message the server sends, in bytes.
        schema_id: The server's schema id.
        version: The server's schema version. Newer or older than ours is not an error: SBE reads both.
        differences: Differences between the server and our schema, as text for people.
    """

    byte_order: ByteOrder
    prefix_counts: PrefixCounts
    prefix: int
    message_buffer_size: int
    schema_id: int
    version: int
    differences: tuple[str, ...] = ()

    def adapt(self, roles: Roles) -> Roles:
        """Return the roles for reading this server's messages, with its byte order and schema id."""
        schema = roles.schema
        if (schema.byte_order, schema.id) == (self.byte_order, self.schema_id):
            return roles
        return bind(replace(with_byte_order(schema, self.byte_order), id=self.schema_id), text=roles.text)


@dataclass(frozen=True)
class Expected:
    """What the settings require of the server. None: accept whatever the first frame shows.

    Args:
        prefix_counts: Setting ``prefix_counts``.
        byte_order: Setting ``byte_order``, by the names of an SBE schema.
        accept_schema_id: Setting ``accept_schema_id``: accept a server whose schema id is not ours.
    """

    prefix_counts: PrefixCounts | None = None
    byte_order: Literal["littleEndian", "bigEndian"] | None = None
    accept_schema_id: bool = False


class _Block(NamedTuple):
    byte_order: ByteOrder
    length: int


def calibrate(roles: Roles, received: bytes, expected: Expected | None = None) -> Calibration | None:
    """Parse the first frame; return None when more bytes are needed.

    Args:
        roles: Roles of our schema, in its own byte order.
        received: The first bytes of the connection, length prefix included; may extend beyond the first frame.

    Raises:
        OversizedMessage: The length is above 64: the peer does not speak this protocol.
        RemoteProtocolError: Not a first frame of this schema, or a setting contradicts it. The text shows the bytes,
            both template or schema ids, or the setting.
    """
    member = roles.schema.header.roles["blockLength"]
    if len(received) < PREFIX_SIZE:
        return None
    prefix = int.from_bytes(received[:PREFIX_SIZE], "little")
    if not 1 <= prefix <= FIRST_FRAME:
        raise _size_error(prefix, received)
    if len(received) < PREFIX_SIZE + member.offset + member.size:
        return None
    block = _block_length(roles, received)
    counts = _prefix_counts(roles, prefix, block, received)
    if len(received) < PREFIX_SIZE + roles.schema.header.size + block.length:
        return None
    body = received[PREFIX_SIZE : PREFIX_SIZE + roles.schema.header.size + block.length]
    found = _read(roles, body, block, counts, prefix)
    return _check(found, expected or Expected())


def roles_of_epoch(roles: Roles, connection_response: bytes) -> Roles:
    """Return the roles for an epoch whose ConnectionResponse has landed, with its byte order and schema id.

    Args:
        connection_response: The landed body, without length prefix.

    Raises:
        RemoteProtocolError: Not a ConnectionResponse of this schema.
    """
    block = _block_length(roles, b"\0" * PREFIX_SIZE + connection_response)
    if len(connection_response) < roles.schema.header.size + block.length:
        raise RemoteProtocolError(f"a ConnectionResponse was cut off: {connection_response.hex()}")
    return _read(roles, connection_response, block, PrefixCounts.MESSAGE, len(connection_response)).adapt(roles)


def _size_error(prefix: int, received: bytes) -> OversizedMessage | RemoteProtocolError:
    shown = received[:16].hex(" ", 4)
    if prefix:
        detail = f"the first frame announces {prefix} bytes, {FIRST_FRAME} are allowed: {shown}"
        return OversizedMessage(detail, offset=0, reason="frame-too-large")
    return RemoteProtocolError(f"the first frame announces no bytes: {shown}")


def _block_length(roles: Roles, received: bytes) -> _Block:
    """Return the block length of the first header, and the only byte order in which it is plausible."""
    member = roles.schema.header.roles["blockLength"]
    at = PREFIX_SIZE + member.offset
    plausible = {*_SIZES, roles.connection.message.block_length}
    orders: tuple[ByteOrder, ...] = ("<", ">")
    for order in orders if member.size > 1 else (roles.schema.byte_order,):
        raw = int.from_bytes(received[at : at + member.size], _ENDIAN[order])
        length = raw if member.constant is None else member.constant
        if length in plausible:
            return _Block(order, length)
    shown = received[:16].hex(" ", 4)
    raise RemoteProtocolError(f"the first frame is no ConnectionResponse: its block length makes no sense: {shown}")


def _prefix_counts(roles: Roles, prefix: int, block: _Block, received: bytes) -> PrefixCounts:
    header_size = roles.schema.header.size
    for counts in PrefixCounts:
        if prefix == block.length + header_size + counts.added(header_size):
            return counts
    shown = received[:16].hex(" ", 4)
    raise RemoteProtocolError(
        f"the first frame's length {prefix} fits no reading of a block of {block.length} bytes: {shown}"
    )


def _read(roles: Roles, body: bytes, block: _Block, counts: PrefixCounts, prefix: int) -> Calibration:
    schema = roles.schema
    own = (
        roles
        if schema.byte_order == block.byte_order
        else bind(with_byte_order(schema, block.byte_order), text=roles.text)
    )
    _, template_id, schema_id, version = own.header.read(body, 0)
    message = own.connection.message
    if template_id != message.id:
        raise RemoteProtocolError(
            f"the first frame has template id {template_id}, {message.name} of {schema.file or 'the schema'} is "
            f"{message.id} (schema ids {schema_id} and {schema.id}): this XML is not the server's"
        )
    size = _buffer_size(own, body, block)
    if size < 1:
        raise RemoteProtocolError(f"the server announces a message buffer of {size} bytes")
    return Calibration(
        byte_order=block.byte_order,
        prefix_counts=counts,
        prefix=prefix,
        message_buffer_size=size,
        schema_id=schema_id,
        version=version,
        differences=_differences(roles, block, schema_id, version),
    )


def _buffer_size(roles: Roles, body: bytes, block: _Block) -> int:
    """Return the buffer size, read by the schema's type; a block of another length is read as one integer."""
    field = roles.connection.buffer_size
    at, size = roles.schema.header.size + field.offset, field.size
    signed = primitive_of(field) not in UNSIGNED
    if block.length != roles.connection.message.block_length:
        at, size = roles.schema.header.size, block.length
        signed = size > 2  # Java has no unsigned int of four bytes or more; a smaller unsigned one becomes a Java int
    return int.from_bytes(body[at : at + size], _ENDIAN[block.byte_order], signed=signed)


def _differences(roles: Roles, block: _Block, schema_id: int, version: int) -> tuple[str, ...]:
    ours = roles.schema
    pairs = (
        ("schema id", schema_id, ours.id),
        ("version", version, ours.version),
        ("byte order", _ENDIAN[block.byte_order], _ENDIAN[ours.byte_order]),
        ("size of the buffer size", block.length, roles.connection.message.block_length),
    )
    return tuple(f"{what} {theirs}, ours {own}" for what, theirs, own in pairs if theirs != own)


def _check(found: Calibration, expected: Expected) -> Calibration:
    id_differences = [difference for difference in found.differences if difference.startswith("schema id")]
    if id_differences and not expected.accept_schema_id:
        raise RemoteProtocolError(f"{id_differences[0]}; to read it nevertheless, set accept_schema_id = true")
    if expected.prefix_counts not in {None, found.prefix_counts}:
        raise RemoteProtocolError(
            f'the setting prefix_counts = "{expected.prefix_counts}" contradicts the first frame, whose length of '
            f'{found.prefix} counts "{found.prefix_counts}"'
        )
    if expected.byte_order is not None and BYTE_ORDERS[expected.byte_order] != found.byte_order:
        raise RemoteProtocolError(
            f'the setting byte_order = "{expected.byte_order}" contradicts the first frame, which is '
            f"{_ENDIAN[found.byte_order]}-endian"
        )
    return found
