"""A framing of one's own, by settings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from silverfold.connectors.wire.framing.cutter import FrameCutter, frames_of
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.settings import EncodingType, FixedHeader, Framing, Mark, Number

VENUE = tomllib.loads((Path(__file__).parents[3] / "golden" / "framing" / "venue.toml").read_text("utf-8"))


def test_a_framing_can_be_spelled_out_in_a_settings_file():
    framing = TypeAdapter(Framing).validate_python(VENUE)

    assert framing == Framing(
        frame=FixedHeader(4, (Number("size", 2, 2, ">"),), (Mark(0, "abcd"),)),
        length="size",
        length_counts=4,
        largest=1000,
        padding=4,
        packet=FixedHeader(3, (Number("sequence", 0, 2), Number("messages", 2, 1))),
        per_packet="counted",
        count="messages",
    )
    found = list(frames_of(FrameCutter(framing), [bytes.fromhex("0700 02 abcd0005 01 000000 abcd0008 02030405")]))
    assert [(frame.packet["sequence"], frame.head["size"], frame.body.hex()) for frame in found] == [
        (7, 5, "01"),
        (7, 8, "02030405"),
    ]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"length": "lenght"}, "no number lenght"),
        ({"count": None}, "count names a number"),
        ({"per_packet": "one"}, "count names a number"),
        ({"count": "size"}, "packet header has no number size"),
        ({"length": None}, "do not tell where a message ends"),
        ({"padding": 0}, "padding and largest are 1 or more"),
        ({"largest": 0}, "padding and largest are 1 or more"),
        ({"encoding": EncodingType("kind", 1, 2)}, "no number kind"),
        ({"out_of_sequence": {"number": "flags", "mask": 2}}, "header with the number sequence has no number flags"),
        ({"packet": {"size": 2, "numbers": [{"name": "n", "offset": 1, "size": 2}]}}, "outside a header of 2"),
        ({"packet": {"size": 9, "numbers": [{"name": "n", "offset": 0, "size": 3}]}}, "Input should be 1, 2, 4 or 8"),
        ({"packet": {"size": 1, "marks": [{"offset": 0, "bytes_hex": "abcd"}]}}, "mark abcd at 0 lies outside"),
        ({"packet": {"size": 1, "marks": [{"offset": 0, "bytes_hex": "xy"}]}}, "pairs of hex digits"),
    ],
)
def test_a_description_that_cannot_be_is_refused_by_what_is_wrong(change, detail):
    with pytest.raises(ValidationError, match=detail):
        TypeAdapter(Framing).validate_python(VENUE | change)


def test_the_known_framings_are_of_the_sizes_that_their_venues_publish():
    sizes = {
        name: (framing.packet.size, framing.frame.size, framing.length_counts) for name, framing in FRAMINGS.items()
    }

    assert sizes == {
        "deephaven": (0, 4, 0),
        "sofh": (0, 6, 6),
        "sofh-little-endian": (0, 6, 6),
        "cme-ilink3": (0, 4, 4),
        "cme-mdp3": (12, 2, 2),
        "cme-mdp3-feca": (14, 2, 2),
        "b3": (0, 4, 4),
        "b3-umdf": (16, 4, 4),
        "memx": (20, 2, 0),
        "coinbase-market-data": (24, 2, 2),
        "coinbase-orders": (0, 24, 24),
        "whole": (0, 0, 0),
        "packed": (0, 0, 0),
    }
