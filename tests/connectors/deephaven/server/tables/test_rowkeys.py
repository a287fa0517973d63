"""The index from row keys to slots."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.deephaven.server.tables.rowkeys import Longs, RowIndex, ranges


def longs(*keys: int) -> Longs:
    return np.array(keys, np.int64)


def test_consecutive_keys_are_one_range() -> None:
    assert ranges(longs(11, 12, 13, 26, 27, 40)).tolist() == [[11, 13], [26, 27], [40, 40]]


def test_no_keys_are_no_ranges() -> None:
    assert ranges(longs()).shape == (0, 2)


def test_unknown_keys_are_found_nowhere() -> None:
    index = RowIndex()
    assert index.find(longs(1)).tolist() == [-1]
    index.insert(longs(5, 7), longs(0, 1))
    assert index.find(longs(4, 5, 6, 7, 8)).tolist() == [-1, 0, -1, 1, -1]


def test_a_removed_key_may_come_back_with_another_slot() -> None:
    index = RowIndex()
    index.insert(longs(5, 7), longs(0, 1))
    index.remove(longs(5))
    assert (index.find(longs(5)).tolist(), len(index), index.between(0, 9).tolist()) == ([-1], 1, [7])
    index.insert(longs(5), longs(9))
    assert (index.keys().tolist(), index.slots().tolist()) == ([5, 7], [9, 1])


def test_removing_many_keys_keeps_the_others() -> None:
    index = RowIndex()
    index.insert(np.arange(10_000), np.arange(10_000))
    index.remove(np.arange(0, 10_000, 2))
    assert index.keys().tolist() == list(range(1, 10_000, 2))
    assert index.slots().tolist() == list(range(1, 10_000, 2))
    index.insert(longs(0, 10_000), longs(7, 8))
    assert index.find(longs(0, 1, 2, 10_000)).tolist() == [7, 1, -1, 8]


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 40)))))
def test_the_index_does_what_a_dictionary_does(steps: list[tuple[bool, set[int]]]) -> None:
    index, model = RowIndex(), {}
    for number, (inserting, keys) in enumerate(steps):
        chosen = sorted(key for key in keys if (key in model) is not inserting)
        if inserting:
            index.insert(longs(*chosen), np.full(len(chosen), number))
            model.update(dict.fromkeys(chosen, number))
        else:
            index.remove(longs(*chosen))
            for key in chosen:
                del model[key]
        assert dict(zip(index.keys().tolist(), index.slots().tolist(), strict=True)) == model
        assert index.keys().tolist() == sorted(model)
        assert len(index) == len(model)
