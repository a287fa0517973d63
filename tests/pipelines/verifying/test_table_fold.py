"""How plain changes become a table's rows."""

from __future__ import annotations

from typing import Any

import pytest

from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.verifying.table_fold import TableFold


@pytest.mark.parametrize("key", [("x",), (1, None), (2.5,)])
def test_a_delete_of_one_key_compares_no_others(key: tuple[Any, ...]) -> None:
    class Unordered:
        def __le__(self, other: object) -> bool:
            raise AssertionError("a key was compared")

        __ge__ = __le__

    fold = TableFold(("k",) * len(key))
    fold.rows = {(Unordered(), 1): {}, key: {}}

    fold.apply([ReferenceChange("delete", 1, key)])

    assert [key in fold.rows, len(fold.rows)] == [False, 1]


@pytest.mark.parametrize(("snapshot_end", "there"), [(-1, False), (4, False), (5, True)])
def test_a_row_that_moves_and_is_not_there_comes_only_onto_a_snapshot(snapshot_end: int, there: bool) -> None:
    row = {"id": 6, "q": 7}
    moves = [ReferenceChange(op, 5, (6,), row, old_key=(5,)) for op in ("update", "insert")]
    fold = TableFold(("id",), snapshot_end=snapshot_end)

    fold.apply(moves)

    assert fold.all_rows() == ([row] if there else [])
    fold.apply([ReferenceChange("insert", 5, (6,), row)])
    assert fold.all_rows() == [row], "an insert by itself is one"
