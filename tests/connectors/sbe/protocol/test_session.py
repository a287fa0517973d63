"""Bytes of a connection or a file become messages, gaps and bad bytes, wherever chunks end."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.sbe.protocol.filepositions import BEGINNING, FilePosition, furthest
from silverfold.connectors.sbe.protocol.messages import BadBytes, MessageReceived, OtherEncodingReceived, SequenceGap
from silverfold.connectors.sbe.protocol.schemas import feed_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.connectors.wire.sbe.codec.encode import encode

MARKET = feed_schema("builtin")
SECURITIES = list(Market(MARKET, seed=0, clock=lambda: 0).greeting())
"""Four messages of 40 to 43 bytes."""
STREAMS = sorted(FRAMINGS.keys() - {"whole"})


def stream(name: str, bodies: list[bytes] | None = None) -> bytes:
    return FrameWriter(FRAMINGS[name]).write(SECURITIES if bodies is None else bodies)


def events(octets: bytes, framing: str | Framing, *, begins: FilePosition = BEGINNING, size: int = 1 << 20) -> list:
    framing = FRAMINGS[framing] if isinstance(framing, str) else framing
    session, found = Session(MARKET, framing, begins=begins), []
    for start in range(begins.offset, len(octets), size):
        session.receive(octets[start : start + size])
        found += iter(session.next_event, None)
    session.receive_eof()
    return found + list(iter(session.next_event, None))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_messages_do_not_depend_on_where_chunks_end_in_any_framing(name: str, size: int):
    found = events(stream(name), name, size=size)

    assert [event.body for event in found] == SECURITIES
    assert {event.template.name for event in found} == {"Security"}


@pytest.mark.parametrize("name", STREAMS)
def test_behind_each_message_reading_goes_on_with_the_next_in_any_framing(name: str):
    octets = stream(name, SECURITIES[:2]) if name == "cme-mdp3" else stream(name)
    whole = events(octets, name)

    for done, event in enumerate(whole, start=1):
        later = events(octets, name, begins=furthest([event.resume_at]))
        assert [each.body for each in later] == [each.body for each in whole[done:]]


def test_positions_are_bytes_behind_a_message_or_messages_of_a_packet():
    assert [event.resume_at for event in events(stream("sofh"), "sofh")] == ["47", "93", "142", "188"]
    assert [event.resume_at for event in events(stream("memx"), "memx")] == ["0+1", "0+2", "0+3", "0+4"]
    assert furthest(["47", "188", "93"]) == (188, 0)
    assert furthest(["120+9", "120+10"]) == (120, 10)
    assert furthest([]) == (0, 0)


def test_a_message_of_a_template_or_schema_that_is_not_ours_is_a_message_without_template():
    unknown = SECURITIES[0][:2] + b"\x63\x00" + SECURITIES[0][4:]
    foreign = SECURITIES[0][:4] + b"\x07\x00" + SECURITIES[0][6:]

    found = events(stream("sofh", [unknown, foreign]), "sofh")

    assert [(event.template, event.header.template_id, event.header.schema_id) for event in found] == [
        (None, 99, 901),
        (None, 1, 7),
    ]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_frame_of_another_encoding_is_an_event_and_reading_goes_on_behind_it(size: int):
    octets = stream("sofh", SECURITIES[:1]) + bytes.fromhex("00000009 f000 383d46") + stream("sofh", SECURITIES[1:2])

    first, other, last = events(octets, "sofh", size=size)

    assert other == OtherEncodingReceived(b"8=F", 0xF000, "56")
    assert [first.body, last.body] == SECURITIES[:2]
    assert events(octets, "sofh", begins=furthest([other.resume_at]), size=size) == [last]


def test_sbe_of_the_other_byte_order_ends_reading_so_that_a_schema_that_is_right_finds_it():
    octets = stream("sofh", SECURITIES[:1]) + FrameWriter(FRAMINGS["sofh"], byte_order=">").write(SECURITIES[1:2])

    first, bad = events(octets, "sofh")

    assert (first.body, first.resume_at) == (SECURITIES[0], "47")
    assert (type(bad), bad.begins, bad.left) == (BadBytes, 53, SECURITIES[1])
    assert str(bad.error) == (
        "encoding-type at byte 47: encoding 0x5be0, that of the schema's byte order is 0xeb50: "
        "this is SBE of the other byte order; is the schema's byteOrder right?"
    )


def memx(sequence: int, count: int) -> bytes:
    return struct.pack(">BBQQH", 2, 0x12, 77, sequence, count) + stream("memx", SECURITIES[:count])[20:]


def coinbase(sequence: int, count: int, flags: int = 0x01) -> bytes:
    header = struct.pack("<qqHBBi", 0, sequence, 1, flags, count, 0)
    return header + stream("coinbase-market-data", SECURITIES[:count])[24:]


def coinbase_order(sequence: int, flags: int = 0) -> bytes:
    octets = stream("coinbase-orders", SECURITIES[:1])
    return octets[:1] + bytes([flags]) + octets[2:4] + sequence.to_bytes(4, "little") + octets[8:]


BY_PACKETS = replace(FRAMINGS["memx"], sequence_counts="packets")
"""A framing of one's own."""


