"""Tables that keep changing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from silverfold.connectors.common.rate import Rate, change_steadily
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.random_values import random_like
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.rows import NetChange
from silverfold.connectors.deephaven.server.workload import Changer

COLUMNS = {name.lower(): name for name in TYPES}


def filled(rows: int) -> LiveTable:
    table = LiveTable({"Sym": "String", "Bid": "Double", "Size": "Long"})
    with table.update() as update:
        update.add([{"Sym": f"S{n}", "Bid": float(n), "Size": n} for n in range(rows)])
    return table


def history_of(seed: int, updates: int) -> list[dict[int, dict[str, Any]]]:
    table = filled(100)
    changer = Changer(table, seed)
    states = []
    for _ in range(updates):
        changer.change()
        states.append(table.rows())
    return states


class Clock:
    """Time that passes only by waiting."""

    def __init__(self, *, slowness: float = 0.0) -> None:
        self.now = 1000.0
        self.slowness = slowness
        self.stop_at = float("inf")

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds + self.slowness
        return self.now >= self.stop_at


def test_one_seed_makes_one_sequence_of_updates() -> None:
    assert history_of(7, 20) == history_of(7, 20)


def test_another_seed_makes_another_sequence() -> None:
    assert history_of(7, 3) != history_of(8, 3)


def test_updates_add_modify_and_remove_several_rows_each() -> None:
    table = filled(200)
    deltas: list[NetChange] = []
    table.listen(deltas.append)
    changer = Changer(table, 1)
    counts = [changer.change() for _ in range(100)]
    assert all(2 <= count <= 20 for count in counts)
    assert len(deltas) == 100
    removed = sum(len(delta.removed) for delta in deltas)
    added = sum(len(delta.added) for delta in deltas)
    modified = sum(len(delta.modified) for delta in deltas)
    assert removed + added + modified == sum(counts)
    assert min(removed, added, modified) > 0.15 * sum(counts)


def test_some_row_keys_are_removed_and_used_again() -> None:
    table = filled(50)
    deltas: list[NetChange] = []
    table.listen(deltas.append)
    changer = Changer(table, 1)
    for _ in range(100):
        changer.change()
    gone: set[int] = set()
    reused = 0
    for delta in deltas:
        gone |= set(delta.removed.tolist())
        reused += len(gone & set(delta.added.keys.tolist()))
    assert reused > 0


def test_an_empty_table_of_every_type_fills_itself() -> None:
    table = LiveTable(COLUMNS)
    changer = Changer(table, 3)
    for _ in range(60):
        changer.change()
    assert len(table) > 0
    values = {name: [row[name] for row in table.rows().values()] for name in COLUMNS}
    assert all(any(value is not None for value in column) for column in values.values())


@pytest.mark.parametrize("kind", ["Byte", "Short", "Int", "Long", "DateTime"])
def test_integers_stay_inside_their_type_and_off_its_null(kind: str) -> None:
    rng = Random(1)
    limits = {"Byte": 2**7, "Short": 2**15, "Int": 2**31, "Long": 2**63, "DateTime": 2**63}
    for extreme in (-limits[kind] + 1, limits[kind] - 1):
        found = [random_like(TYPES[kind], extreme, extreme, rng) for _ in range(200)]
        assert all(-limits[kind] < value < limits[kind] for value in found if value is not None)


def test_changes_come_at_the_pace_for_the_time_and_then_stop() -> None:
    table, clock = filled(100), Clock()
    reported: list[int] = []
    pace = Rate(changes_per_second=50, seconds=10)
    made = change_steadily([Changer(table, 1)], pace, clock=clock, stopped_within=clock.wait, progress=reported.append)
    assert 500 <= made < 520
    assert sum(reported) == made
    assert table.updates == 1 + len(reported)
    assert clock.now <= 1010


def test_every_table_changes_at_the_pace() -> None:
    tables, clock = [filled(100), filled(100)], Clock()
    changers = [Changer(table, f"1/{number}") for number, table in enumerate(tables)]
    made = change_steadily(changers, Rate(50, 10), clock=clock, stopped_within=clock.wait)
    assert 1000 <= made < 1040
    assert tables[0].rows() != tables[1].rows()


def test_a_slow_machine_makes_the_beginning_of_the_same_sequence() -> None:
    slow = Clock(slowness=3.0)
    table, whole = filled(100), history_of(5, 10)
    change_steadily([Changer(table, 5)], Rate(1000, 10), clock=slow, stopped_within=slow.wait)
    assert 1 < table.updates <= 5
    assert table.rows() == whole[table.updates - 2]


def test_changing_without_end_stops_when_told() -> None:
    table, clock = filled(100), Clock()
    clock.stop_at = 1003.0
    made = change_steadily([Changer(table, 5)], Rate(100), clock=clock, stopped_within=clock.wait)
    assert 300 <= made < 320


def test_a_pace_of_zero_changes_nothing() -> None:
    table, clock = filled(3), Clock()
    assert change_steadily([Changer(table, 5)], Rate(0, 10), clock=clock, stopped_within=clock.wait) == 0
    assert table.updates == 1


def test_numbered_columns_name_one_row_for_good() -> None:
    table = LiveTable({"Id": "Long", "Sym": "String"})
    with table.update() as update:
        update.add([{"Id": number, "Sym": "A"} for number in (7, 5, 6)])
    deltas: list[NetChange] = []
    table.listen(deltas.append)
    changer = Changer(table, 1, numbered=["Id"])
    for _ in range(60):
        changer.change()
    assert all("Id" not in delta.written for delta in deltas)
    assert [number for delta in deltas for number in sorted(delta.added.columns["Id"].tolist())] == list(
        range(8, 8 + sum(len(delta.added) for delta in deltas))
    )


@pytest.mark.parametrize(
    ("moment", "precision"),
    [(1_700_000_000_123_456_000, 1_000), (1_700_000_000_123_456_789, 1), (1_699_999_200_000_000_000, 3_600 * 10**9)],
)
def test_moments_stay_as_precise_as_they_were(moment: int, precision: int) -> None:
    rng = Random(1)
    found = [random_like(TYPES["DateTime"], moment, None, rng) for _ in range(200)]
    later = [value - moment for value in found if value is not None]
    assert all(0 < step <= 3_600 * 10**9 and step % precision == 0 for step in later)
