"""Packets of the feed go out and come back, with the recorded sizes; headings agree; wrong ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.tengi.protocol import Decoder, Identifier, Int, Message, Packet, Short
from silverfold.connectors.tengi.protocol.feed.heading import Heading, HeadingReader, read_heading
from silverfold.connectors.tengi.protocol.feed.packets import (
    Ack,
    Change,
    Entry,
    FeedPacket,
    Ping,
    Pong,
    Position,
    Schema,
    Snapshot,
    SourceError,
    Subscribe,
    Update,
    read_packet,
)
from tests.support.tengi.vectors import written

EPOCH = "00001709208000000000"
POSITION = Position(EPOCH, 7)
ID = Identifier(bytes(range(16)))
ROW = {"id": 1, "name": "Steven", "price": 9.5}
PACKETS: dict[str, FeedPacket] = {
    "subscribe": Subscribe("orders", -1),
    "subscribe with epoch": Subscribe("orders", 7, EPOCH),
    "schema": Schema("orders", 3, ("id",), {"id": "bigint", "name": "string", "price": "double"}),
    "snapshot": Snapshot(
        "orders", POSITION, 3, ID, 2, True, (Entry(row=ROW), Entry(row={"id": 2}, nulls=frozenset({"name"})))
    ),
    "empty snapshot": Snapshot("orders", POSITION, 3, ID, 0, True, ()),
    "insert": Change("orders", POSITION, 3, "INSERT", Entry({"id": 1}, ROW)),
    "insert with ts": Change("orders", POSITION, 3, "INSERT", Entry({"id": 1}, ROW), 1),
    "delete": Change("orders", POSITION, 3, "DELETE", Entry({"id": 1})),
    "update": Update(
        "orders", POSITION, 3, (Entry({"id": 1}),), (Entry({"id": 2}, {}, frozenset({"name"})),), (Entry(row=ROW),), 5
    ),
    "update of one": Update("orders", POSITION, 3, added=[Entry(row=ROW)]),
    "ack": Ack("orders", POSITION),
    "ping": Ping(1),
    "pong": Pong(1),
    "error": SourceError(1, "no table", "orders"),
}
SIZES = {"ping": 84, "pong": 84, "subscribe": 123, "subscribe with epoch": 170, "ack": 163, "delete": 275}
SIZES |= {"insert": 388, "insert with ts": 410, "update of one": 374}
GOLDEN = Path(__file__).parents[4] / "golden" / "tengi" / "feed.json"


def body(name: str) -> bytes:
    return written(PACKETS[name].to_packet())


def equal(found: FeedPacket, wanted: FeedPacket) -> bool:
    return found.to_packet() == wanted.to_packet() and type(found) is type(wanted)


@pytest.mark.parametrize("name", PACKETS)
def test_a_packet_is_written_as_recorded_and_comes_back(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert body(name).hex() == golden[name]
    assert equal(read_packet(Decoder(body(name)).read_object()), PACKETS[name])


@pytest.mark.parametrize("name", SIZES)
def test_packets_have_the_documented_sizes(name: str) -> None:
    message = written(Message(ID, PACKETS[name].to_packet()))
    assert 1 + 18 + len(message) == SIZES[name]


@pytest.mark.parametrize("name", PACKETS)
def test_a_heading_is_that_of_the_packet(name: str) -> None:
    packet: Any = PACKETS[name]
    expected = Heading(
        packet.to_packet().name,
        getattr(packet, "table", None),
        getattr(packet, "position", None),
        getattr(packet, "id", None),
        getattr(packet, "part", 0),
        getattr(packet, "is_last", False),
        getattr(packet, "version", None),
    )
    assert read_heading(b"head" + body(name), 4) == expected
    reordered = Packet(packet.to_packet().name, dict(reversed(packet.to_packet().values.items())))
    assert read_heading(written(reordered), 0) == expected


@given(st.sampled_from(["INSERT", "new"]), st.integers(0, 400), st.binary(min_size=1, max_size=9), st.booleans())
def test_a_heading_does_not_depend_on_those_before(op: str, at: int, change: bytes, has_version: bool) -> None:
    values = {"x": 1, "table": "t", "epoch": EPOCH, "seq": 7, "seq ": 8} | ({"version": Int(3)} if has_version else {})
    octets = written(Packet("change", {**values, "op": op}))
    changed = octets[:at] + change + octets[at + len(change) :]
    headings = HeadingReader()
    for each in (octets, changed, changed[:-20], octets[:-20], octets):
        assert outcome(headings.read, each) == outcome(read_heading, each)


def outcome(read: Callable[[bytes, int], Heading], octets: bytes) -> Heading | type[WireError]:
    try:
        return read(octets, 0)
    except WireError as error:
        return type(error)


@pytest.mark.parametrize(
    ("packet", "reason", "element"),
    [
        (7, "unknown_packet", ""),
        (Packet("other"), "unknown_packet", ""),
        (Packet("ack", {"table": "t", "epoch": EPOCH}), "missing_field", "seq"),
        (Packet("ack", {"epoch": EPOCH, "seq": 1}), "missing_field", "table"),
        (Packet("ack", {"table": "t", "epoch": EPOCH, "seq": 1.0}), "wrong_type", "seq"),
        (Packet("ack", {"table": Int(1), "epoch": EPOCH, "seq": 1}), "wrong_type", "table"),
        (Packet("ack", {"table": "t", "epoch": "7", "seq": 1}), "bad_position", None),
        (Packet("ack", {"table": "t", "epoch": EPOCH, "seq": -1}), "bad_position", None),
    ],
)
def test_a_packet_without_its_fields_is_refused(packet: Any, reason: str, element: str | None) -> None:
    for read in (lambda: read_packet(packet), lambda: read_heading(written(packet), 0)):
        with pytest.raises(InvalidValue) as refused:
            read()
        assert refused.value.reason == reason
        assert element in (None, refused.value.element)


@pytest.mark.parametrize(("version", "found"), [(1, 1), (Short(1), 1), (1 << 31, None), (1.0, None)])
def test_a_version_in_a_heading_is_a_whole_number_of_32_bits(version: object, found: int | None) -> None:
    packet = Change("t", POSITION, 1, "DELETE", Entry({"id": 1})).to_packet().set_value("version", version)
    assert read_heading(written(packet), 0).version == found


def test_an_errors_text_is_read_up_to_a_bound() -> None:
    found = read_packet(SourceError(4, "later" * 1_000, "orders").to_packet())
    assert found == SourceError(4, "later" * 200, "orders")


def test_a_change_needs_an_operation_and_a_key() -> None:
    values = Change("t", POSITION, 1, "UPDATE", Entry({"id": 1}, {})).to_packet().values
    for wrong in (
        {**values, "op": "UPSERT"},
        {**values, "key": 1},
        {key: values[key] for key in values if key != "key"},
    ):
        with pytest.raises(InvalidValue):
            read_packet(Packet("change", wrong))


def test_a_position_sorts_as_its_text() -> None:
    positions = [Position(EPOCH, 9), Position(EPOCH, 10), Position("1" + EPOCH[1:], 0)]
    assert sorted(map(str, positions)) == list(map(str, positions))
    assert [Position.parse(str(each)) for each in positions] == positions


@given(st.sampled_from(sorted(PACKETS)), st.data())
def test_changed_bytes_give_a_packet_or_an_error_of_ours(name: str, data: st.DataObject) -> None:
    octets = bytearray(body(name))
    for at in data.draw(st.lists(st.integers(0, len(octets) - 1), min_size=1, max_size=3)):
        octets[at] = data.draw(st.integers(0, 255))
    for read in (lambda: read_heading(bytes(octets), 0), lambda: read_packet(Decoder(bytes(octets)).read_object())):
        try:
            assert read()
        except WireError:
            continue