@pytest.mark.parametrize(
    ("framing", "packets", "found"),
    [
        ("memx", [memx(7, 2), memx(9, 2), memx(11, 1), memx(12, 1)], [2, 2, 1, 1]),
        ("memx", [memx(7, 2), memx(8, 2)], [2, (9, 8), 2]),
        ("memx", [memx(7, 2), memx(11, 2), memx(13, 1)], [2, (9, 11), 2, 1]),
        ("memx", [memx(7, 2), memx(9, 0), memx(9, 1)], [2, 1]),
        ("memx", [memx(7, 2), memx(10, 0), memx(10, 1)], [2, (9, 10), 1]),
        ("coinbase-market-data", [coinbase(7, 2), coinbase(9, 0), coinbase(9, 3), coinbase(12, 1)], [2, 3, 1]),
        ("coinbase-market-data", [coinbase(7, 2), coinbase(11, 2), coinbase(13, 2)], [2, (9, 11), 2, 2]),
        (
            "coinbase-market-data",
            [coinbase(7, 1), coinbase(5, 2, 0x02), coinbase(5, 2, 0x02), coinbase(8, 1)],
            [1, 2, 2, 1],
        ),
        ("coinbase-market-data", [coinbase(7, 1), coinbase(3, 2, 0x05), coinbase(8, 1)], [1, 2, 1]),
        ("coinbase-orders", [coinbase_order(7), coinbase_order(8), coinbase_order(10)], [1, 1, (9, 10), 1]),
        ("coinbase-orders", [coinbase_order(7), coinbase_order(3, 0x01), coinbase_order(8)], [1, 1, 1]),
        ("coinbase-orders", [coinbase_order(2**32 - 1), coinbase_order(0), coinbase_order(1)], [1, 1, 1]),
        ("coinbase-orders", [coinbase_order(2**32 - 1), coinbase_order(1)], [1, (0, 1), 1]),
        ("memx", [memx(2**64 - 2, 3), memx(1, 1)], [3, 1]),
        ("coinbase-market-data", [coinbase(2**63 - 1, 2), coinbase(-(2**63) + 1, 1)], [2, 1]),
        (BY_PACKETS, [memx(7, 2), memx(8, 1), memx(9, 0), memx(10, 2)], [2, 1, 2]),
        (BY_PACKETS, [memx(7, 2), memx(9, 2), memx(10, 2)], [2, (8, 9), 2, 2]),
        (BY_PACKETS, [memx(7, 2), memx(9, 0), memx(9, 1)], [2, (8, 9), (10, 9), 1]),
    ],
)
def test_numbers_that_do_not_follow_each_other_are_gaps_by_what_the_framing_counts(framing, packets, found):
    octets = b"".join(packets)
    expected = [each for item in found for each in ([item] if isinstance(item, tuple) else ["message"] * item)]

    for size in (1, 1 << 20):
        seen = events(octets, framing, size=size)
        assert [tuple(event) if isinstance(event, SequenceGap) else "message" for event in seen] == expected
        assert {type(event) for event in seen} <= {SequenceGap, MessageReceived}


