"""The oracle itself, on histories small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

from tests.matrix.oracle import Oracle, Source, Truth
from tests.matrix.steps import Change, Snapshot, Update

COLUMNS = ("a", "b")
KEYED = Source(COLUMNS, snapshots=True)
ROWS = {(1,): {"a": "x", "b": 1}, (2,): {"a": "y", "b": 2}}


def replayed(source: Source, *landed: Update | Snapshot | None, mended: bool = False) -> Truth:
    """Return what follows from updates that end at 1, 2, 3…; None begins an epoch."""
    oracle = Oracle(source)
    oracle.mended = mended
    for end, what in enumerate(landed, 1):
        if what is None:
            oracle.connect()
        else:
            oracle.land(end, what)
    return oracle.replay()


def update(*changes: Change) -> Update:
    return Update((changes,))


def shown(state: dict[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    return {key: tuple(row.values()) for (key,), row in state.items()}


def test_a_partial_update_patches_a_row_that_is_there_and_begins_none() -> None:
    changes = update(Change("update", (1,), {"b": 7}), Change("update", (3,), {"b": 8}), Change("insert", (4,)))

    truth = replayed(KEYED, Snapshot(ROWS), changes)

    assert shown(truth.at[2]) == {1: ("x", 7), 2: ("y", 2), 4: (None, None)}


def test_without_snapshots_an_update_begins_a_row() -> None:
    truth = replayed(Source(COLUMNS, snapshots=False), update(Change("update", (3,), {"b": 8})))

    assert shown(truth.at[1]) == {3: (None, 8)}


def test_rows_swap_their_keys_and_keep_what_nobody_sent() -> None:
    swap = update(Change("update", (2,), {"b": 9}, (1,)), Change("update", (1,), {}, (2,)))

    truth = replayed(KEYED, Snapshot(ROWS), swap)

    assert shown(truth.at[2]) == {2: ("x", 9), 1: ("y", 2)}
    versions = {(key[0], row["a"], start, end) for key, row, start, end in truth.versions}
    assert versions == {(1, "x", 1, 2), (2, "y", 1, 2), (2, "x", 2, None), (1, "y", 2, None)}


def test_what_was_sent_before_an_epochs_first_snapshot_overlays_it() -> None:
    early, late = update(Change("delete", (1,))), update(Change("insert", (3,), {"a": "z"}))

    truth = replayed(KEYED, None, early, Snapshot(ROWS, (late,)))

    assert list(truth.at) == [3]
    assert shown(truth.at[3]) == {2: ("y", 2), 3: ("z", None)}


def test_a_held_frame_and_all_behind_it_wait_for_it_or_for_a_snapshot() -> None:
    bad = Update(((Change("delete", (1,)),), (Change("delete", (2,)),)), bad=1, ends="hand")
    behind = update(Change("insert", (3,), {"a": "z"}))

    held = replayed(KEYED, Snapshot(ROWS), bad, behind)
    passed = replayed(KEYED, Snapshot(ROWS), bad, behind, Snapshot({(9,): {}}))
    mended = replayed(KEYED, Snapshot(ROWS), bad, behind, mended=True)

    assert (list(held.at), held.blocked) == ([1], [2, 3])
    assert (list(passed.at), passed.blocked) == ([1, 4], [2, 3])
    assert shown(mended.at[3]) == {2: ("y", 2), 3: ("z", None)}, "all of the update but the frame"


def test_an_unexplained_change_holds_only_where_it_is_judged() -> None:
    over = update(Change("insert", (1,), {"a": "again"}))

    judged = replayed(Source(COLUMNS, snapshots=True, judges=True), Snapshot(ROWS), over)
    counted = replayed(KEYED, Snapshot(ROWS), over)

    assert (list(judged.at), judged.blocked, list(counted.at)) == ([1], [2], [1, 2])


def test_a_snapshot_ends_the_versions_that_differ_and_no_others() -> None:
    truth = replayed(KEYED, Snapshot(ROWS), None, Snapshot({(1,): ROWS[1,], (2,): {"a": "y", "b": 3}}))

    versions = [(key[0], row["b"], start, end) for key, row, start, end in truth.versions]
    assert sorted(versions, key=repr) == [(1, 1, 1, None), (2, 2, 1, 3), (2, 3, 3, None)]


def test_a_sequenced_source_is_what_its_changes_say_in_their_own_order() -> None:
    source = Source(COLUMNS, snapshots=False, source_ordered=True)
    first = update(Change("delete", (1,), sequence=4), Change("insert", (1,), {"a": "new"}, sequence=5))
    late = update(Change("insert", (1,), {"a": "old", "b": 1}, sequence=3))

    truth = replayed(source, first, late)

    assert shown(truth.at[2]) == {1: ("new", None)}
    assert [(row["a"], start, end) for _, row, start, end in truth.versions] == [("old", 3, 4), ("new", 5, None)]
