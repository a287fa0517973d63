"""Which version of a side table counts: the one that the table's own commit names, whatever was written besides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

import silverfold.pipelines.storage.swap
import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.model import Expectation
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.applying import apply_cut, write
from silverfold.pipelines.applying.decode import DecodedCut
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import app_id
from silverfold.pipelines.store import count_rows
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.compared_rows import failing_rows, read_side_table, without_reasons
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory

NOTE = CommitNote(feed=FEED, table="t", epoch=1, first_position=0, last_position=5, replaced=False, updates=1)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def write_side_table(places: Places, *keys: int) -> None:
    rows = pa.table({"k": keys, "_reasons": [["low"]] * len(keys)})
    ours = CommitProperties(custom_metadata={"userMetadata": "ours"})
    write_deltalake(places.side_table(FEED, "t").url, rows, mode="overwrite", commit_properties=ours)


def commit(places: Places, version: int | None, metadata: str | None = None) -> None:
    """Commit a cut of the table that names a version of the side table."""
    custom = {"userMetadata": replace(NOTE, aside=version).to_json() if metadata is None else metadata}
    done = CommitProperties(custom_metadata=custom, app_transactions=[Transaction(app_id(FEED, "t"), 5)])
    write_deltalake(places.silver(FEED, "t").url, pa.table({"k": [1]}), mode="append", commit_properties=done)


def is_committed(places: Places) -> bool:
    return companion(places, FEED, "t", "aside").is_committed


def side_keys(places: Places) -> list[int]:
    found = read_side_table(places, FEED, "t")
    return [] if found is None else sorted(found["k"].to_pylist())


def test_what_is_written_counts_once_a_cut_of_the_table_names_it(places: Places):
    write_side_table(places, 1, 2)
    before = side_keys(places)
    commit(places, 0)
    write_side_table(places, 3)

    assert (before, side_keys(places), is_committed(places)) == ([], [1, 2], False)
    commit(places, 1)
    assert (side_keys(places), is_committed(places)) == ([3], True)
    found = failing_rows(places, FEED, "t", 0)
    assert found is not None, "what the table kept aside as it was"
    assert sorted(found["k"].to_pylist()) == [1, 2]
    commit(places, None)
    assert side_keys(places) == []


def test_a_row_that_is_aside_for_no_reason_is_told():
    rows = pa.table({"k": [1, 2, 3], "_reasons": [["low"], [], None]})
    assert without_reasons(rows) == "2 of the rows that it keeps aside name no rule that they fail"
    assert (without_reasons(rows[:1]), without_reasons(None)) == (None, None)


def test_what_maintenance_commits_behind_it_has_the_same_rows(places: Places):
    rows = pa.table({"k": [1], "_reasons": [["low"]]})
    for _ in range(2):
        write_deltalake(places.side_table(FEED, "t").url, rows, mode="append")
    commit(places, 1)
    DeltaTable(places.side_table(FEED, "t").url).optimize.compact()
    joined = (side_keys(places), is_committed(places))
    write_side_table(places, 9)

    assert (joined, side_keys(places)) == (([1, 1], True), [1, 1])


def test_the_newest_version_counts_where_the_log_of_the_table_tells_of_no_cut_any_more(places: Places):
    write_side_table(places, 1)
    commit(places, 0, metadata="")

    assert side_keys(places) == [1]


@pytest.mark.parametrize("named", [7, -2])
def test_a_version_that_is_not_there_is_none(places: Places, named: int):
    write_side_table(places, 1)
    commit(places, named)

    assert side_keys(places) == []


def test_a_note_of_before_versions_were_named_names_none_that_is_there():
    old = {name: value for name, value in json.loads(NOTE.to_json()).items() if name != "aside"}

    notes = [CommitNote.from_json(json.dumps({**old, "keeps_aside": flag})) for flag in (True, False)]

    assert [None if note is None else note.aside for note in notes] == [-2, None]


def market(spark: SparkSession, warehouse: Path) -> tuple[Built, LandedHistory]:
    """Return a table of which row 2 is kept aside."""
    history = LandedHistory({"t": {"v": "Int", "s": "String"}})
    rule = Expectation(condition="s IS NOT NULL", action="quarantine")
    built = Built(spark, warehouse, {"t": table(expect={"rule": rule})})
    history.connect()
    history.snapshot("t", {1: {"v": 1, "s": "a"}, 2: {"v": 2, "s": None}})
    assert built.land_and_build(history) == {}
    return built, history


def side_values(built: Built) -> dict[int, object]:
    found = read_side_table(built.places, FEED, "t")
    return {} if found is None else {row["_row_key"]: row["v"] for row in found.to_pylist()}


def test_a_build_that_another_one_overtakes_takes_nothing_from_aside(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, history = market(spark, warehouse)
    history.update("t", added={3: {"v": 3, "s": None}})
    built.land(history)
    write_side_table = write._write_side_table

    def overtaken(decoded: DecodedCut, rows: DataFrame) -> int:
        monkeypatch.setattr(write, "_write_side_table", write_side_table)
        history.update("t", added={4: {"v": 4, "s": None}})
        assert built.land_and_build(history) == {}
        return write_side_table(decoded, rows)

    monkeypatch.setattr(write, "_write_side_table", overtaken)
    slow = built.start()
    slow.step("t")

    assert side_values(built) == {2: 2, 3: 3, 4: 4}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    history.update("t", modified={4: {"s": "d"}})
    assert built.land_and_build(history) == {}
    assert (built.rows("t").keys(), side_values(built)) == ({1, 4}, {2: 2, 3: 3})


@pytest.mark.nightly
@pytest.mark.parametrize("dies", [None, "replace_companion", "swap_in"])
def test_a_table_with_a_row_aside_is_rebuilt_with_other_types_wherever_a_rebuild_died(
    spark: SparkSession, warehouse: Path, dies: str | None
) -> None:
    built, history = market(spark, warehouse)
    history.close()
    history.columns["t"]["v"] = "String"
    history.connect()
    history.snapshot("t", {1: {"v": "001", "s": "a"}, 2: {"v": "007", "s": None}, 3: {"v": "x", "s": None}})
    assert built.land_and_build(history).keys() == {"t"}
    if dies is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                silverfold.pipelines.upkeep.rebuild,
                dies,
                dying(getattr(silverfold.pipelines.upkeep.rebuild, dies), after=True),
            )
            with pytest.raises(Died):
                Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "died").run()
        was = side_values(built)
        assert was == ({2: 2} if dies == "replace_companion" else {2: "007", 3: "x"})
    if dies != "swap_in":
        Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run()

    history.update("t", modified={2: {"s": "now"}})
    assert built.land_and_build(history) == {}
    assert built.rows("t") == {1: {"v": "001", "s": "a"}, 2: {"v": "007", "s": "now"}}
    assert side_values(built) == {3: "x"}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


@pytest.mark.nightly
def test_a_build_that_dies_as_nothing_is_aside_any_more_is_gone_on_from_and_the_table_rebuilt(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rows have replaced no rows then: Delta commits nothing."""
    built, history = market(spark, warehouse)
    history.update("t", modified={2: {"s": "b"}})
    built.land(history)
    with monkeypatch.context() as patch:
        patch.setattr(apply_cut, "table_write", dying(apply_cut.table_write, after=False))
        with pytest.raises(Died):
            built.build()

    assert built.build() == {}

    rows = {1: {"v": 1, "s": "a"}, 2: {"v": 2, "s": "b"}}
    assert (built.rows("t"), side_values(built), is_committed(built.places)) == (rows, {}, True)
    Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "a").run()
    assert (built.rows("t"), side_values(built)) == (rows, {})


def test_what_a_build_that_died_left_aside_is_gone_with_the_next_cut(spark: SparkSession, warehouse: Path) -> None:
    built, history = market(spark, warehouse)
    history.update("t", modified={2: {"s": "b"}})
    assert built.land_and_build(history) == {}
    history.update("t", modified={1: {"s": None}})
    built.land(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_write_side_table", dying(write._write_side_table, after=True))
        with pytest.raises(Died):
            built.build()
    was = is_committed(built.places)
    history.update("t", modified={1: {"s": "again"}})

    assert built.land_and_build(history) == {}

    side = DeltaTable(built.places.side_table(FEED, "t").url)
    assert (was, is_committed(built.places), count_rows(side)) == (False, True, 0)
    assert built.rows("t") == {1: {"v": 1, "s": "again"}, 2: {"v": 2, "s": "b"}}
