"""Verifying histories that are written by hand: every version counts, as far as bronze can tell.

The source is the tests' own. Lane 0 of its keys is left out of the names here: ``k`` says which row.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import types as T

from silverfold.pipelines.landing.bronze_table import SCHEMA, retention_id
from silverfold.pipelines.verifying.verify import Difference, Verdict, verify_table
from tests.support.change_model import Change
from tests.support.stub_connector import FEED, KEY, STREAM, StubConnector, gone, put
from tests.support.written_history import Version, WrittenHistory

SEQUENCED = StubConnector(snapshots=False, source_ordered=True)


pytestmark = pytest.mark.usefixtures("rows_at_once")
either_way = pytest.mark.parametrize("rows_at_once", [None, 1], ids=["at once", "a row at a time"], indirect=True)


@pytest.fixture
def written(tmp_path: Path) -> WrittenHistory:
    """A snapshot at 1 to 3, updates at 4 and 5, and in the next epoch one at 7 to 10, with a move inside."""
    written = WrittenHistory(tmp_path)
    source = written.source
    source.connect()
    source.begin_snapshot()
    source.snapshot_rows([put(1, "x", op="snapshot"), put(2, "z", op="snapshot")])
    source.end_snapshot()
    source.update([Change(0, "update", (0, 1), {"a": "y"})])
    source.update([gone(2), put(3, "w")])
    source.connect()
    source.begin_snapshot()
    source.snapshot_rows([put(1, "y", op="snapshot"), put(3, "v", op="snapshot")])
    source.update([Change(0, "update", (0, 4), {"lane": 0, "k": 4}, (0, 3))])
    source.end_snapshot()
    source.land()
    return written


@either_way
def test_versions_are_what_every_update_made_of_every_row(tmp_path: Path):
    written = WrittenHistory(tmp_path)
    source = written.source
    source.connect()
    source.begin_snapshot()
    source.snapshot_rows([put(1, "x", op="snapshot"), put(2, "z", op="snapshot")])
    source.end_snapshot()
    source.update([Change(0, "update", (0, 1), {"a": "y"})])  # 4
    source.update([Change(0, "update", (0, 2), {"k": 2}, (0, 1)), Change(0, "update", (0, 1), {"k": 1}, (0, 2))])
    source.update([put(1, "z"), gone(9), Change(0, "update", (0, 9), {"a": "nobody"})])
    source.update([gone(1)])
    source.land()
    versions: list[Version] = [
        (1, "x", 2, 4),
        (1, "y", 4, 5),
        (2, "z", 2, 5),
        (1, "z", 5, 6),
        (2, "y", 5, None),
        (1, "z", 6, 7),
    ]

    assert written.verdict(versions, 7) is Verdict.EQUAL
    assert written.verdict([*versions[:5], (1, "z", 6, None)], 6) is Verdict.EQUAL
    assert written.verdict(versions, 6) is Verdict.DIFFERENT


def test_a_snapshot_ends_what_it_does_not_name_and_leaves_what_is_equal(tmp_path: Path):
    written = WrittenHistory(tmp_path)
    source = written.source
    for rows in (["x", "y", "z"], ["x", "new"]):
        source.connect()
        source.update([put(4, "early")])  # 1 and 6: the snapshot has it too
        source.begin_snapshot()
        source.snapshot_rows([put(k, a, op="snapshot") for k, a in enumerate(rows)])
        source.end_snapshot()
    source.land()

    versions: list[Version] = [(0, "x", 3, None), (1, "y", 3, 8), (1, "new", 8, None), (2, "z", 3, 9)]
    assert written.verdict([*versions, (4, "early", 1, None)], 9) is Verdict.EQUAL
    assert written.verdict([*versions, (4, "early", 1, 6), (4, "early", 6, None)], 9) is Verdict.DIFFERENT


def test_letter_case_that_changes_makes_no_version(tmp_path: Path):
    written = WrittenHistory(tmp_path)
    source = written.source
    for named in ("a", "A"):
        source.columns(T.StructType([*KEY, T.StructField(named, T.StringType()), T.StructField("b", T.LongType())]))
        source.connect()
        source.begin_snapshot()
        source.snapshot_rows([Change(0, "snapshot", (0, 1), {"lane": 0, "k": 1, named: "x", "b": 0})])  # 3 and 8
        source.end_snapshot()
    source.update([Change(0, "update", (0, 1), {"A": "y"})])  # 10
    source.land()

    assert written.verdict([(1, "x", 3, 10), (1, "y", 10, None)], 10) is Verdict.EQUAL
    assert written.verdict([(1, "x", 3, 8), (1, "x", 8, 10), (1, "y", 10, None)], 10) is Verdict.DIFFERENT


@either_way
def test_an_altered_version_is_named_by_key_and_where_it_begins(written: WrittenHistory):
    versions = [(1, "x", 2, 4), (1, "y", 4, None), (2, "z", 2, 5), (3, "w", 5, 10), (4, "v", 9, None)]
    right = written.verdict(versions, 10)
    tampered = [(1, "altered", 2, 4), *versions[1:3], (3, "w", 5, None), (4, "v", 7, None)]
    written.keep(tampered, 10)

    found = written.verify()

    assert (right, found.table, found.verdict, found.position) == (Verdict.EQUAL, "t__history", Verdict.DIFFERENT, 10)
    assert (found.missing_rows, found.extra_rows, found.different_cells) == (1, 1, 2)
    key = {"lane": 0, "k": 1, "__START_AT": 2}
    assert found.differences[0] == Difference(key=key, column="a", expected="x", found="altered")
    assert [(each.key["k"], each.key["__START_AT"], each.column) for each in found.differences[1:]] == [
        (3, 5, "__END_AT"),
        (4, 7, None),
        (4, 9, None),
    ]


def test_of_what_was_dropped_from_bronze_only_what_stood_on_is_known(written: WrittenHistory):
    source = written.source
    source.connect()  # 11
    source.begin_snapshot()
    source.snapshot_rows([put(1, "y", op="snapshot"), put(4, "u", op="snapshot")])
    source.end_snapshot()
    source.update([gone(1)])
    source.land()
    drop(written, floor=12)
    older: list[Version] = [(1, "never mind", 2, 4), (7, "nor this", 3, 14)]
    newer: list[Version] = [(1, "y", 4, 15), (4, "u", 13, None)]

    assert written.verdict([*older, *newer], 15) is Verdict.EQUAL
    assert written.verify().folded_from == 12
    assert written.verdict([*older, (1, "y", 4, None), newer[1]], 15) is Verdict.DIFFERENT
    assert written.verdict([*older, (1, "other", 4, 15), newer[1]], 15) is Verdict.DIFFERENT
    assert written.verdict([*older, *newer, (5, "stands", 3, None)], 15) is Verdict.DIFFERENT
    assert written.verdict([*older, newer[0]], 15) is Verdict.DIFFERENT


def drop(written: WrittenHistory, *, floor: int) -> None:
    bronze = DeltaTable(written.places.bronze(FEED).url)
    bronze.alter.set_table_properties({"delta.appendOnly": "false"})
    recorded = CommitProperties(app_transactions=[Transaction(retention_id(FEED), floor)])
    below = f"frame_seq < {floor}"
    write_deltalake(bronze, SCHEMA.empty_table(), mode="overwrite", predicate=below, commit_properties=recorded)


def test_a_history_that_is_not_there_or_was_not_kept_is_different(written: WrittenHistory):
    rows = [(1, "y", 4), (4, "v", 9)]
    never = written.verify()
    written.write(rows, 10)
    gone = written.verify()
    written.keep([(1, "x", 2, 4), (1, "y", 4, None), (2, "z", 2, None)], 4)
    written.write(rows, 10, history=None)
    off = written.verify()

    assert never.verdict is Verdict.NOT_BUILT
    assert (gone.verdict, gone.reason) == (
        Verdict.DIFFERENT,
        "there is none, the table stands at 10: run `silverfold rebuild told t`",
    )
    assert (off.verdict, off.reason) == (
        Verdict.DIFFERENT,
        "it is not what the newest cut was applied with, the table stands at 10: run `silverfold rebuild told t`",
    )


def test_what_a_process_has_told_that_died_before_the_tables_commit_is_not_looked_at(written: WrittenHistory):
    versions: list[Version] = [(1, "x", 2, 4), (1, "y", 4, None), (2, "z", 2, None)]
    written.keep(versions, 4)
    written.write([(1, "y", 4), (2, "z", 2)], 4, history=0)
    written.keep([(1, "x", 2, 4), (1, "never", 4, None)], 4)

    assert written.verify().verdict is Verdict.EQUAL


def test_what_cannot_be_read_counts_for_nothing_up_to_the_next_snapshot(written: WrittenHistory):
    source = written.source
    source.raw(b"nonsense")  # 11
    source.update([gone(1)])
    source.begin_snapshot()
    source.snapshot_rows([put(1, "y", op="snapshot")])
    source.end_snapshot()  # 15
    source.land()
    versions: list[Version] = [(1, "x", 2, 4), (1, "y", 4, None), (2, "z", 2, 5), (3, "w", 5, 10), (4, "v", 9, 15)]

    assert written.verdict(versions, 15) is Verdict.EQUAL
    assert written.verdict([*versions[:4], (4, "v", 9, None)], 10) is Verdict.EQUAL


def test_a_table_that_went_on_without_what_cannot_be_read_though_nothing_says_so_is_unknown(written: WrittenHistory):
    """Its quarantine was removed by hand: what the history says of later updates is not to be called different."""
    written.source.raw(b"nonsense")  # 11
    written.source.update([gone(1)])
    written.source.land()
    went_on: list[Version] = [(1, "x", 2, 4), (1, "y", 4, 12), (2, "z", 2, 5), (3, "w", 5, 10), (4, "v", 9, None)]

    assert written.verdict(went_on, 12) is Verdict.UNKNOWN


def test_without_snapshots_what_cannot_be_read_leaves_it_unknown(late: WrittenHistory):
    position = late.source.raw(b"nonsense")
    late.source.land()

    assert late.verdict([], position) is Verdict.UNKNOWN


@pytest.fixture
def late(tmp_path: Path) -> WrittenHistory:
    """Row 1 at c, its delete at d, row 2 at b; then, late, row 1 as it was at a, and as it was at c once more."""
    late = WrittenHistory(tmp_path, SEQUENCED)
    late.source.connect()
    late.source.update([put(1, "third"), gone(1), put(2, "second")], sequences=["c", "d", "b"])
    late.source.update([put(1, "first"), put(1, "third")], sequences=["a", "c"])
    late.source.land()
    return late


def test_in_the_order_of_the_source_versions_are_where_they_belong(late: WrittenHistory):
    versions: list[Version] = [(1, "first", "a", "c"), (1, "third", "c", "d"), (2, "second", "b", None)]

    assert late.verdict(versions, 2) is Verdict.EQUAL
    assert late.verdict([versions[1], versions[2]], 2) is Verdict.DIFFERENT
    late.write([(2, "second", "b")], 2)
    assert verify_table(late.places, SEQUENCED, late.feed, STREAM).verdict is Verdict.EQUAL


def test_a_row_that_is_older_than_its_delete_is_found(late: WrittenHistory):
    late.write([(2, "second", "b")], 2)
    late.write_tombstones([(1, "d")], 2)
    right = verify_table(late.places, SEQUENCED, late.feed, STREAM)
    late.write_tombstones([(1, "d"), (2, "b")], 3)
    ahead = verify_table(late.places, SEQUENCED, late.feed, STREAM)
    late.write([(2, "second", "b")], 2, stones=1)
    wrong = verify_table(late.places, SEQUENCED, late.feed, STREAM)

    assert (right.verdict, ahead.verdict) == (Verdict.EQUAL, Verdict.EQUAL)
    assert (wrong.verdict, wrong.reason) == (
        Verdict.DIFFERENT,
        "1 rows are older than the deletes of their keys, the first lane=0, k=2",
    )
