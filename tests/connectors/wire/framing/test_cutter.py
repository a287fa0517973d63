"""Every framing: whole, byte by byte, in parts, with bytes behind; and what becomes of lies."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.deephaven.protocol.frames import FrameCutter as DeephavenCutter
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.wire.framing.cutter import Frame, FrameCutter, frames_of
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.settings import FixedHeader, Framing, Number
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.framed import cutter_for, measure
from silverfold.connectors.wire.sbe.schema.load import load_schema, with_byte_order
from silverfold.connectors.wire.sbe.schema.model import Buffer
from tests.support.sbe.basics import message_of

GOLDEN = Path(__file__).parents[3] / "golden"
FRAMES = json.loads((GOLDEN / "framing" / "frames.json").read_text("utf-8"))
LIES = json.loads((GOLDEN / "framing" / "lies.json").read_text("utf-8"))
SCHEMA = message_of('<field name="a" id="1" type="uint8"/>')
STANDARD = load_schema(GOLDEN / "sbe" / "standard.xml")


def named(case: dict[str, Any]) -> str:
    return str(case["name"])


def cutter(case: dict[str, Any]) -> FrameCutter:
    return cutter_for(SCHEMA, FRAMINGS[case["framing"]])


def in_parts(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def to_dicts(frames: list[Frame]) -> list[dict[str, Any]]:
    return [{"offset": f.offset, "body": f.body.hex(), "head": f.head, "packet": f.packet} for f in frames]


def test_every_framing_has_golden_frames():
    assert {case["framing"] for case in FRAMES} == set(FRAMINGS)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("case", FRAMES, ids=named)
def test_messages_do_not_depend_on_where_chunks_end(case, size):
    found = list(frames_of(cutter(case), in_parts(bytes.fromhex(case["hex"]), size)))

    assert to_dicts(found) == case["frames"]


@pytest.mark.parametrize("case", [case for case in FRAMES if case["framing"] != "whole"], ids=named)
def test_a_message_is_given_as_soon_as_it_is_there(case):
    stream, frames = bytes.fromhex(case["hex"]), cutter(case)
    given_at = []
    for end, byte in enumerate(stream, 1):
        frames.receive(bytes([byte]))
        given_at += [end] * len(list(iter(frames.next_frame, None)))

    assert given_at == [frame["offset"] + len(frame["body"]) // 2 for frame in case["frames"]]


@pytest.mark.parametrize("case", [case for case in FRAMES if case["framing"] != "whole"], ids=named)
def test_the_beginning_of_a_further_message_changes_nothing_before_it(case):
    frames = cutter(case)
    frames.receive(bytes.fromhex(case["hex"] + case["hex"][:2]))

    assert to_dicts(list(iter(frames.next_frame, None))) == case["frames"]
    assert frames.next_frame() is None
    frames.receive_eof()
    with pytest.raises(TruncatedMessage):
        frames.next_frame()


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("case", LIES, ids=named)
def test_good_messages_come_before_a_lie_and_the_lie_is_final(case, size):
    frames = cutter(case)
    found, error = drain(frames, in_parts(bytes.fromhex(case["hex"]), size))

    assert len(found) == case["good"]
    assert (type(error).__name__, error.reason, error.offset) == (case["error"], case["reason"], case["offset"])
    frames.receive(bytes.fromhex(FRAMES[1]["hex"]))
    with pytest.raises(WireError) as again:
        frames.next_frame()
    assert again.value is error


@pytest.mark.parametrize("case", [case for case in LIES if case["reason"] != "truncated"], ids=named)
def test_a_lie_is_told_without_waiting_for_what_it_announces(case):
    frames = cutter(case)
    frames.receive(bytes.fromhex(case["hex"]))

    with pytest.raises(WireError):
        list(iter(frames.next_frame, None))


def test_the_frames_of_the_standard_hold_its_messages():
    stream = bytes.fromhex(next(case["hex"] for case in FRAMES if case["framing"] == "sofh"))

    found = [decode(STANDARD, frame.body) for frame in frames_of(cutter_for(STANDARD, FRAMINGS["sofh"]), [stream])]

    assert [decoded.message.name for decoded in found] == [
        "NewOrderSingle",
        "ExecutionReport",
        "BusinessMessageReject",
    ]
    assert [decoded.consumed for decoded in found] == [62, 78, 58]
    assert [decoded.warnings for decoded in found] == [(), (), ()]


COINBASE = """
<messageSchema id="845" version="4" byteOrder="littleEndian"><types>
  <composite name="messageHeader">{before}
    <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
    <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
  </composite></types>
  <message name="Heartbeat" id="103"><field name="next" id="1" type="uint64"/></message>
