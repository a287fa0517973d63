from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from silverfold.pipelines.holding.quarantine_log import (
    LEFT_OUT,
    PASSED,
    Hold,
    HoldState,
    hold,
    holds,
    quarantined,
    resolve,
    skip,
    undo_skip,
    version,
)
from silverfold.pipelines.places import Places

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ONE = datetime(2024, 5, 1, 13, tzinfo=UTC)
BAD_FRAME = Hold(
    position=17, update_position=15, error_class="TRUNCATED_MESSAGE", reason="group ends at byte 40", found_at=NOON
)


def passed_by(through: int) -> Callable[[Hold], str | None]:
    """Return that every position up to one that still holds is passed."""
    return lambda known: PASSED if known.holds and known.position <= through else None


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def test_a_table_nothing_happened_to_is_not_held(places: Places):
    assert holds(places, "market", "quotes") == []


def test_a_held_table_says_where_and_why(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    assert holds(places, "market", "quotes") == [BAD_FRAME]


def test_holding_one_table_holds_no_other(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    assert holds(places, "market", "trades") == []
    assert holds(places, "other", "quotes") == []


def test_holding_again_for_the_same_reason_writes_nothing(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    hold(places, "market", "quotes", replace(BAD_FRAME, found_at=ONE))

    assert holds(places, "market", "quotes") == [BAD_FRAME]
    assert DeltaTable(places.quarantine("market", "quotes").url).to_pyarrow_table().num_rows == 1


def test_a_new_reason_for_the_same_position_takes_the_place_of_the_old_one(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)
    other = replace(BAD_FRAME, error_class="UNKNOWN_TEMPLATE", reason="template 99", found_at=ONE)

    hold(places, "market", "quotes", other)

    assert holds(places, "market", "quotes") == [other]


def test_a_table_that_passed_the_position_is_released(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    ended = resolve(places, "market", "quotes", passed_by(30), now=ONE)

    assert ended == [replace(BAD_FRAME, resolved_at=ONE, resolution="passed")]
    assert holds(places, "market", "quotes") == []


def test_a_position_not_yet_passed_stays_held(places: Places):
    later = replace(BAD_FRAME, position=90, update_position=88)
    hold(places, "market", "quotes", later)
    hold(places, "market", "quotes", BAD_FRAME)

    resolve(places, "market", "quotes", passed_by(89), now=ONE)

    assert holds(places, "market", "quotes") == [later]


def test_releasing_twice_writes_once(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)
    resolve(places, "market", "quotes", passed_by(30), now=ONE)

    assert resolve(places, "market", "quotes", passed_by(30), now=ONE) == []


def test_a_position_released_may_hold_again(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)
    resolve(places, "market", "quotes", passed_by(30), now=ONE)
    again = replace(BAD_FRAME, found_at=datetime(2024, 5, 1, 14, tzinfo=UTC))

    hold(places, "market", "quotes", again)

    assert holds(places, "market", "quotes") == [again]


SKIPPED = replace(BAD_FRAME, resolved_at=ONE, resolution="skipped")
LATER = datetime(2024, 5, 1, 15, tzinfo=UTC)


def test_a_skipped_frame_holds_no_longer_and_is_remembered(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    skip(places, "market", "quotes", BAD_FRAME, now=ONE)

    assert holds(places, "market", "quotes") == []
    assert quarantined(places, "market", "quotes") == [SKIPPED]


def test_skipping_twice_writes_once(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=ONE)

    skip(places, "market", "quotes", BAD_FRAME, now=LATER)

    assert quarantined(places, "market", "quotes") == [SKIPPED]
    assert version(places, "market", "quotes") == 1  # after the one that made the ledger


def test_a_skip_undone_holds_as_before(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=ONE)

    undo_skip(places, "market", "quotes", SKIPPED, now=LATER)

    assert holds(places, "market", "quotes") == [replace(BAD_FRAME, resolved_at=LATER, resolution="skip undone")]
    assert quarantined(places, "market", "quotes")[0].state(applied=14) is HoldState.HOLDING


def test_what_holds_again_after_an_undone_skip_is_not_noted_anew(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=ONE)
    undo_skip(places, "market", "quotes", SKIPPED, now=LATER)
    before = version(places, "market", "quotes")

    hold(places, "market", "quotes", replace(BAD_FRAME, found_at=LATER))

    assert version(places, "market", "quotes") == before


def test_a_skip_noted_by_a_clock_that_is_behind_still_counts(places: Places):
    hold(places, "market", "quotes", BAD_FRAME)

    skip(places, "market", "quotes", BAD_FRAME, now=NOON - timedelta(minutes=5))

    assert [each.resolution for each in quarantined(places, "market", "quotes")] == ["skipped"]


def test_going_beyond_a_skipped_frame_does_not_end_its_skip(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=ONE)

    assert resolve(places, "market", "quotes", passed_by(30), now=LATER) == []
    assert quarantined(places, "market", "quotes") == [SKIPPED]


def test_a_snapshot_that_makes_a_skipped_frame_needless_ends_its_skip(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=ONE)

    resolve(places, "market", "quotes", lambda known: PASSED, now=LATER)

    assert quarantined(places, "market", "quotes") == [replace(SKIPPED, resolved_at=LATER, resolution="passed")]


@pytest.mark.parametrize(
    ("event", "applied", "state"),
    [
        (BAD_FRAME, 14, HoldState.HOLDING),
        (BAD_FRAME, 20, HoldState.RESOLVED),  # its builder died before it could note it
        (SKIPPED, 14, HoldState.SKIPPED),
        (SKIPPED, 20, HoldState.SKIPPED),
        (replace(BAD_FRAME, resolved_at=ONE, resolution="passed"), 20, HoldState.RESOLVED),
        (replace(BAD_FRAME, resolved_at=ONE, resolution="left out"), 20, HoldState.RESOLVED),
    ],
)
def test_a_quarantined_position_holds_is_skipped_or_is_over(event: Hold, applied: int, state: HoldState):
    assert event.state(applied) is state


def test_a_skip_noted_of_another_table_is_noted_here_too(places: Places):
    skip(places, "market", "quotes", SKIPPED, now=ONE)

    assert quarantined(places, "market", "quotes") == [SKIPPED]


@pytest.mark.parametrize(("resolution", "left_out"), [("skipped", True), (LEFT_OUT, True), (PASSED, False)])
def test_a_skipped_frame_is_left_out_also_once_only_the_history_lacks_it(resolution: str, left_out: bool):
    assert replace(SKIPPED, resolution=resolution).is_left_out is left_out


def test_a_frame_left_out_before_is_skipped_again_by_a_table_made_anew(places: Places):
    skip(places, "market", "quotes", replace(SKIPPED, resolution=LEFT_OUT), now=ONE)
    resolve(places, "market", "quotes", lambda known: LEFT_OUT, now=LATER)

    skip(places, "market", "quotes", BAD_FRAME, now=LATER)

    assert [each.resolution for each in quarantined(places, "market", "quotes")] == ["skipped"]
