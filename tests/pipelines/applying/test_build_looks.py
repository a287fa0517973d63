"""What a build takes in of bronze, look by look, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import silverfold.pipelines.planning.feed_plan
from silverfold.conf.errors import StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import ControlFrame, Kind
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.landing.bronze import read_frames
from silverfold.pipelines.places import Place, Places
from tests.support.deephaven.landed_history import LandedHistory

FEED = Feed("market", "deephaven", "unused", DeephavenOptions(), {"t": DeephavenTable(source="T")})


def no_spark() -> Any:
    raise AssertionError("nothing is to be applied")


class Reads:
    """Reads control frames in the stead of the real function, keeps what was read, and fails when told to."""

    def __init__(self) -> None:
        self.frames: list[ControlFrame] = []
        self.calls, self.fails = 0, False

    def __call__(self, place: Place, *, kind: Kind, after: int = -1) -> Iterator[ControlFrame]:
        self.calls += 1
        if self.fails:
            raise StoreUnavailable("for a moment")
        for frame in read_frames(place, kind=kind, after=after):
            self.frames.append(frame)
            yield frame


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reading = Reads()
    monkeypatch.setattr(silverfold.pipelines.planning.feed_plan, "read_frames", reading)
    return reading


@pytest.fixture
def connected(tmp_path: Path) -> Callable[[], FeedBuild]:
    """Land that a source was connected to; return the build, the same each time."""
    history, places = LandedHistory({"t": {"Q": "Long"}}), Places(str(tmp_path))
    settings = load_settings(None, "local", {}).model_copy(update={"warehouse": str(tmp_path)})
    build = FeedBuild.open(no_spark, settings, CONNECTOR, FEED)

    def connect() -> FeedBuild:
        history.connect()
        history.land(places.bronze(FEED.name), FEED.name)
        return build

    return connect


def test_control_frames_are_read_when_some_have_come(reads: Reads, connected: Callable[[], FeedBuild]) -> None:
    build = connected()
    build.refresh()
    first = [frame.frame_seq for frame in reads.frames]
    calls = reads.calls
    build.refresh()
    build.refresh()
    assert (reads.calls, len(first)) == (calls, len(set(first)))

    connected().refresh()
    assert reads.frames[-1].frame_seq > max(first)
    assert [frame.frame_seq for frame in reads.frames] == sorted({frame.frame_seq for frame in reads.frames})


def test_those_that_could_not_be_read_are_read_by_the_next_look(
    reads: Reads, connected: Callable[[], FeedBuild]
) -> None:
    connected().refresh()
    first = max(frame.frame_seq for frame in reads.frames)
    build, reads.fails = connected(), True
    with pytest.raises(StoreUnavailable):
        build.refresh()
    reads.fails = False
    build.refresh()
    assert max(frame.frame_seq for frame in reads.frames) > first
