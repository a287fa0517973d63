"""What a running build knows of the quarantine, without Spark: what it does is in ``test_build_quarantine.py``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.connectors.base import Cut
from silverfold.pipelines.holding.quarantine import Quarantine, Quarantined, read_quarantine
from silverfold.pipelines.holding.quarantine_log import (
    LEFT_OUT,
    PASSED,
    PASSED_OVER,
    SKIPPED,
    UNDONE,
    Hold,
    HoldState,
    hold,
    quarantined,
    resolve,
    skip,
    undo_skip,
)
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import REBUILT, CommitNote
from silverfold.pipelines.storage.cuts import CutRow, app_id, record, restore
from tests.support.cut_rows import cut_row

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
BAD_FRAME = Hold(
    position=17, update_position=15, error_class="UNDECODABLE_FRAME", reason="group ends at byte 40", found_at=NOON
)
THROUGH_IT = Cut("quotes", 1, 14, 19, ((15, 19),), (15,), (19,), replaces=False)
SNAPSHOT_AFTER = Cut("quotes", 2, 19, 40, ((30, 40),), (30,), (40,), replaces=True)
SNAPSHOT_WITH_IT = Cut("quotes", 1, -1, 40, ((15, 40),), (15,), (40,), replaces=True)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def opened(places: Places, *, skips: bool = False, keeps_history: bool = False) -> Quarantine:
    quarantine = Quarantine(places, "market", "quotes", skips, keeps_history)
    quarantine.catch_up(now=NOON)
    return quarantine


def resolutions(places: Places) -> list[str | None]:
    return [each.resolution for each in quarantined(places, "market", "quotes")]


def test_what_nobody_skipped_holds(places: Places):
    quarantine = opened(places)

    went_on = quarantine.add(BAD_FRAME, now=NOON, is_frame=True)

    assert (went_on, quarantine.left_out(THROUGH_IT), resolutions(places)) == (False, (), [None])


def test_a_table_set_to_skip_goes_on_without_the_frame(places: Places):
    quarantine = opened(places, skips=True)

    went_on = quarantine.add(BAD_FRAME, now=NOON, is_frame=True)

    assert (went_on, quarantine.left_out(THROUGH_IT), resolutions(places)) == (True, (17,), [SKIPPED])


def test_a_skip_is_obeyed_by_a_build_that_meets_the_frame_after_it(places: Places):
    quarantine = opened(places)
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)

    went_on = quarantine.add(BAD_FRAME, now=LATER, is_frame=True)

    assert (went_on, quarantine.left_out(THROUGH_IT), resolutions(places)) == (True, (17,), [SKIPPED])


def test_only_a_frame_can_be_skipped(places: Places):
    assert opened(places, skips=True).add(BAD_FRAME, now=NOON, is_frame=False) is False
    assert resolutions(places) == [None]


def test_a_look_reads_only_what_is_new(places: Places):
    quarantine = opened(places)
    quarantine.add(BAD_FRAME, now=NOON, is_frame=True)

    looks = [quarantine.refresh(), quarantine.refresh()]
    skip(places, "market", "quotes", BAD_FRAME, now=LATER)

    assert (looks, quarantine.refresh(), quarantine.left_out(THROUGH_IT)) == ([True, False], True, (17,))


def test_a_frame_outside_the_cut_is_not_left_out_of_it(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)

    assert opened(places).left_out(SNAPSHOT_AFTER) == ()


def test_a_skip_undone_while_the_cut_was_applied_without_the_frame_counts_again(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    quarantine = opened(places)
    left_out = quarantine.left_out(THROUGH_IT)
    (skipped,) = quarantined(places, "market", "quotes")
    undo_skip(places, "market", "quotes", skipped, now=LATER)
    assert resolutions(places) == [UNDONE]

    quarantine.record_cut(replace(THROUGH_IT, left_out=left_out), now=LATER)

    assert resolutions(places) == [SKIPPED]


@pytest.mark.parametrize(("keeps_history", "resolution"), [(False, PASSED), (True, LEFT_OUT)])
def test_a_snapshot_beyond_a_skipped_frame_ends_the_skip_but_a_history_stays_without_the_frame(
    places: Places, keeps_history: bool, resolution: str
):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    quarantine = opened(places, keeps_history=keeps_history)

    quarantine.record_cut(replace(SNAPSHOT_AFTER, left_out=quarantine.left_out(SNAPSHOT_AFTER)), now=LATER)

    assert resolutions(places) == [resolution]
    assert quarantine.left_out(THROUGH_IT) == ((17,) if keeps_history else ())


@pytest.mark.parametrize("cut", [THROUGH_IT, replace(SNAPSHOT_AFTER, after=14)])
def test_a_skip_that_came_too_late_is_over_with_the_cut_that_read_or_passed_the_frame(places: Places, cut: Cut):
    quarantine = opened(places, keeps_history=True)
    left_out = quarantine.left_out(cut)
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)

    quarantine.record_cut(replace(cut, left_out=left_out), now=LATER)

    assert (resolutions(places), quarantine.left_out(THROUGH_IT)) == ([PASSED], ())


def test_a_skip_noted_while_the_table_met_another_bad_frame_is_still_seen_by_the_next_look(places: Places):
    quarantine = opened(places)
    quarantine.add(BAD_FRAME, now=NOON, is_frame=True)
    quarantine.refresh()
    skip(places, "market", "quotes", BAD_FRAME, now=LATER)

    quarantine.add(replace(BAD_FRAME, position=18), now=LATER, is_frame=True)

    assert (quarantine.refresh(), quarantine.holding) == (True, frozenset({18}))


def test_a_snapshot_that_lacks_the_skipped_frame_does_not_end_the_skip(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    quarantine = opened(places)

    quarantine.record_cut(replace(SNAPSHOT_WITH_IT, left_out=quarantine.left_out(SNAPSHOT_WITH_IT)), now=LATER)

    assert resolutions(places) == [SKIPPED]


@pytest.mark.parametrize(
    ("first_position", "keeps_history", "resolution"), [(30, False, PASSED), (30, True, LEFT_OUT), (15, False, SKIPPED)]
)
def test_what_a_builder_could_not_note_before_it_died_is_noted_by_the_next(
    places: Places, first_position: int, keeps_history: bool, resolution: str
):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    record(places, "market", replacing(first_position))

    opened(places, keeps_history=keeps_history)

    assert resolutions(places) == [resolution]


@pytest.mark.parametrize(
    ("undone", "frames", "resolution"),
    [
        (True, {"17": SKIPPED}, SKIPPED),  # the skip was undone while the cut was applied without the frame
        (False, {"17": SKIPPED}, SKIPPED),
        (False, {}, PASSED),  # it was skipped while the cut read it
        (False, None, SKIPPED),  # an older note does not tell
    ],
)
def test_which_frames_a_cut_left_out_is_told_by_its_commit_whoever_died_before_noting_it(
    places: Places, undone: bool, frames: dict[str, str] | None, resolution: str
):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    if undone:
        undo_skip(places, "market", "quotes", quarantined(places, "market", "quotes")[0], now=LATER)
    applied(places, frames=frames)

    opened(places)

    assert resolutions(places) == [resolution]


def test_of_a_frame_that_another_builder_passed_its_commit_tells_not_the_next_cut(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=NOON)
    undo_skip(places, "market", "quotes", quarantined(places, "market", "quotes")[0], now=LATER)
    quarantine = opened(places)
    applied(places, frames={"17": SKIPPED})  # by one that died before it noted it

    later = replace(THROUGH_IT, after=20, last=22, spans=((21, 22),), begins=(21,), ends=(22,))
    quarantine.record_cut(later, now=LATER + (LATER - NOON))

    assert resolutions(places) == [SKIPPED]


@pytest.mark.parametrize(
    ("before", "outcome", "resolution"),
    [
        (PASSED_OVER, None, PASSED),
        (PASSED_OVER, PASSED_OVER, PASSED_OVER),
        (PASSED, PASSED_OVER, PASSED_OVER),
        (SKIPPED, LEFT_OUT, LEFT_OUT),
        (SKIPPED, SKIPPED, SKIPPED),
    ],
)
def test_what_a_rebuild_made_of_frames_is_told_by_its_commit_where_it_died_before_noting_it(
    places: Places, before: str, outcome: str | None, resolution: str
):
    hold(places, "market", "quotes", BAD_FRAME)
    resolve(places, "market", "quotes", lambda _: before, now=NOON)
    applied(places, frames={} if outcome is None else {"17": outcome}, notes={REBUILT: 1})

    for _ in range(2):
        opened(places, keeps_history=True)

    assert resolutions(places) == [resolution]


def applied(places: Places, *, frames: dict[str, str] | None, notes: dict[str, int] | None = None) -> None:
    """Commit a cut from 15 to 20 to the silver table, and list it."""
    note = CommitNote(
        feed="market",
        table="quotes",
        epoch=2,
        first_position=15,
        last_position=20,
        replaced=False,
        updates=2,
        notes=notes,
        frames=frames,
    )
    properties = CommitProperties(
        custom_metadata={"userMetadata": note.to_json()}, app_transactions=[Transaction(app_id("market", "quotes"), 20)]
    )
    write_deltalake(places.silver("market", "quotes").url, pa.table({"n": [1]}), commit_properties=properties)
    restore(places, "market", ["quotes"])


def replacing(first_position: int) -> CutRow:
    return cut_row(
        delta_version=3, epoch=2, first_position=first_position, last_position=40, replaced=True, committed_at=NOON
    )


def test_what_is_quarantined_stands_beside_its_table(places: Places):
    skip(places, "market", "quotes", BAD_FRAME, now=LATER)

    (quotes,) = read_quarantine(places, "market", ["quotes", "trades"])

    assert quotes == Quarantined("quotes", quarantined(places, "market", "quotes")[0], applied=-1)
    assert (quotes.state, quotes.holds, quotes.is_over, quotes.ahead) == (HoldState.SKIPPED, False, False, True)
    assert quotes._replace(applied=17).ahead is False