@pytest.mark.parametrize(
    ("framing", "wrong", "reason"),
    [
        ("sofh", b"\0\0\0\3\xeb\x50zzzz", "short-frame at byte 93:"),
        ("sofh", b"\0\0\0\x30\xeb\x50", "truncated at byte 93:"),
        ("packed", b"\1\2\3", "short-frame at byte 84:"),
    ],
)
def test_bad_bytes_are_told_by_their_place_in_the_file_wherever_reading_began(framing, wrong, reason):
    octets = stream(framing, SECURITIES[:2]) + wrong
    first, second, bad = events(octets, framing)
    assert bad.begins == len(octets) - len(wrong)

    for begins in (first.resume_at, second.resume_at):
        (*_, later) = events(octets, framing, begins=furthest([begins]))
        assert (str(later.error), later.begins, later.left) == (str(bad.error), bad.begins, bad.left)
        assert reason in str(later.error)


def test_a_file_of_one_message_that_is_too_short_is_told_by_its_end():
    (bad,) = events(bytes(100), "whole", begins=FilePosition(97))
    assert str(bad.error).startswith("short-frame at byte 100: ")


def test_a_gap_comes_before_the_bad_bytes_behind_it():
    octets = memx(7, 1) + memx(9, 1)[:20] + b"\x00\x00"

    assert [type(event) for event in events(octets, "memx")] == [MessageReceived, SequenceGap, BadBytes]


@pytest.mark.parametrize("name", sorted(name for name in STREAMS if FRAMINGS[name].sequenced.has("sequence")))
def test_numbers_that_the_writer_writes_follow_each_other(name: str):
    writer = FrameWriter(FRAMINGS[name])
    octets = b"".join(writer.write(SECURITIES[first:]) for first in range(1 if FRAMINGS[name].count is None else 4))

    assert {type(event) for event in events(octets, name)} == {MessageReceived}


def test_good_messages_come_before_the_bytes_that_are_none_and_nothing_after():
    octets = stream("sofh") + b"\xff" * 10 + stream("sofh")

    found = events(octets, "sofh")

    assert [event.body for event in found[:4]] == SECURITIES
    (bad,) = found[4:]
    assert (type(bad), bad.begins, bad.error.reason) == (BadBytes, 188, "frame-too-large")


def test_a_message_that_is_too_long_is_refused_by_its_announcement():
    session = Session(MARKET, replace(FRAMINGS["sofh"], largest=42))
    session.receive(stream("sofh")[: 93 + 6])

    found = list(iter(session.next_event, None))

    assert [type(event).__name__ for event in found] == ["MessageReceived", "MessageReceived", "BadBytes"]
    assert (found[2].error.error_class, found[2].begins) == ("OVERSIZED_MESSAGE", 93)
    assert found[2].left == stream("sofh")[93:99]


@given(st.binary(max_size=200), st.sampled_from(sorted(FRAMINGS)))
def test_any_bytes_are_messages_or_bad_bytes(octets: bytes, name: str):
    found = events(octets, name)

    assert all(not isinstance(event, BadBytes) for event in found[:-1])
    assert sum(len(event.body) for event in found if isinstance(event, MessageReceived)) <= len(octets)


def test_a_writer_refuses_what_its_framing_cannot_hold():
    with pytest.raises(Exception, match="does not fit 2 bytes") as caught:
        FrameWriter(replace(FRAMINGS["b3"], largest=1 << 20)).write([bytes(65_535)])
    assert caught.value.error_class == "OVERSIZED_MESSAGE"


def test_a_writer_keeps_as_many_messages_in_a_packet_as_its_count_can_tell():
    body = encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": []})
    octets = FrameWriter(FRAMINGS["coinbase-market-data"]).write([body] * 300)

    found = events(octets, "coinbase-market-data")

    assert (len(found), found[254].resume_at, found[255].resume_at) == (300, "0+255", f"{24 + 255 * 22}+1")
