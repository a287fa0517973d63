"""A table that is asked for in vain: what the marks name, and which of them stays a stream's newest."""

from __future__ import annotations

import json

from silverfold.conf.errors import TruncatedMessage
from silverfold.connectors.tengi.protocol.events import BadFrame
from silverfold.connectors.tengi.protocol.feed.packets import Newest, Pong, Position, Subscribe
from tests.support.tengi.landed import EPOCH
from tests.support.tengi.played import Played
from tests.support.tengi.receiving import landed_positions


def test_a_table_that_is_asked_for_in_vain_names_the_newest_bad_frame_as_its_newest_mark() -> None:
    played = Played(subscribe_wait=10)
    for wait in (10, 20, 40):
        for reason in ("older", "cut"):
            bad = BadFrame(TruncatedMessage("it breaks off", offset=256, reason=reason), b"bytes")
            played.frames += played.epoch.take(bad, played.now)
        played.wait(wait)
    warning = json.loads(played.frames[-1].body)
    assert warning["mark"] == "asked in vain"
    assert warning["reason"] == "cut at byte 256: it breaks off"
    asked = len(played.asked)
    for _ in range(6):
        played.wait(320)
    assert [each for each in played.asked[asked:] if isinstance(each, Subscribe)] == [Subscribe("orders", -1)] * 6
    assert json.loads(played.frames[-1].body) == warning
    played.wait(320)
    assert json.loads(played.frames[-1].body).items() >= {("mark", "asked in vain"), ("times", 10)}
    assert "reason" not in json.loads(played.frames[-1].body)


def test_a_table_that_loses_its_position_after_many_subscriptions_in_vain_asks_for_a_snapshot_later_too() -> None:
    played = Played(7, subscribe_wait=10)
    for _ in range(5):
        played.wait(320)
    played.take(Pong(1, {"orders": Newest(Position(EPOCH, 3))}).to_packet())
    positions = {"orders": str(Position(EPOCH, 7))} | landed_positions(played.frames)
    assert Played(positions).asked == [Subscribe("orders", -1)]
