"""Which version of a table beside a silver table counts, whoever has written it meanwhile or died over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.errors import RebuildNeeded
from silverfold.pipelines.applying import apply_cut, write
from silverfold.pipelines.applying.roll_back import restore, roll_back
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.commit_note import NOT_RECORDED, REBUILT, CommitNote
from silverfold.pipelines.storage.companions import ROLLED_BACK, companion, find_companion
from silverfold.pipelines.verifying.verify import Verdict
from tests.pipelines.holding.test_passed_over import HISTORY, Tried
from tests.support.deaths import Died, dying
from tests.support.stub_connector import FEED, STREAM, StubConnector, gone, put
from tests.support.stub_warehouse import change
from tests.support.versioned_table import VersionedTable, rows_of

NOTE = CommitNote(feed=FEED, table=STREAM, epoch=1, first_position=1, last_position=5, replaced=False, updates=1)


@pytest.mark.parametrize(
    ("commits", "named", "expected"),  # the version that counts, whether it is the newest, and how many came after it
    [
        (["ours"], 0, (0, True, 0)),
        (["ours", "upkeep"], 0, (1, True, 0)),
        (["ours", "ours"], 0, (0, False, 1)),
        (["ours", "upkeep", "ours", "upkeep"], 0, (1, False, 1)),
        (["ours", "ours", 0], 0, (2, True, 0)),
        (["ours", "ours", 0, "ours"], 0, (2, False, 1)),
        (["ours", "ours", 0, "upkeep", "ours", 3], 0, (5, True, 0)),
        (["ours", "ours", 0], 1, (1, False, 1)),  # one builder took back what the other one's commit named
        (["ours", "ours", 0, 1], 1, (3, True, 0)),
        (["ours"], 3, (None, False, 0)),  # another table is there now
        (["ours", "ours"], NOT_RECORDED, (1, True, 0)),
        (["upkeep", "ours"], None, (None, False, 1)),
        (["upkeep", "ours", "ours"], None, (None, False, 2)),
        (["upkeep", "ours", -1], None, (None, True, 0)),
        (["rebuilt", "rebuilt"], None, (None, False, 1)),  # two rebuilds have died
        (["ours", "rebuilt", "ours"], None, (None, False, 2)),
    ],
)
def test_the_newest_version_with_the_rows_of_the_one_that_is_named_counts(
    tmp_path: Path, commits: list[str | int], named: int | None, expected: tuple[int | None, bool, int]
) -> None:
    place = Place(str(tmp_path / "history"))
    for commit in commits:
        match commit:
            case int():
                note: CommitNote | None = replace(NOTE, notes={ROLLED_BACK: commit})
            case "rebuilt":
                note = replace(NOTE, notes={REBUILT: 1})
            case _:
                note = NOTE if commit == "ours" else None
        properties = None if note is None else CommitProperties(custom_metadata={"userMetadata": note.to_json()})
        write_deltalake(place.url, pa.table({"k": [1]}), mode="append", commit_properties=properties)

    found = find_companion(place, named)

    version = None if found.committed is None else found.committed.version()
    assert (version, found.is_committed, found.written) == expected


@pytest.mark.parametrize("later", [0, 1])
def test_a_version_that_a_power_cut_emptied_is_gone(tmp_path: Path, later: int) -> None:
    place = Place(str(tmp_path / "history"))
    for _ in range(2 + later):
        write_deltalake(place.url, pa.table({"k": [1]}), mode="append")
    assert not find_companion(place, 1).is_gone
    (tmp_path / "history" / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    found = find_companion(place, 1)
    assert (found.committed, found.is_gone) == (None, True)


@pytest.fixture
def tried(spark: SparkSession, warehouse: Path) -> Tried:
    return Tried(spark, warehouse, StubConnector())


@pytest.mark.nightly
@pytest.mark.parametrize("other", ["takes back", "builds"])
def test_a_builder_that_comes_between_history_and_table_takes_nothing_from_the_one_that_is_at_work(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    tried.history.update([change("update", 1, b=2)])
    tried.history.land()
    table_write, busy = apply_cut.table_write, iter([True])

    def overtaken(*given: Any) -> Any:
        if next(busy, False):
            second = tried.started(**HISTORY)
            roll_back(second.tables[STREAM]) if other == "takes back" else second.step(STREAM)
        return table_write(*given)

    monkeypatch.setattr(apply_cut, "table_write", overtaken)
    assert tried.build(**HISTORY) == {}
    between = (tried.rows(), tried.verdicts())
    tried.history.update([change("update", 1, b=3), change("delete", 2)])
    assert tried.build(**HISTORY) == {}

    assert between == ({1: ("x", 2), 2: ("y", 0)}, {Verdict.EQUAL})
    assert (tried.rows(), tried.verdicts()) == ({1: ("x", 3)}, {Verdict.EQUAL})
    assert [b for k, b, *_ in tried.versions() if k == 1] == [1, 2, 3]


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["history", "tombstones"])
def test_what_is_taken_back_too_late_is_noticed_by_the_cut_that_is_written_on_it(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """One builder sees the history ahead of its table, and takes it back when the table's commit has named it."""
    versioned = VersionedTable(spark, warehouse, StubConnector(snapshots=False, source_ordered=part == "tombstones"))
    versioned.source.connect()
    place, versions = getattr(versioned, part), []
    name = {"history": "write_history", "tombstones": "write_tombstones"}[part]
    for k in (1, 2):
        versioned.source.update([put(k, "x")], sequences=["b"])
        versioned.source.update([gone(k)], sequences=["c"])
        versioned.build()
        versions.append(DeltaTable(place.url).version())
    change_rows, late = getattr(write, name), iter([True])

    def overtaken(*given: Any, **more: Any) -> None:
        if next(late, False):
            note = replace(NOTE, notes={ROLLED_BACK: versions[0]})
            restore(spark.newSession(), place.url, versions[0], metadata=note.to_json())
        change_rows(*given, **more)

    monkeypatch.setattr(write, name, overtaken)
    versioned.source.update([put(3, "y")], sequences=["d"])
    versioned.build()
    if part == "tombstones":
        versioned.source.update([put(2, "too late")], sequences=["a"])
        versioned.build()

    assert next(late, None) is None
    assert rows_of(versioned.table, ("k", "a")) == [(3, "y")]
    assert versioned.verdicts() == (Verdict.EQUAL, Verdict.EQUAL)


