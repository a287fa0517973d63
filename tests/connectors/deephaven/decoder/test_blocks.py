"""Columns of changes cut into blocks and assembled into net rows: pure, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.deephaven.decoder.blocks import (
    ADDED,
    ERROR_COLUMN,
    MODIFIED,
    REMOVED,
    BlockCutter,
    Change,
    WideRange,
)
from tests.support.folding import Frame, Net, added, fold, folded, modified, of_column, removed

TRILLION = 10**12
BLOCK = 65_536


def test_added_rows_are_inserts_with_the_columns_sent():
    net = folded(added(0, 10, 0, {7: 70, 8: 80}), added(0, 11, 1, {7: "a", 8: None}))

    assert net == {7: Net("insert", 11, {0: 70, 1: "a"}), 8: Net("insert", 11, {0: 80, 1: None})}


def test_modified_rows_are_updates_of_the_columns_sent():
    net = folded(modified(0, 10, 1, {7: "a"}))

    assert net == {7: Net("update", 10, {1: "a"})}


def test_a_null_that_was_sent_is_not_a_column_left_out():
    net = folded(modified(0, 10, 0, {7: None}))

    assert net == {7: Net("update", 10, {0: None})}


def test_removed_rows_are_deletes_without_values():
    net = folded(removed(0, 10, 7, 8))

    assert net == {7: Net("delete", 10, {}), 8: Net("delete", 10, {})}


def test_columns_sent_in_several_updates_come_together():
    net = folded(modified(0, 10, 0, {7: 1}), modified(1, 20, 1, {7: "b"}), modified(2, 30, 0, {7: 3}))

    assert net == {7: Net("update", 30, {0: 3, 1: "b"})}


def test_a_row_added_and_then_modified_is_an_insert_with_the_later_values():
    net = folded(added(0, 10, 0, {7: 1}), added(0, 11, 1, {7: "a"}), modified(1, 20, 0, {7: 2}))

    assert net == {7: Net("insert", 20, {0: 2, 1: "a"})}


def test_a_row_added_and_modified_in_one_update_takes_the_modified_value():
    net = folded(modified(0, 10, 0, {7: 2}), added(0, 11, 0, {7: 1}))

    assert net == {7: Net("insert", 11, {0: 2})}


def test_a_row_added_and_removed_later_is_a_delete():
    net = folded(added(0, 10, 0, {7: 1}), removed(1, 20, 7))

    assert net == {7: Net("delete", 20, {})}


def test_a_row_removed_and_added_later_begins_from_blank():
    net = folded(modified(0, 10, 1, {7: "old"}), removed(1, 20, 7), added(2, 30, 0, {7: 3}))

    assert net == {7: Net("insert", 30, {0: 3})}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_row_removed_and_added_in_one_update_is_an_insert_whatever_the_order(order: tuple[int, int]):
    frames = [removed(0, 10, 7), added(0, 11, 0, {7: 5})]
    frames = [frames[i]._replace(position=10 + at) for at, i in enumerate(order)]

    net = folded(*frames)

    assert net == {7: Net("insert", 11, {0: 5})}


def test_a_row_added_again_forgets_the_columns_not_sent_again():
    net = folded(added(0, 10, 0, {7: 1}), added(0, 11, 1, {7: "old"}), added(1, 20, 0, {7: 2}))

    assert net == {7: Net("insert", 20, {0: 2})}


@pytest.mark.parametrize("update", [0, 1])
def test_a_row_modified_after_it_was_removed_stays_removed(update: int):
    net = folded(removed(0, 10, 7), modified(update, 11, 0, {7: 1}))

    assert net == {7: Net("delete", 11, {})}


@pytest.mark.parametrize("update", [1, 2])
def test_in_an_upsert_a_row_modified_after_it_was_removed_begins_again(update: int):
    net = folded(modified(0, 9, 1, {7: "old"}), removed(1, 10, 7), modified(update, 11, 0, {7: 1}), upsert=True)

    assert net == {7: Net("insert", 11, {0: 1})}


def test_in_an_upsert_a_row_removed_after_it_was_modified_stays_removed():
    net = folded(modified(0, 10, 0, {7: 1}), removed(1, 11, 7), upsert=True)

    assert net == {7: Net("delete", 11, {})}


def test_in_an_upsert_a_row_that_was_not_removed_is_an_update():
    net = folded(modified(0, 10, 0, {7: 1}), upsert=True)

    assert net == {7: Net("update", 10, {0: 1})}


def test_of_two_frames_of_one_update_the_later_wins():
    net = folded(added(0, 11, 0, {7: 2, 8: 2}), added(0, 10, 0, {7: 1, 9: 1}))

    assert net == {7: Net("insert", 11, {0: 2}), 8: Net("insert", 11, {0: 2}), 9: Net("insert", 10, {0: 1})}


def test_of_two_values_in_one_frame_the_later_wins():
    far = 3 * BLOCK
    twice = of_column(0, ADDED, 10, 0, [(7, 1), (far, 1), (7, 2), (far, 2), (8, 1), (7, 3)])

    net = folded(twice)

    assert net == {7: Net("insert", 10, {0: 3}), 8: Net("insert", 10, {0: 1}), far: Net("insert", 10, {0: 2})}


def test_rows_of_one_message_go_to_their_blocks():
    edges = {0: 1, BLOCK - 1: 2, BLOCK: 3, 40 * TRILLION: 4, 2**63 - 1: 5}

    net = folded(added(0, 10, 0, edges))

    assert net == {key: Net("insert", 10, {0: value}) for key, value in edges.items()}


def test_blocks_may_come_and_go_from_message_to_message():
    frames = [modified(u, 10 + u, 0, {u % 3 * BLOCK: u, u % 3 * BLOCK + 5: u}) for u in range(7)]

    net = folded(*frames)

    assert net == {
        0: Net("update", 16, {0: 6}),
        5: Net("update", 16, {0: 6}),
        BLOCK: Net("update", 14, {0: 4}),
        BLOCK + 5: Net("update", 14, {0: 4}),
        2 * BLOCK: Net("update", 15, {0: 5}),
        2 * BLOCK + 5: Net("update", 15, {0: 5}),
    }


def test_a_thousand_keys_each_in_a_block_of_its_own():
    net = folded(added(0, 10, 0, {key * TRILLION: key for key in range(1000)}))

    assert net == {key * TRILLION: Net("insert", 10, {0: key}) for key in range(1000)}


def test_a_full_block_keeps_every_value():
    net = folded(added(0, 10, 0, {key: -key for key in range(BLOCK)}))

    assert len(net) == BLOCK
    assert [net[key] for key in (0, 1, BLOCK - 1)] == [Net("insert", 10, {0: -key}) for key in (0, 1, BLOCK - 1)]


def test_a_wide_range_removes_the_rows_it_meets_and_no_others():
    net = folded(
        added(0, 10, 0, {4: 1, 5: 1, TRILLION: 1, TRILLION + 1: 1}),
        WideRange(1, 20, 5, TRILLION),
        added(2, 30, 0, {6: 2}),
    )

    assert net == {
        4: Net("insert", 10, {0: 1}),
        5: Net("delete", 20, {}),
        6: Net("insert", 30, {0: 2}),
        TRILLION: Net("delete", 20, {}),
        TRILLION + 1: Net("insert", 10, {0: 1}),
    }


def test_a_wide_range_and_rows_added_in_one_update_leave_the_rows():
    net = folded(added(0, 10, 0, {5: 1}), WideRange(0, 11, 0, TRILLION))

    assert net == {5: Net("insert", 11, {0: 1})}


def test_rows_modified_after_a_wide_range_stay_removed():
    net = folded(WideRange(0, 10, 0, TRILLION), modified(1, 11, 0, {5: 1}))

    assert net == {5: Net("delete", 11, {})}


def test_a_wide_range_makes_no_rows_of_its_own():
    assert folded(WideRange(0, 10, 0, TRILLION)) == {}


def test_frames_of_one_column_may_come_in_different_batches():
    net = fold([modified(0, 10, 0, {7: 1})], [removed(1, 20, 7)], [added(2, 30, 1, {7: "b"})])

    assert net == {(0, 7): Net("insert", 30, {1: "b"})}


def test_a_log_keeps_updates_apart():
    frames = [added(0, 10, 0, {7: 1}), modified(1, 20, 0, {7: 2}), added(1, 21, 1, {8: "b"})]

    net = fold(frames, by_update=True)

    assert net == {
        (0, 7): Net("insert", 10, {0: 1}),
        (1, 7): Net("update", 20, {0: 2}),
        (1, 8): Net("insert", 21, {1: "b"}),
    }


def test_updates_kept_apart_may_be_any_number_and_far_apart():
    frames = [modified(u, 10 * u, 0, {7: u, 2 * BLOCK: -u}) for u in (0, 254, 255, 256, 511, 40_000)]

    net = fold(frames, by_update=True)

    assert net == {
        (0, 7): Net("update", 0, {0: 0}),
        (0, 2 * BLOCK): Net("update", 0, {0: 0}),
        (254, 7): Net("update", 2_540, {0: 254}),
        (254, 2 * BLOCK): Net("update", 2_540, {0: -254}),
        (255, 7): Net("update", 2_550, {0: 255}),
        (255, 2 * BLOCK): Net("update", 2_550, {0: -255}),
        (256, 7): Net("update", 2_560, {0: 256}),
        (256, 2 * BLOCK): Net("update", 2_560, {0: -256}),
        (511, 7): Net("update", 5_110, {0: 511}),
        (511, 2 * BLOCK): Net("update", 5_110, {0: -511}),
        (40_000, 7): Net("update", 400_000, {0: 40_000}),
        (40_000, 2 * BLOCK): Net("update", 400_000, {0: -40_000}),
    }


def test_a_row_removed_and_added_by_different_updates_is_both_where_they_are_kept_apart():
    frames = [removed(0, 10, 7), added(1, 20, 0, {7: 1}), removed(1, 21, 7), modified(2, 30, 1, {7: "b"})]

    net = fold(frames, by_update=True)

    assert net == {
        (0, 7): Net("delete", 10, {}),
        (1, 7): Net("insert", 21, {0: 1}),
        (2, 7): Net("update", 30, {1: "b"}),
    }


def test_no_changes_give_no_pieces():
    assert BlockCutter(2).pieces().num_rows == 0


def test_an_error_is_a_piece_with_class_reason_and_position():
    cutter = BlockCutter(2)

    cutter.add_error(77, "INVALID_VALUE", "range-count: é")

    (piece,) = cutter.pieces().to_pylist()
    assert (piece["column"], piece["values"]) == (ERROR_COLUMN, "INVALID_VALUE\0range-count: é".encode())
    assert piece["runs"][16:24] == (77).to_bytes(8, "little")


# The laws, against a fold that keeps a dictionary.

KEYS = st.sampled_from([0, 1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, TRILLION, TRILLION + 2, 2**63 - 1])
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 3)), max_size=9)


@st.composite
def frames(draw: st.DrawFn) -> list[Frame]:
    """Updates of some messages each; positions ascend, phases and columns come in any order."""
    found: list[Frame] = []
    for update in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 5))):
            position, kind = 10 * update + len(found), draw(st.sampled_from(["added", "modified", "removed", "wide"]))
            if kind == "wide":
                first, last = sorted([draw(KEYS), draw(KEYS)])
                found.append(WideRange(update, position, first, last))
            elif kind == "removed":
                found.append(removed(update, position, *draw(st.lists(KEYS, max_size=5))))
            else:
                column = draw(st.integers(0, 1))
                rows = [(key, str(value) if column else value) for key, value in draw(ROWS)]
                phase = ADDED if kind == "added" else MODIFIED
                found.append(of_column(update, phase, position, column, rows))
    return found


def naive(found: Sequence[Frame], *, upsert: bool) -> dict[int, Net]:
    """Fold by a dictionary, change by change, in the order in which they take effect."""
    met = {key for frame in found if isinstance(frame, Change) for key in frame.keys.tolist()}
    rows: dict[int, dict[str, Any]] = {}
    for frame in sorted(found, key=_effect):
        keys = [key for key in met if frame.first <= key <= frame.last] if isinstance(frame, WideRange) else frame.keys
        phase = REMOVED if isinstance(frame, WideRange) else frame.phase
        for at, key in enumerate([int(key) for key in keys]):
            row = rows.setdefault(key, {"op": "update", "position": -1, "cells": {}, "began": None})
            row["position"] = max(row["position"], frame.position)
            if phase == REMOVED:
                row |= {"op": "delete", "cells": {}}
                continue
            assert isinstance(frame, Change)
            assert frame.values is not None
            if phase == ADDED and (row["op"] != "insert" or row["began"] != frame.update):
                row |= {"op": "insert", "cells": {}, "began": frame.update}
            if phase == MODIFIED and row["op"] == "delete" and upsert:
                row |= {"op": "insert", "cells": {}, "began": None}
            if row["op"] != "delete":
                row["cells"] = {**row["cells"], frame.column: frame.values[at].as_py()}
    return {key: Net(row["op"], row["position"], row["cells"]) for key, row in rows.items()}


def _effect(frame: Frame) -> tuple[int, int, int]:
    return frame.update, REMOVED if isinstance(frame, WideRange) else frame.phase, frame.position


def batches_of(found: list[Frame], draw: st.DataObject) -> list[list[Frame]]:
    """Deal frames out to batches in any order."""
    shuffled: list[Frame] = draw.draw(st.permutations(found))
    count = draw.draw(st.integers(1, 4))
    return [shuffled[start::count] for start in range(count)]


@given(frames(), st.booleans(), st.integers(1, 4), st.data(), st.randoms(use_true_random=False))
def test_folding_by_blocks_is_folding_by_a_dictionary(
    found: list[Frame], upsert: bool, parts: int, draw: st.DataObject, random: Any
):
    batches = batches_of(found, draw)

    net = fold(*batches, parts=parts, upsert=upsert, shuffle=random.shuffle)

    assert {key: row for (_, key), row in net.items()} == naive(found, upsert=upsert)


@given(frames(), st.booleans(), st.integers(1, 4), st.data(), st.randoms(use_true_random=False))
def test_kept_apart_each_update_is_folded_alone(
    found: list[Frame], upsert: bool, parts: int, draw: st.DataObject, random: Any
):
    changes = [frame for frame in found if isinstance(frame, Change)]
    batches = batches_of(changes, draw)

    net = fold(*batches, parts=parts, by_update=True, upsert=upsert, shuffle=random.shuffle)

    assert net == {
        (update, key): row
        for update in {frame.update for frame in changes}
        for key, row in naive([frame for frame in changes if frame.update == update], upsert=upsert).items()
    }