</messageSchema>"""
OF_ORDERS = """
    <type name="marker" primitiveType="uint8"/><type name="flags" primitiveType="uint8"/>
    <type name="frameLength" primitiveType="uint16"/><type name="seqNum" primitiveType="uint32"/>
    <type name="lastSeqNum" primitiveType="uint32"/><type name="reserved" primitiveType="uint32"/>
    <type name="sendTime" primitiveType="int64"/>"""
OF_MARKET_DATA = '<type name="frameLength" primitiveType="uint16"/>'


@pytest.mark.parametrize(
    ("framing", "before", "stream"),
    [
        (
            "coinbase-orders",
            OF_ORDERS,
            "f1002800050000000400000000000000a89e64578dba8d16 080067004d030400 04" + "00" * 7,
        ),
        (
            "coinbase-market-data",
            OF_MARKET_DATA,
            "00" * 19 + "0200000000" + "1200 080067004d030400 0400000000000000" * 2,
        ),
    ],
)
def test_a_frame_header_that_the_schema_counts_to_the_message_header_stays_in_the_message(framing, before, stream):
    """Coinbase's own schemas do; a schema whose header is the usual one reads the same frames."""
    whole, usual = (load_schema(COINBASE.format(before=each).encode()) for each in (before, ""))
    octets = bytes.fromhex(stream)
    for size in (1, 7, len(octets)):
        found = list(frames_of(cutter_for(whole, FRAMINGS[framing]), in_parts(octets, size)))
        assert {decode(whole, frame.body).values["next"] for frame in found} == {4}
        others = list(frames_of(cutter_for(usual, FRAMINGS[framing]), in_parts(octets, size)))
        assert [decode(usual, frame.body).values for frame in others] == [{"next": 4}] * len(found)
        assert [frame.offset - frame.before for frame in found] == [frame.offset - frame.before for frame in others]

    first = 24 * (framing == "coinbase-market-data")
    at = octets.index(bytes.fromhex("1200" if first else "2800"), first)
    with pytest.raises(
        TruncatedMessage,
        match=r"a frame of \d+ bytes is announced, its headers alone have 32$|its headers alone have 10$",
    ) as caught:
        list(frames_of(cutter_for(whole, FRAMINGS[framing]), [octets[:at] + b"\x09" + octets[at + 1 :]]))
    assert caught.value.reason == "short-frame"


def test_an_encoding_type_is_held_against_the_byte_order_of_the_schema():
    big = with_byte_order(SCHEMA, ">")
    frame = bytes.fromhex("0000000f 5be0 0001000100010000 0a")

    (found,) = frames_of(cutter_for(big, FRAMINGS["sofh"]), [frame])

    assert (decode(big, found.body).values, found.other_encoding) == ({"a": 10}, None)
    assert len(list(frames_of(FrameCutter(FRAMINGS["sofh"]), [frame]))) == 1


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("other", ["0000000f f000 383d464958017c01 0a", "0000000a 5be0 01020304", "00000006 0000"])
def test_a_frame_of_another_encoding_type_is_cut_and_names_its_error(other, size):
    ours = "0000000f eb50 0100010001000000 0a"
    frames = FrameCutter(FRAMINGS["sofh"], smallest=8, byte_order="<")

    found, error = drain(frames, in_parts(bytes.fromhex(ours + other + ours), size))

    assert [frame.body for frame in found] == [bytes.fromhex(frame)[6:] for frame in (ours, other, ours)]
    assert [frame.other_encoding and frame.other_encoding.offset for frame in found] == [None, 15, None]
    assert (found[1].other_encoding.reason, error) == ("encoding-type", None)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("0000000f f000", "frame-too-large at byte 0: a message of 9 bytes is announced ({}), 8 are allowed"),
        ("00000005 f000", "short-frame at byte 0: a frame of 5 bytes is announced, its headers alone have 6 ({})"),
    ],
)
def test_a_frame_of_another_encoding_type_with_a_length_out_of_bounds_names_the_bound(head, expected):
    frames = FrameCutter(replace(FRAMINGS["sofh"], largest=8), smallest=8, byte_order="<")

    _, error = drain(frames, [bytes.fromhex(head)])

    assert str(error) == expected.format("encoding 0xf000, that of the schema's byte order is 0xeb50")


