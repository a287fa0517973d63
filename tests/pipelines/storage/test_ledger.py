from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage import ledger

SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])


def test_a_ledger_nobody_has_written_reads_as_no_rows(tmp_path: Path):
    found = ledger.read(Place(str(tmp_path / "none")), SCHEMA)

    assert found == SCHEMA.empty_table()


def test_appended_rows_are_read_back(tmp_path: Path):
    place = Place(str(tmp_path / "ledger"))

    ledger.append(place, SCHEMA, [{"number": 1, "word": "one"}])
    ledger.append(place, SCHEMA, [{"number": 2, "word": None}, {"number": 3, "word": "three"}])

    found = ledger.read(place, SCHEMA).sort_by("number")
    assert found.to_pylist() == [
        {"number": 1, "word": "one"},
        {"number": 2, "word": None},
        {"number": 3, "word": "three"},
    ]


def test_rows_and_columns_can_be_chosen(tmp_path: Path):
    place = Place(str(tmp_path / "ledger"))
    ledger.append(place, SCHEMA, [{"number": 1, "word": "it's"}, {"number": 2, "word": "its"}])

    found = ledger.read(place, SCHEMA, where="word = " + ledger.sql_text("it's"), columns=["number"])

    assert found.to_pylist() == [{"number": 1}]


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path):
    place = Place(str(tmp_path / "ledger"))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda number: ledger.append(place, SCHEMA, [{"number": number}]), range(16)))

    assert sorted(ledger.read(place, SCHEMA)["number"].to_pylist()) == list(range(16))


def test_the_hundredth_append_merges_the_small_files(tmp_path: Path):
    place = Place(str(tmp_path / "ledger"))
    for number in range(3):
        ledger.append(place, SCHEMA, [{"number": number}])
    for version in range(4, 98):  # commits that change nothing stand for the appends in between
        (tmp_path / "ledger" / "_delta_log" / f"{version:020}.json").write_text('{"commitInfo":{}}\n')

    ledger.append(place, SCHEMA, [{"number": 3}])
    before = len(DeltaTable(place.url).file_uris())
    ledger.append(place, SCHEMA, [{"number": 4}])

    assert (before, len(DeltaTable(place.url).file_uris())) == (4, 1)
    assert sorted(ledger.read(place, SCHEMA)["number"].to_pylist()) == [0, 1, 2, 3, 4]


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    place = Place(str(tmp_path / "file" / "ledger"))

    with pytest.raises(StoreUnavailable, match="file/ledger"):
        ledger.append(place, SCHEMA, [{"number": 1}])
