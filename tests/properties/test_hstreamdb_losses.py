"""Whatever happens to a stream, its subscription and its receivers, what never lands is covered by a mark.

Each example is a run in virtual time, of the true receiver at a model of a source, and has a seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from silverfold.connectors.frames import ControlFrame, Kind
from silverfold.connectors.hstreamdb.decoder.floors import read_floors
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import batch_number
from tests.support.hstreamdb.landed import changes_of, table_of
from tests.support.hstreamdb.model_runs import Conditions, Run
from tests.support.hstreamdb.source_model import SHARDS

TABLE = table_of({"keys": ["id"], "columns": {"id": "bigint"}})

# No epochs of logs where nobody steals: how many batches the old one had is unknown, so a mark is no proof of a loss.
KINDS = {
    "plain": Conditions(),
    "thefts": Conditions(has_thieves=True, is_recreated=True, has_epochs=True),
    "thefts, from the end": Conditions(SpecialOffset.LATEST, has_thieves=True, is_recreated=True, has_epochs=True),
    "wrong checkpoint": Conditions(wrong="checkpoint"),
    "wrong tail": Conditions(wrong="tail"),
    "wrong read": Conditions(wrong="read"),
    "wrong list": Conditions(wrong="list"),
    "thefts, repaired": Conditions(has_thieves=True, has_epochs=True, is_repaired=True),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=settings().max_examples // 6,
    phases=(Phase.explicit, Phase.generate),  # another seed is another run: no shorter one
)
@given(seed=st.integers(0, 2**32))
def test_what_never_lands_is_covered_by_a_mark_and_what_lands_is_in_silver(kind: str, seed: int) -> None:
    conditions = KINDS[kind]

    run = Run.of(seed, conditions)

    marks = marks_of_loss(run)
    note("\n".join([*run.source.events, *map(str, marks)]))
    lost = {shard: never_landed(run, shard) for shard in SHARDS}
    uncovered = [
        (shard, batch)
        for shard, batches in lost.items()
        for batch in batches
        if batch > first_landed(run, shard) and not any(covers(each, shard, batch) for each in marks)
    ]
    assert uncovered == []
    if not conditions.has_thieves:
        assert [(shard, mark) for shard in SHARDS for mark in marks if is_of(mark, shard) and not lost[shard]] == []
    if conditions.is_repaired:
        assert {
            (shard, batch) for shard in SHARDS for batch in run.source.stored(shard) if batch in lost[shard]
        } == set()
    assert_silver_has_what_landed(run)
    assert behind_at_the_end(run) == dict.fromkeys(SHARDS, 0)


def marks_of_loss(run: Run) -> list[dict[str, Any]]:
    names = ("acknowledged elsewhere", "begun at the end", "expired", "not delivered")
    return [mark for sink in run.sinks for name in names for mark in sink.marks(name)]


def landed(run: Run) -> set[int]:
    return {number for sink in run.sinks for number in sink.values()}


def never_landed(run: Run, shard: int) -> list[int]:
    """Return the batches of which a record never landed."""
    found = landed(run)
    return [batch for batch, numbers in run.source.batches[shard].items() if not found.issuperset(numbers)]


def first_landed(run: Run, shard: int) -> int:
    """Return the first batch of which a record landed: every run ends with one."""
    found = landed(run)
    return next(batch for batch, numbers in run.source.batches[shard].items() if not found.isdisjoint(numbers))


def covers(mark: Mapping[str, Any], shard: int, batch: int) -> bool:
    """Return whether a mark of loss is about a batch."""
    name = mark["mark"]
    if name == "begun at the end":
        return True
    if name == "acknowledged elsewhere":
        last, before = mark["batches"].get(str(shard), "0, not 0").split(", not ")
        return int(before) < batch <= int(last)
    text = mark["shards"].get(str(shard), "") if isinstance(mark["shards"], dict) else ""
    if name == "not delivered":
        return any(
            batch >= int(first) + (where == "behind") for where, first in re.findall(r"(behind|of batch) (\d+)", text)
        )
    ranges = re.findall(r"(an unknown number)?(?: of batches)?(?: and )?(?:(\d+) batches)? (behind|before) (\d+)", text)
    return any(
        batch < int(end)
        if where == "before"
        else batch > int(end) and (bool(unknown) or number_behind(int(end), batch) <= int(count))
        for unknown, count, where, end in ranges
    )


def number_behind(after: int, batch: int) -> int:
    """Return how many batches there are behind one, up to a later one; of its own epoch, if that is another."""
    return batch - after if batch >> 32 == after >> 32 else batch_number(batch)


def is_of(mark: Mapping[str, Any], shard: int) -> bool:
    """Return whether a mark tells that batches of a shard are lost: not only that they do not come."""
    return mark["mark"] != "not delivered" and (
        mark["mark"] == "begun at the end" or str(shard) in mark.get("batches", mark.get("shards", ()))
    )


def assert_silver_has_what_landed(run: Run) -> None:
    frames = list(enumerate((frame for sink in run.sinks for frame in sink.frames), start=1))
    control = [ControlFrame(at, 1, None, frame.body) for at, frame in frames if frame.kind is Kind.CONTROL]
    bodies = {at: frame.body for at, frame in frames if frame.kind is Kind.DATA}

    def ids(cut: Mapping[int, bytes], since: int) -> set[int]:
        changes, errors = changes_of(TABLE, cut, read_floors(control, since))
        assert errors == []
        return {change["row"]["id"] for change in changes}

    assert ids(bodies, 0) == landed(run)
    assert {each for at, body in bodies.items() for each in ids({at: body}, at)} == landed(run)


def behind_at_the_end(run: Run) -> dict[int, int]:
    parts = run.sinks[-1].marks("progress")[-1]["parts"]
    return {shard: parts[f"shard {shard}"]["batches_behind"] for shard in SHARDS}
