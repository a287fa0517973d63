"""Random feeds, cut at random, asked for every position and moment, against a reading of the law that counts frames."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.time_travel import as_of_moment, as_of_position
from silverfold.pipelines.storage.cuts import CutRow, record
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import cut_row
from tests.support.scripted_feed import Snapshots, feed, land
from tests.support.tries import a_third

TABLES = ("quotes", "trades")


@dataclass(frozen=True)
class DrawnFeed:
    """A feed of whole updates, each of one frame.

    Args:
        frames: The stream of each position.
        cuts: Of each table, the last position of each cut and when it was committed.
    """

    frames: Sequence[str]
    cuts: Mapping[str, Sequence[tuple[int, int]]]

    def own(self, table: str) -> list[int]:
        return [position for position, stream in enumerate(self.frames) if stream == table]

    def lacks_nothing(self, table: str, position: int, moment: int) -> bool:
        """A cut committed by the moment ends at the table's last frame up to the position, or none had begun yet."""
        ends = [last for last, at in self.cuts[table] if at <= moment and last <= position]
        return not ends or not any(ends[-1] < own <= position for own in self.own(table))


@st.composite
def feeds(draw: st.DrawFn) -> DrawnFeed:
    frames = draw(st.lists(st.sampled_from(TABLES), min_size=2, max_size=12))
    drawn, cuts = DrawnFeed(frames, {}), {}
    for table in TABLES:
        own = drawn.own(table)
        ends = sorted(draw(st.sets(st.sampled_from(own)))) if own else []
        times = sorted(draw(st.lists(st.integers(0, 20), min_size=len(ends), max_size=len(ends), unique=True)))
        cuts[table] = list(zip(ends, times, strict=True))
    return DrawnFeed(frames, cuts)


def store(places: Places, drawn: DrawnFeed) -> None:
    begun: set[str] = set()
    lines = []
    for stream in drawn.frames:
        lines.append(f"1 {stream} {'data' if stream in begun else 'snapshot'} whole")
        begun.add(stream)
    land(places, *lines)
    for table, cuts in drawn.cuts.items():
        before = -1
        for version, (last, seconds) in enumerate(cuts):
            taken = [position for position in drawn.own(table) if before < position <= last]
            record(places, "market", row(table, version, taken, seconds))
            before = last


def row(table: str, version: int, taken: Sequence[int], seconds: int) -> CutRow:
    return cut_row(
        table=table,
        delta_version=version,
        first_position=taken[0],
        last_position=taken[-1],
        replaced=version == 0,
        updates=len(taken),
        inserted=0,
        committed_at=BEGAN + timedelta(seconds=seconds),
    )


@a_third  # an example writes and reads a dozen Delta tables
@given(drawn=feeds(), moment=st.integers(0, 21))
def test_tables_without_a_note_have_every_update_up_to_the_position_and_no_other(drawn: DrawnFeed, moment: int):
    with tempfile.TemporaryDirectory() as warehouse:
        places = Places(warehouse)
        store(places, drawn)

        for position in range(len(drawn.frames)):
            found = as_of_position(places, Snapshots(), feed(*TABLES), position)
            noted = {table for table in TABLES if any(f"table {table} " in note for note in found.notes)}
            ends = {table: [last for last, _ in drawn.cuts[table] if last <= position] for table in TABLES}
            exact = {table for table in TABLES if ends[table] and drawn.lacks_nothing(table, position, moment=99)}
            assert set(found.versions) - noted == exact
            assert found.versions == {t: len(ends[t]) - 1 for t in TABLES if ends[t] and t not in found.missing}
            assert all(drawn.cuts[table][-1][0] > position for table in noted), "it went on later"

        then = as_of_moment(places, Snapshots(), feed(*TABLES), BEGAN + timedelta(seconds=moment))
        newest = max((last for cuts in drawn.cuts.values() for last, at in cuts if at <= moment), default=-1)
        common = max(
            (p for p in range(newest + 1) if all(drawn.lacks_nothing(table, p, moment) for table in TABLES)), default=-1
        )
        assert (then.position, then.notes) == (common, ())
