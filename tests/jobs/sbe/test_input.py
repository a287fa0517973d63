"""Messages of a file, and errors in the place of those that cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.jobs.sbe import input as sbe_input
from silverfold.jobs.sbe.input import Message, framed_messages, hex_messages, opened
from tests.support.sbe.basics import frame, message_of

SCHEMA = message_of('<field name="a" id="1" type="uint8"/>')
MESSAGE = frame("01", block_length=1)
FRAME = bytes.fromhex("0000000f eb50") + MESSAGE
FIX_TEXT = bytes.fromhex("00000009 f000 383d46")


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_frame_of_another_encoding_is_an_error_in_its_place_and_the_next_message_follows(size: int):
    stream = FRAME + FIX_TEXT + FRAME
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]

    first, other, last = framed_messages(SCHEMA, FRAMINGS["sofh"], chunks)

    assert (first, last) == (Message(MESSAGE, 6), Message(MESSAGE, 30))
    assert isinstance(other.body, InvalidValue)
    assert (other.body.offset, other.at) == (15, 0)
    assert str(other.body) == "encoding-type at byte 15: encoding 0xf000, that of the schema's byte order is 0xeb50"


def test_the_error_that_ends_a_stream_says_that_the_rest_is_not_read():
    first, error = framed_messages(SCHEMA, FRAMINGS["sofh"], [FRAME + bytes.fromhex("00000005 f000") + FRAME])

    assert (first, error.at) == (Message(MESSAGE, 6), 0)
    assert str(error.body) == (
        "short-frame at byte 15: a frame of 5 bytes is announced, its headers alone have 6 "
        "(encoding 0xf000, that of the schema's byte order is 0xeb50); the rest is not read"
    )


def test_messages_of_hex_have_their_line_and_where_in_its_bytes_they_begin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sbe_input, "LONGEST_LINE", 100)
    lines = [b"# packets", FRAME.hex().encode() * 2 + b" 00000005 f000", b"0" * 101, FRAME.hex().encode(), b"xy", b""]

    first, second, error, long, third, no_hex = hex_messages(SCHEMA, FRAMINGS["sofh"], [b"\n".join(lines)])

    assert (first, second, third) == (Message(MESSAGE, 6, 2), Message(MESSAGE, 21, 2), Message(MESSAGE, 6, 4))
    assert isinstance(error.body, WireError)
    assert (error.body.offset, error.at, error.line) == (30, 0, 2)
    assert [(each.at, each.line) for each in (long, no_hex)] == [(None, 3), (None, 5)]
    assert list(hex_messages(SCHEMA, None, [b"\n01"])) == [Message(b"\1", None, 2)]


def test_a_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(typer.BadParameter, match="no standard input"), opened(Path("-")):
        pass