def test_what_is_wrong_with_one_packet_costs_no_other():
    packets = [bytes.fromhex(case["hex"]) for case in FRAMES if case["name"] == "mdp3"] * 2
    packets.insert(1, packets[0][:-1])
    found: list[int | str] = []
    for packet in packets:
        try:
            found += [len(frame.body) for frame in frames_of(cutter_for(SCHEMA, FRAMINGS["cme-mdp3"]), [packet])]
        except WireError as error:
            found.append(error.reason)

    assert found == [9, 11, "truncated", 9, 11]


def test_padding_inside_a_frame_is_left_to_the_decoder():
    case = next(case for case in FRAMES if case["framing"] == "coinbase-market-data")

    found = list(frames_of(cutter(case), [bytes.fromhex(case["hex"])]))

    assert [[warning.reason for warning in decode(SCHEMA, frame.body).warnings] for frame in found] == [
        ["trailing-bytes"],
        ["trailing-bytes"],
        [],
    ]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_padding_between_frames_is_passed_over_even_where_the_last_lacks_it(size):
    framing = replace(FRAMINGS["deephaven"], padding=8)
    stream = bytes.fromhex("06000000 010203040506 ffffffffffff 04000000 01020304 03000000 010203")

    found = frames_of(FrameCutter(framing), in_parts(stream, size))

    assert [frame.body.hex() for frame in found] == ["010203040506", "01020304", "010203"]


def test_a_packet_may_hold_one_message_each():
    packet = FixedHeader(1, (Number("sequence", 0, 1),))
    framing = replace(FRAMINGS["cme-mdp3"], packet=packet, per_packet="one")
    stream = bytes.fromhex("01 0400 aaaa 02 0300 bb")

    found = list(frames_of(FrameCutter(framing), [stream]))

    assert [(frame.packet["sequence"], frame.body.hex()) for frame in found] == [(1, "aaaa"), (2, "bb")]
    with pytest.raises(TruncatedMessage):
        list(frames_of(FrameCutter(framing), [stream + b"\x03"]))


def test_a_length_may_leave_out_the_header_of_the_message():
    framing = replace(FRAMINGS["deephaven"], length_counts=-8)

    (frame,) = frames_of(cutter_for(SCHEMA, framing), [bytes.fromhex("01000000 0100010001000000 0a")])

    assert decode(SCHEMA, frame.body).values == {"a": 10}


def test_nothing_at_all_holds_no_message():
    for framing in FRAMINGS.values():
        assert list(frames_of(cutter_for(SCHEMA, framing), [])) == []


def test_one_whole_message_is_bounded_as_it_comes():
    frames = FrameCutter(Framing(largest=10))
    frames.receive(bytes(10))
    assert frames.next_frame() is None
    frames.receive(b"\0")
    with pytest.raises(OversizedMessage):
        frames.next_frame()


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ('<group name="g" id="1"><field name="f" id="2" type="uint8"/></group>', "0100 ffff"),
        ('<data name="d" id="1" type="text"/>', "feff"),
    ],
)
def test_a_packed_message_that_announces_more_than_it_may_have_is_refused_once_it_has_come(parts, body):
    schema = message_of(parts)
    frames = cutter_for(schema, replace(FRAMINGS["packed"], largest=1000))
    frames.receive(bytes.fromhex("0000010001000000" + body) + bytes(900))
    assert frames.next_frame() is None
    frames.receive(bytes(200))
    with pytest.raises(OversizedMessage):
        frames.next_frame()


def test_the_end_of_a_packed_message_is_looked_for_only_when_more_bytes_have_come():
    lengths: list[int] = []

    def measured(body: Buffer, is_all: bool) -> int:
        lengths.append(len(body))
        return measure(SCHEMA, body, is_all=is_all)

    frames = FrameCutter(FRAMINGS["packed"], measure=measured)
    for chunk in ("0100", "010001000000", "0a"):
        frames.receive(bytes.fromhex(chunk))
        found = [frames.next_frame() for _ in range(3)]

    assert lengths == [2, 8, 9]
    assert [frame.body.hex() for frame in found if frame is not None] == ["01000100010000000a"]


