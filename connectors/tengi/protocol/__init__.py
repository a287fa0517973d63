"""The wire without a socket: values to bytes and back, packets cut from a stream, both sides' connections, the feed.

============  ======================================================================================
`values`      Python values of tengi's objects; `registry`: user types
`encoder`     values to bytes; `decoder` the reverse; `debugger` prints bytes that do not parse
`scanner`     cuts a stream into packets, `simple_messages` at once; `heads`: what precedes a body
`connection`  both sides of a connection, with the `events` they yield
`feed`        the change feed: column types, packets, headings, and the order of changes
============  ======================================================================================
"""

from silverfold.connectors.tengi.protocol.debugger import SerializationDebugger
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.encoder import Encoder
from silverfold.connectors.tengi.protocol.errors import UnknownType
from silverfold.connectors.tengi.protocol.registry import FilterResult, Marshaller, TypeRegistry, accepts_class
from silverfold.connectors.tengi.protocol.values import (
    Byte,
    Char,
    EnumerableValue,
    EnumValue,
    Float,
    Handshake,
    Identifier,
    Int,
    Marshallable,
    Message,
    Packet,
    PollingRequest,
    PollingResponse,
    Short,
)

__all__ = [
    "Byte",
    "Char",
    "Decoder",
    "Encoder",
    "EnumValue",
    "EnumerableValue",
    "FilterResult",
    "Float",
    "Handshake",
    "Identifier",
    "Int",
    "Marshallable",
    "Marshaller",
    "Message",
    "Packet",
    "PollingRequest",
    "PollingResponse",
    "SerializationDebugger",
    "Short",
    "TypeRegistry",
    "UnknownType",
    "accepts_class",
]
