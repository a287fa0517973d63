"""What the first frame tells, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silverfold.conf.errors import OversizedMessage, RemoteProtocolError
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.handshake import Calibration, Expected, calibrate, roles_of_epoch
from tests.support.deephaven.vectors import VECTORS, Vector, builtin_roles, of_kind, other_roles

CALIBRATIONS = of_kind("calibration")
ORDERS = {"littleEndian": "<", "bigEndian": ">"}
GREETING = VECTORS["connection-response"].octets


def foreign(schema_id: int, version: int) -> bytes:
    """A ConnectionResponse of another schema id and version."""
    octets = bytearray(GREETING)
    octets[8:12] = schema_id.to_bytes(2, "little") + version.to_bytes(2, "little")
    return bytes(octets)


@pytest.mark.parametrize("vector", CALIBRATIONS, ids=lambda v: v.name)
def test_the_first_frame_tells_byte_order_prefix_and_buffer_size(vector: Vector) -> None:
    found = calibrate(builtin_roles(), vector.octets)

    assert found is not None
    assert found.byte_order == ORDERS[vector.expect["byteOrder"]]
    assert found.prefix_counts == vector.expect["prefixCounts"]
    assert found.prefix == vector.expect["prefix"]
    assert found.message_buffer_size == vector.expect["messageBufferSize"]


@pytest.mark.parametrize("vector", CALIBRATIONS, ids=lambda v: v.name)
def test_nothing_is_told_before_the_first_frame_is_whole(vector: Vector) -> None:
    for end in range(len(vector.octets)):
        assert calibrate(builtin_roles(), vector.octets[:end]) is None


@pytest.mark.parametrize("vector", CALIBRATIONS, ids=lambda v: v.name)
def test_bytes_after_the_first_frame_change_nothing(vector: Vector) -> None:
    alone = calibrate(builtin_roles(), vector.octets)

    assert calibrate(builtin_roles(), vector.octets + b"\xff" * 40) == alone


def test_a_header_of_another_size_and_order_is_read_by_the_schema() -> None:
    roles = other_roles()
    body = bytes.fromhex("01f5 1267 0003 0008 0000 0000000000020000")

    found = calibrate(roles, (18).to_bytes(4, "little") + body)

    assert found == Calibration(
        byte_order=">",
        prefix_counts=PrefixCounts.MESSAGE,
        prefix=18,
        message_buffer_size=131072,
        schema_id=4711,
        version=3,
    )


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (bytes.fromhex("0c00000003000100010001000000000100"), "block length makes no sense: 0c000000 0300"),
        (bytes.fromhex("0d0000000400010001000100") + b"\0" * 5, "13 fits no reading of a block of 4 bytes"),
        (bytes.fromhex("0c0000000400070001000100") + b"\0\0\1\0", "template id 7, ConnectionResponse of .* is 1"),
        (bytes.fromhex("0c0000000400010001000100") + b"\0\0\0\0", "a message buffer of 0 bytes"),
        (bytes.fromhex("0c0000000400010001000100") + b"\xff\xff\xff\xff", "a message buffer of -1 bytes"),
        (b"\0\0\0\0\4\0", "announces no bytes"),
    ],
)
def test_what_is_no_first_frame_is_refused_with_what_was_found(octets: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        calibrate(builtin_roles(), octets)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-OpenSSH", b"\x41\0\0\0"])
def test_another_protocol_is_refused_from_four_bytes(greeting: bytes) -> None:
    with pytest.raises(OversizedMessage):
        calibrate(builtin_roles(), greeting[:4])


def test_another_schema_id_is_refused_with_both_numbers_and_the_setting_that_allows_it() -> None:
    with pytest.raises(RemoteProtocolError, match=r"schema id 2, ours 1; .* accept_schema_id = true"):
        calibrate(builtin_roles(), foreign(2, 1))


def test_a_wrong_xml_is_refused_with_template_and_schema_ids() -> None:
    octets = bytearray(foreign(5, 1))
    octets[6:8] = b"\x2a\0"

    with pytest.raises(RemoteProtocolError, match=r"template id 42, .* is 1 \(schema ids 5 and 1\)"):
        calibrate(builtin_roles(), bytes(octets))


def test_another_schema_id_is_accepted_by_the_setting_and_read_by_it() -> None:
    found = calibrate(builtin_roles(), foreign(2, 1), Expected(accept_schema_id=True))

    assert found is not None
    assert found.differences == ("schema id 2, ours 1",)
    assert found.adapt(builtin_roles()).schema.id == 2


def test_a_newer_version_is_told_and_accepted() -> None:
    found = calibrate(builtin_roles(), foreign(1, 9))

    assert found is not None
    assert (found.version, found.differences) == (9, ("version 9, ours 1",))


@pytest.mark.parametrize(
    ("expected", "setting"),
    [
        (Expected(prefix_counts=PrefixCounts.BODY), 'prefix_counts = "body"'),
        (Expected(prefix_counts=PrefixCounts.MESSAGE_AND_PREFIX), r'prefix_counts = "message\+prefix"'),
        (Expected(byte_order="bigEndian"), 'byte_order = "bigEndian"'),
    ],
)
def test_a_setting_that_the_first_frame_contradicts_is_named(expected: Expected, setting: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"the setting {setting} contradicts the first frame"):
        calibrate(builtin_roles(), GREETING, expected)


def test_settings_that_agree_with_the_first_frame_are_accepted() -> None:
    expected = Expected(prefix_counts=PrefixCounts.MESSAGE, byte_order="littleEndian")

    assert calibrate(builtin_roles(), GREETING, expected) == calibrate(builtin_roles(), GREETING)


@pytest.mark.parametrize("vector", CALIBRATIONS, ids=lambda v: v.name)
def test_a_landed_first_frame_tells_later_how_its_epoch_is_read(vector: Vector) -> None:
    roles = roles_of_epoch(builtin_roles(), vector.body)

    assert roles.schema.byte_order == ORDERS[vector.expect["byteOrder"]]


def test_a_landed_first_frame_of_another_schema_id_was_accepted_when_it_landed() -> None:
    assert roles_of_epoch(builtin_roles(), foreign(2, 1)[4:]).schema.id == 2


def test_a_landed_first_frame_that_is_cut_off_is_refused() -> None:
    for end in range(len(GREETING) - 4):
        with pytest.raises(RemoteProtocolError):
            roles_of_epoch(builtin_roles(), GREETING[4 : 4 + end])


def test_a_schema_in_big_endian_reads_a_little_endian_server() -> None:
    backward = bind(replace(builtin_roles().schema, byte_order=">"))

    found = calibrate(backward, GREETING)

    assert found is not None
    assert (found.byte_order, found.message_buffer_size) == ("<", 65536)
