"""When epochs began and ended, from marks in bronze."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.connection_log import Epoch, newest_epochs
from tests.support.bronze_rows import BEGAN
from tests.support.scripted_feed import land

OPENED = b'{"mark": "opened"}'
CLOSED = json.dumps({"mark": "closed", "reason": "reset\nby peer", "error_class": "SOURCE_UNAVAILABLE"}).encode()
PROGRESS = b'{"mark": "progress", "parts": {}}'


def at(position: int) -> object:
    """Return when the frame at a position was received."""
    return BEGAN + timedelta(seconds=position)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A feed with an epoch that was closed, one whose receiver was killed, and one that goes on."""
    places = Places(str(tmp_path))
    land(places, "1 - mark none", "1 - mark none", bodies=[OPENED, CLOSED])
    land(
        places,
        "2 - mark none",
        "2 - mark none",
        "2 quotes mark none",
        "2 quotes data whole",
        start=2,
        bodies=[OPENED, PROGRESS, CLOSED],
    )
    land(places, "3 - mark none", "3 quotes data whole", start=6, bodies=[OPENED])
    return places


def test_epochs_have_a_beginning_an_end_and_why(places: Places):
    assert newest_epochs(places.bronze("market"), 10) == [
        Epoch(1, at(0), at(1), "reset\\nby peer", "SOURCE_UNAVAILABLE"),
        Epoch(2, at(2), at(5)),
        Epoch(3, at(6), None),
    ]


def test_only_the_newest_are_read(places: Places):
    assert [epoch.number for epoch in newest_epochs(places.bronze("market"), 2)] == [2, 3]


def test_an_epoch_whose_beginning_was_dropped_is_left_out(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 - mark none", "2 - mark none", start=5, bodies=[CLOSED, OPENED], kept_from=5)
    assert newest_epochs(places.bronze("market"), 10) == [Epoch(2, at(6), None)]


def test_a_feed_that_was_never_received_has_none(tmp_path: Path):
    assert newest_epochs(Places(str(tmp_path)).bronze("market"), 10) == []
