"""Cutting and framing by length."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import OversizedMessage, TruncatedMessage
from silverfold.connectors.deephaven.protocol.frames import FrameCutter, Known, PrefixCounts, frame

BODY = b"headerXXbody"


def cutter(counts: PrefixCounts = PrefixCounts.MESSAGE, largest: int = 16) -> FrameCutter:
    return FrameCutter(header_size=8, counts=counts, largest=largest)


@pytest.mark.parametrize(
    ("counts", "length"),
    [(PrefixCounts.MESSAGE, 12), (PrefixCounts.MESSAGE_AND_PREFIX, 16), (PrefixCounts.BODY, 4)],
)
def test_a_length_counts_what_was_agreed(counts: PrefixCounts, length: int) -> None:
    octets = frame(BODY, counts, header_size=8)
    reader = cutter(counts)

    reader.receive(octets)

    assert octets == length.to_bytes(4, "little") + BODY
    assert reader.next_body() == BODY


def test_good_messages_ahead_of_a_bad_length_come_first() -> None:
    reader = cutter()
    reader.receive(frame(BODY) + b"\xff\xff\xff\xff")

    assert reader.next_body() == BODY
    with pytest.raises(OversizedMessage):
        reader.next_body()


def test_an_error_is_final() -> None:
    reader = cutter()
    reader.receive(b"\x07\0\0\0")
    with pytest.raises(TruncatedMessage):
        reader.next_body()

    reader.receive(frame(BODY))

    with pytest.raises(TruncatedMessage):
        reader.next_body()


def test_the_largest_message_is_accepted_and_one_byte_more_is_not() -> None:
    reader = cutter(largest=12)
    reader.receive(frame(BODY) + frame(BODY + b"!"))

    assert reader.next_body() == BODY
    with pytest.raises(OversizedMessage):
        reader.next_body()


def test_bytes_that_are_not_cut_yet_can_be_looked_at() -> None:
    reader = cutter()
    reader.receive(frame(BODY) + b"\x0c\0")
    reader.receive(b"\0\0he")

    reader.next_body()

    assert (reader.held, reader.left()) == (6, b"\x0c\0\0\0he")


def test_an_empty_chunk_changes_nothing() -> None:
    reader = cutter()

    reader.receive(b"")

    assert (reader.held, reader.next_body()) == (0, None)


class Gate:
    def __init__(self, open: bool = True) -> None:
        self.open = open


GATE, CLOSED = Gate(), Gate(open=False)
HEADS = {b"headerXXbo": Known(11, GATE), b"headerYYbo": Known(8, CLOSED)}


@pytest.mark.parametrize("size", [1, 3, 16, 64])
def test_known_messages_come_at_once_up_to_the_first_other_which_is_left(size: int) -> None:
    octets = frame(BODY) + frame(BODY + b"2") + frame(b"headerZZbody") + frame(BODY)
    reader, known, others = cutter(), [], []
    for start in range(0, len(octets), size):
        reader.receive(octets[start : start + size])
        known += reader.next_known(HEADS, 10)
        while (body := reader.next_body()) is not None:
            others.append(body)
    assert reader.held == 0
    assert sorted([body for body, _ in known] + others) == sorted([BODY, BODY + b"2", b"headerZZbody", BODY])
    assert {gate for _, gate in known} <= {GATE}


@pytest.mark.parametrize(
    "other",
    [
        frame(b"headerYYbody"),  # its gate is closed
        frame(b"headerXXbo"),  # below the least length
        frame(b"headerXXbody" + b"x" * 10),  # above the limit
        frame(b"headerXX"),
        frame(b"abc"),
        frame(BODY)[:-1],
        b"\xff\xff\xff\xff" + BODY,
    ],
)
def test_what_is_not_known_to_be_good_is_left_to_be_read_one_by_one(other: bytes) -> None:
    reader = cutter()
    reader.receive(frame(BODY) + other)

    assert reader.next_known(HEADS, 10) == [(BODY, GATE)]
    assert reader.next_known(HEADS, 10) == []
    assert reader.left() == other
