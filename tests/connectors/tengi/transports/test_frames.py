"""WebSocket's frames without a socket."""

from __future__ import annotations

import contextlib
import random

import pytest

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.transports.frames import (
    Frame,
    FrameReader,
    Opcode,
    accept_key,
    close_frame,
    encode_frame,
)


def frames_of(octets: bytes, *, size: int = 1 << 20, is_server: bool = False, limit: int = 1 << 20) -> list[Frame]:
    reader = FrameReader(is_server=is_server, limit=limit)
    found = []
    for start in range(0, len(octets), size):
        reader.receive(octets[start : start + size])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return found


def test_the_examples_of_rfc_6455_are_written_and_read() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    masked = bytes.fromhex("818537fa213d7f9f4d5158")
    assert encode_frame(Opcode.TEXT, b"Hello", mask=masked[2:6]) == masked
    assert frames_of(masked, is_server=True) == [Frame(Opcode.TEXT, b"Hello")]
    assert encode_frame(Opcode.BINARY, bytes(256))[:4] == bytes.fromhex("827e0100")
    assert encode_frame(Opcode.BINARY, bytes(65536))[:10] == bytes.fromhex("827f0000000000010000")
    assert close_frame(1000) == bytes.fromhex("880203e8")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 1 << 20])
@pytest.mark.parametrize("is_server", [True, False])
def test_frames_do_not_depend_on_where_chunks_end(size: int, is_server: bool) -> None:
    draw = random.Random(3)
    sent = [Frame(Opcode.BINARY, draw.randbytes(length)) for length in (0, 1, 125, 126, 127, 3000, 65535, 65536)]
    octets = b"".join(encode_frame(*each, mask=draw.randbytes(4) if is_server else None) for each in sent)
    assert frames_of(octets, size=size, is_server=is_server) == sent


@pytest.mark.parametrize(
    ("octets", "is_server", "reason"),
    [
        ("8100", True, "bad_frame"),  # without a mask
        ("818000000000", False, "bad_frame"),  # with one
        ("c200", False, "bad_frame"),  # a reserved bit
        ("8300", False, "bad_frame"),  # an unknown kind
        ("897e0100", False, "bad_frame"),  # a long ping
        ("0900", False, "bad_frame"),  # a ping in pieces
        ("0200", False, "not_binary"),  # the first piece of a packet
        ("8000", False, "not_binary"),  # the last
        ("827f7fffffffffffffff", False, "too_large"),
        ("827e0401", False, "too_large"),
    ],
)
def test_frames_that_are_not_allowed_are_refused_by_their_head(octets: str, is_server: bool, reason: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        frames_of(bytes.fromhex(octets), is_server=is_server, limit=1024)
    assert raised.value.reason == reason


def test_good_frames_ahead_of_a_bad_one_come_first() -> None:
    reader = FrameReader(is_server=False, limit=10)
    reader.receive(encode_frame(Opcode.BINARY, b"good") + b"\xff\xff")
    assert reader.next_frame() == Frame(Opcode.BINARY, b"good")
    with pytest.raises(RemoteProtocolError):
        reader.next_frame()


def test_any_bytes_are_frames_or_an_error_of_the_peer() -> None:
    draw = random.Random(11)
    for _ in range(3000):
        with contextlib.suppress(RemoteProtocolError):
            frames_of(draw.randbytes(draw.randrange(40)), is_server=draw.random() < 0.5, limit=30)