def test_a_packed_message_of_a_newer_sender_ends_where_another_one_begins_or_all_ends():
    newer = bytes.fromhex("0100 0100 0100 0900 0a")
    frames = cutter_for(SCHEMA, FRAMINGS["packed"])
    frames.receive(newer + newer[:7])
    assert frames.next_frame() is None
    frames.receive(newer[7:])
    assert (frames.next_frame(), frames.next_frame()) == (Frame(newer, 0), None)
    frames.receive_eof()
    assert frames.next_frame() == Frame(newer, 9)


@pytest.mark.parametrize("behind", ["0003", "0003 6162 0100 0100 0100 0900 0a"])
def test_a_packed_message_of_a_newer_sender_that_goes_on_is_not_cut(behind):
    with pytest.raises(InvalidValue, match="of version 9 does not end where version 0 of the schema says"):
        list(frames_of(cutter_for(SCHEMA, FRAMINGS["packed"]), [bytes.fromhex("0100 0100 0100 0900 0a" + behind)]))


def test_a_packed_message_that_is_too_long_is_refused_though_it_is_all_there():
    schema = message_of('<data name="d" id="1" type="text"/>')
    frames = cutter_for(schema, replace(FRAMINGS["packed"], largest=20))
    frames.receive(bytes.fromhex("0000010001000000 0b00") + bytes(11))
    with pytest.raises(OversizedMessage):
        frames.next_frame()


def test_text_that_is_not_valid_does_not_lose_the_place_among_packed_messages():
    schema = message_of('<data name="d" id="1" type="text"/>')
    message = bytes.fromhex("0000010001000000 0100 ff")

    assert len(list(frames_of(cutter_for(schema, FRAMINGS["packed"]), [message * 2]))) == 2


def test_memory_and_work_follow_what_came_not_what_was_announced():
    frames = FrameCutter(FRAMINGS["deephaven"])
    frames.receive((16 * 1024 * 1024).to_bytes(4, "little"))
    tracemalloc.start()

    for _ in range(50_000):
        frames.receive(b"\0")
        assert frames.next_frame() is None

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


@given(bodies=st.lists(st.binary(min_size=8, max_size=30), max_size=6), cuts=st.lists(st.integers(0, 250), max_size=8))
def test_deephaven_streams_are_cut_as_the_connector_cuts_them(bodies: list[bytes], cuts: list[int]):
    stream = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    theirs = DeephavenCutter(header_size=8, counts=PrefixCounts.MESSAGE, largest=1000)
    theirs.receive(stream)

    found = frames_of(
        FrameCutter(FRAMINGS["deephaven"], smallest=8), map(stream.__getitem__, map(slice, ends, ends[1:]))
    )

    assert [frame.body for frame in found] == list(iter(theirs.next_body, None)) == bodies


@given(framing=st.sampled_from(sorted(FRAMINGS)), stream=st.binary(max_size=300), size=st.integers(1, 50))
def test_any_bytes_give_messages_or_a_wire_error(framing: str, stream: bytes, size: int):
    found, error = drain(cutter_for(SCHEMA, FRAMINGS[framing]), in_parts(stream, size))

    assert sum(len(frame.body) for frame in found) <= len(stream)
    assert error is None or (error.reason and error.offset is not None and 0 <= error.offset <= len(stream))


@given(case=st.sampled_from(FRAMES), place=st.integers(0, 200), wrong=st.binary(min_size=1, max_size=3))
def test_a_damaged_stream_gives_messages_or_a_wire_error(case: dict[str, Any], place: int, wrong: bytes):
    stream = bytes.fromhex(case["hex"])
    damaged = stream[:place] + wrong + stream[place + len(wrong) :]
    found, error = drain(cutter(case), [damaged])

    assert all(damaged[frame.offset : frame.offset + len(frame.body)] == frame.body for frame in found)
    assert error is None or error.offset is not None


def drain(frames: FrameCutter, chunks: list[bytes]) -> tuple[list[Frame], WireError | None]:
    """Return the messages before the first error, and that."""
    found: list[Frame] = []
    try:
        found += frames_of(frames, chunks)
    except WireError as error:
        return found, error
    return found, None
