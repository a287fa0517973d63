"""The framings of published feeds, by name.

===================== ========================================================================================
deephaven             uint32 length of the message (what else it counts is not documented: ``length_counts``)
sofh                  FIX Simple Open Framing Header 1.0: uint32 length of the frame and encoding type, big-endian
sofh-little-endian    the same little-endian, as SOFH 1.1 RC1 lets two parties agree
cme-ilink3            CME iLink 3: SOFH turned little-endian, with 16 bits of length, encoding 0xCAFE
cme-mdp3              CME MDP 3.0 over UDP: packet header with sequence and time, then sized messages
cme-mdp3-feca         the same behind the bytes ``fe ca``
b3                    B3 order entry: uint16 length of the frame, ``50 eb``
b3-umdf               B3 market data over UDP: packet header, then frames as in ``b3``
memx                  MEMX: session header, count, then messages with a big-endian uint16 length; packets of
                      other types than 2, such as heartbeats, are the session header alone
coinbase-market-data  Coinbase Derivatives over UDP: packet header with a count, then frames with their own length;
                      an empty packet is a heartbeat, with the number of the message to come
coinbase-orders       Coinbase Derivatives order entry: one header with the total length before each message
whole                 the input is one message (WebSocket frame, HTTP body, line of hex)
packed                messages back to back, each as long as the schema implies: that of the senders, or newer
===================== ========================================================================================

Sizes and offsets are from the venues' public documents. Coinbase's own schemas count the frame header as part of the
message header: `connectors.wire.sbe.codec.framed` detects this, and leaves it in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from silverfold.connectors.wire.framing.settings import (
    EncodingType,
    FixedHeader,
    Flags,
    Framing,
    Mark,
    Number,
    PacketType,
)
from silverfold.connectors.wire.sbe.schema.model import ByteOrder

_SIZE = FixedHeader(2, (Number("length", 0, 2),))
_B3 = FixedHeader(4, (Number("length", 0, 2),), (Mark(2, "50eb"),))
_UINT16_SIZES = 65535
_SNAPSHOT, _RETRANSMIT = 0x02, 0x04
"""Of Coinbase's packets. A snapshot has the number of the last increment in it, a retransmission the one asked for."""
_RESEND = 0x01
"""Of Coinbase's order entry: a message with the number that it had when it was first sent."""


def _sofh(order: ByteOrder) -> Framing:
    return Framing(
        FixedHeader(6, (Number("length", 0, 4, order), Number("encoding", 4, 2, order))),
        "length",
        length_counts=6,
        encoding=EncodingType("encoding", little=0xEB50, big=0x5BE0),
    )


FRAMINGS: Mapping[str, Framing] = {
    "deephaven": Framing(FixedHeader(4, (Number("length", 0, 4),)), "length"),
    "sofh": _sofh(">"),
    "sofh-little-endian": _sofh("<"),
    "cme-ilink3": Framing(
        FixedHeader(4, (Number("length", 0, 2),), (Mark(2, "feca"),)), "length", 4, largest=_UINT16_SIZES
    ),
    "cme-mdp3": Framing(
        _SIZE,
        "length",
        length_counts=2,
        largest=_UINT16_SIZES,
        packet=FixedHeader(12, (Number("sequence", 0, 4), Number("sending_time", 4, 8))),
    ),
    "cme-mdp3-feca": Framing(
        _SIZE,
        "length",
        length_counts=2,
        largest=_UINT16_SIZES,
        packet=FixedHeader(14, (Number("sequence", 2, 4), Number("sending_time", 6, 8)), (Mark(0, "feca"),)),
    ),
    "b3": Framing(_B3, "length", length_counts=4, largest=_UINT16_SIZES),
    "b3-umdf": Framing(
        _B3,
        "length",
        length_counts=4,
        largest=_UINT16_SIZES,
        packet=FixedHeader(
            16,
            (
                Number("channel", 0, 1),
                Number("sequence_version", 2, 2),
                Number("sequence", 4, 4),
                Number("sending_time", 8, 8),
            ),
        ),
    ),
    "memx": Framing(
        FixedHeader(2, (Number("length", 0, 2, ">"),)),
        "length",
        largest=_UINT16_SIZES,
        packet=FixedHeader(
            20,
            (
                Number("type", 0, 1),
                Number("session", 2, 8, ">"),
                Number("sequence", 10, 8, ">"),
                Number("messages", 18, 2, ">"),
            ),
            (Mark(1, "12"),),
        ),
        per_packet="counted",
        count="messages",
        packet_type=PacketType("type", frames=2, others=18),
        sequence_counts="messages",
    ),
    "coinbase-market-data": Framing(
        _SIZE,
        "length",
        length_counts=2,
        largest=_UINT16_SIZES,
        packet=FixedHeader(
            24,
            (
                Number("sending_time", 0, 8, signed=True),
                Number("sequence", 8, 8, signed=True),
                Number("channel", 16, 2),
                Number("flags", 18, 1),
                Number("messages", 19, 1),
                Number("snapshot_instrument", 20, 4, signed=True),
            ),
        ),
        per_packet="counted",
        count="messages",
        sequence_counts="messages",
        out_of_sequence=Flags("flags", _SNAPSHOT | _RETRANSMIT),
    ),
    "coinbase-orders": Framing(
        FixedHeader(
            24,
            (
                Number("flags", 1, 1),
                Number("length", 2, 2),
                Number("sequence", 4, 4),
                Number("last_sequence", 8, 4),
                Number("sending_time", 16, 8, signed=True),
            ),
            (Mark(0, "f1"),),
        ),
        "length",
        length_counts=24,
        largest=_UINT16_SIZES,
        out_of_sequence=Flags("flags", _RESEND),
    ),
    "whole": Framing(),
    "packed": Framing(unframed="packed"),
}
"""By the names used in settings and on the command line."""


def find_framing(name: str) -> Framing:
    """Return the framing with the given name. Raises ValueError; its message lists the known names."""
    if name in FRAMINGS:
        return FRAMINGS[name]
    near = get_close_matches(name, FRAMINGS, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no framing {name!r}.{hint} Known: {', '.join(FRAMINGS)}")
