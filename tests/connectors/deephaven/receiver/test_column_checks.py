"""Column messages that are strange are warnings, once for each stream, type and kind."""

from __future__ import annotations

from tests.support.deephaven.epoch import marks, subscribed
from tests.support.deephaven.frames import begin, end, rows, sent


def test_bytes_behind_a_column_message_are_a_mark_and_the_message_lands_as_it_came() -> None:
    epoch = subscribed()
    strange = rows(1) + b"\0\0"
    frames = epoch.receive(sent(begin(1), strange, strange, end(1)))
    again = epoch.receive(sent(begin(1), *[strange] * 20, end(1)))
    assert [frame.body for frame in (*frames, *again) if frame.kind != "mark"].count(strange) == 22
    assert marks(again) == []
    assert marks(frames) == [
        {
            "mark": "strange column",
            "level": "warning",
            "kind": "trailing-bytes",
            "type": "Long",
            "reason": "bytes follow the message, though its version is not newer than ours: they are ignored",
        }
    ]


def test_the_first_the_tenth_and_the_hundredth_message_are_looked_at() -> None:
    for number, is_seen in ((9, True), (10, False), (99, True)):
        epoch = subscribed()
        found = epoch.receive(sent(begin(1), *[rows(1)] * number, rows(1) + b"\0", end(1)))
        assert bool(marks(found)) is is_seen


def test_a_column_message_that_cannot_be_read_is_no_matter_of_the_checks() -> None:
    epoch = subscribed()
    assert marks(epoch.receive(sent(begin(1), rows(1)[:-3], end(1)))) == []
    assert epoch.error is None
