"""Compactions of one table at the same time, in threads and in processes, beside a writer: every row is there once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

import silverfold.pipelines.upkeep.retention
from silverfold.conf.errors import StoreUnavailable
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.writer import BronzeWriter, compact
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.storage.compaction import claim
from silverfold.pipelines.store import was_overtaken
from silverfold.pipelines.upkeep.retention import Retention, drop_frames

SCHEMA = pa.schema([("number", pa.int64())])
FRAME = Frame("quotes", Kind.DATA, Boundary.WHOLE, b"x" * 100)


def frames(first: int, count: int) -> pa.Table:
    batch = Batch(first)
    batch.add([FRAME] * count, 1, 1_700_000_000_000_000)
    return batch.prepare().table


def bronze(path: Path, commits: int, each: int) -> BronzeWriter:
    writer = BronzeWriter.open(Place(str(path)), "market", token="one")
    for _ in range(commits):
        writer.append(frames(writer.last + 1, each))
    return writer


def positions(place: Place) -> list[int]:
    return [at for batch in read_small_columns(place) for at in batch["frame_seq"].to_pylist()]


def numbers(place: Place) -> list[int]:
    return sorted(ledger.read(place, SCHEMA)["number"].to_pylist())


def at_once(pool: Executor, place: Place, times: int) -> list[int]:
    done = [pool.submit(compact, place) for _ in range(times)]
    wait(done)
    return [each.result() for each in done]


def test_threads_that_compact_bronze_at_once_leave_every_frame_once(tmp_path: Path):
    with ThreadPoolExecutor(4) as pool:
        for round_ in range(2):
            place = Place(str(tmp_path / str(round_)))
            bronze(tmp_path / str(round_), commits=60, each=200)

            joined = at_once(pool, place, 4)

            assert positions(place) == list(range(12_000))
            assert max(joined) == 60


def test_processes_that_compact_bronze_at_once_leave_every_frame_once(tmp_path: Path):
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for round_ in range(2):
            bronze(tmp_path / str(round_), commits=30, each=200)

            at_once(pool, Place(str(tmp_path / str(round_))), 4)

            assert positions(Place(str(tmp_path / str(round_)))) == list(range(6_000))


def test_a_writer_that_appends_beside_compactions_loses_and_doubles_nothing(tmp_path: Path):
    writer = bronze(tmp_path, commits=10, each=20)
    place = Place(str(tmp_path))

    with ThreadPoolExecutor(2) as pool:
        compactions = [pool.submit(compact, place) for _ in range(10)]
        while not all(each.done() for each in compactions):
            appended(writer)

    assert positions(place) == list(range(writer.last + 1))
    assert sum(each.result() for each in compactions) > 0


def appended(writer: BronzeWriter) -> bool:
    """Append a frame, unless a compaction came first; the sink tries again."""
    try:
        writer.append(frames(writer.last + 1, 1))
    except StoreUnavailable as error:
        if not was_overtaken(error):
            raise
        return False
    return True


def test_an_append_prepared_before_a_claim_is_committed_at_once(tmp_path: Path):
    writer = bronze(tmp_path, commits=3, each=1)
    claim(DeltaTable(str(tmp_path)))

    writer.append(frames(3, 1))

    assert positions(Place(str(tmp_path))) == [0, 1, 2, 3]


def test_a_compaction_that_slept_through_another_one_cannot_commit(tmp_path: Path):
    bronze(tmp_path, commits=3, each=1)
    slow = DeltaTable(str(tmp_path))
    claim(slow)

    assert compact(Place(str(tmp_path))) == 3

    with pytest.raises(CommitFailedError, match="Metadata changed"):
        slow.optimize.compact()
    assert positions(Place(str(tmp_path))) == [0, 1, 2]


def test_of_two_claims_of_one_version_the_second_fails(tmp_path: Path):
    bronze(tmp_path, commits=1, each=1)
    first, second = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    claim(first)

    with pytest.raises(CommitFailedError, match="Metadata changed"):
        claim(second)


def test_a_compaction_that_loses_the_race_joins_nothing_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bronze(tmp_path, commits=3, each=1)
    place = Place(str(tmp_path))

    def claimed_first(table: DeltaTable) -> None:
        claim(DeltaTable(str(tmp_path)))
        claim(table)

    with monkeypatch.context() as patch:
        patch.setattr("silverfold.pipelines.storage.compaction.claim", claimed_first)
        lost = compact(place)

    assert (lost, compact(place)) == (0, 3)


def test_a_compaction_that_began_before_a_drop_of_old_frames_cannot_commit_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bronze(tmp_path, commits=4, each=10)
    table = DeltaTable(str(tmp_path))
    table.alter.set_table_properties({"delta.appendOnly": "false"})  # a drop that died left it so
    claim(table)
    write = silverfold.pipelines.upkeep.retention.write_deltalake

    def beside_a_compaction(*args: Any, **kwargs: Any) -> None:
        with suppress(CommitFailedError):
            table.optimize.compact()
        write(*args, **kwargs)

    monkeypatch.setattr(silverfold.pipelines.upkeep.retention, "write_deltalake", beside_a_compaction)
    drop_frames(Place(str(tmp_path)), "market", Retention(0, 15, 1, ()))

    assert positions(Place(str(tmp_path))) == list(range(15, 40))


def test_a_table_with_nothing_to_join_is_not_claimed(tmp_path: Path):
    bronze(tmp_path, commits=1, each=1)
    before = DeltaTable(str(tmp_path)).version()

    assert (compact(Place(str(tmp_path))), DeltaTable(str(tmp_path)).version()) == (0, before)


def test_a_ledger_that_is_written_and_compacted_at_once_has_every_row_once(tmp_path: Path):
    place = Place(str(tmp_path / "ledger"))
    for number in range(10):
        ledger.append(place, SCHEMA, [{"number": number}])

    with ThreadPoolExecutor(4) as pool:
        compactions = [pool.submit(ledger.compact, place) for _ in range(6)]
        appends = [pool.submit(ledger.append, place, SCHEMA, [{"number": number}]) for number in range(10, 30)]
        wait([*compactions, *appends])

    assert [each.result() for each in appends] == [None] * 20
    assert numbers(place) == list(range(30))