@pytest.mark.nightly
def test_what_a_rebuild_that_died_has_put_in_the_history_is_believed_by_nobody(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.snapshot(b=1)
    tried.history.update([change("update", 1, b=2)])
    assert tried.build(**HISTORY) == {}
    replaced = silverfold.pipelines.upkeep.rebuild.replace_companion
    with monkeypatch.context() as patch:  # as if it had been by other settings
        patch.setattr(
            silverfold.pipelines.upkeep.rebuild,
            "replace_companion",
            lambda rows, *to, **of: replaced(rows.limit(0), *to, **of),
        )
        patch.setattr(
            silverfold.pipelines.upkeep.rebuild,
            "swap_in",
            dying(silverfold.pipelines.upkeep.rebuild.swap_in, after=False),
        )
        with pytest.raises(Died):
            tried.rebuild(HISTORY)
    left = (tried.versions(), companion(tried.places, FEED, STREAM, "history").is_committed, tried.verdicts())
    tried.history.update([change("update", 2, b=3)])

    assert tried.build(**HISTORY) == {}

    assert left == ([], False, {Verdict.EQUAL})
    assert tried.verdicts() == {Verdict.EQUAL}
    assert [(k, b) for k, b, *_ in tried.versions()] == [(1, 1), (1, 2), (2, 0), (2, 3)]
    assert companion(tried.places, FEED, STREAM, "history").is_committed


def test_a_history_whose_versions_were_removed_asks_for_a_rebuild(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    tried.history.update([change("update", 1, b=2)])
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    history = DeltaTable(tried.places.history(FEED, STREAM).url)
    history.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    (held,) = tried.build(**HISTORY).values()

    assert isinstance(held, RebuildNeeded)
    assert "cannot be taken back" in str(held)
    tried.rebuild(HISTORY)
    assert tried.build(**HISTORY) == {}
    assert (tried.rows(), tried.verdicts()) == ({1: ("x", 2), 2: ("y", 0)}, {Verdict.EQUAL})


def test_a_history_that_was_kept_before_is_not_taken_back_to_nothing(tried: Tried) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    before = tried.versions()
    tried.history.update([change("update", 1, b=2)])
    assert tried.build() == {}
    tried.history.update([change("update", 1, b=3)])

    assert tried.build(**HISTORY).keys() == {STREAM}

    assert tried.versions() == before
