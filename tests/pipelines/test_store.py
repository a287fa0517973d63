"""What a table's log tells without Spark, and what is said where it cannot be read."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from silverfold.conf.errors import ApplyError, Overtaken, StoreUnavailable
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import naming_damaged_file, naming_the_store, open_table, skipping_bounds


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A table of two files: ``k`` from 0 to 9 and from 100 to 109, ``all`` the same in both, ``name`` a text."""
    for begin in (0, 100):
        rows = {"k": list(range(begin, begin + 10)), "all": list(range(10)), "name": list("abcdefghij")}
        write_deltalake(tmp_path / "t", pa.table(rows), mode="append")
    return Place(str(tmp_path / "t"))


@pytest.mark.parametrize(
    ("bounds", "useful"),
    [
        ({"k": (3, 5)}, {"k": (3, 5)}),
        ({"k": (9, 99)}, {"k": (9, 99)}),
        ({"k": (9, 100)}, {}),
        ({"k": (3, 5), "all": (3, 5)}, {"k": (3, 5)}),
        ({"name": (3, 5), "missing": (3, 5)}, {}),
        ({}, {}),
    ],
)
def test_bounds_that_skip_no_file_are_left_out(
    place: Place, bounds: dict[str, tuple[int, int]], useful: dict[str, tuple[int, int]]
) -> None:
    assert skipping_bounds(open_table(place), bounds) == useful


def test_a_table_that_is_not_there_has_no_files_to_skip(tmp_path: Path) -> None:
    assert skipping_bounds(None, {"k": (1, 2)}) == {}


@pytest.mark.parametrize("size", [0, 100])
def test_a_damaged_checkpoint_is_named_with_what_to_do(place: Place, size: int) -> None:
    table = open_table(place)
    assert table is not None
    table.create_checkpoint()
    (checkpoint,) = (Path(place.url) / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])
    with pytest.raises(StoreUnavailable, match=r"its log cannot be read: .*; its log is damaged: put back"):
        open_table(place)
    for name in (checkpoint.name, "_last_checkpoint"):  # as it says
        (checkpoint.parent / name).unlink()
    again = open_table(place)
    assert again is not None
    assert again.version() == 1


def test_a_commit_that_a_listing_missed_is_no_damage(place: Place) -> None:
    commit = Path(place.url) / "_delta_log" / f"{0:020}.json"
    hidden = commit.with_suffix(".hidden")
    commit.rename(hidden)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        open_table(place)
    seen = threading.Timer(0.1, hidden.rename, [commit])
    seen.start()
    again = open_table(place)
    seen.join()
    assert again is not None
    assert again.version() == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 400])
def test_a_damaged_data_file_is_no_damaged_log(place: Place, content: bytes) -> None:
    file = min(Path(place.url).glob("*.parquet"))
    file.write_bytes(content)
    table = open_table(place)
    assert table is not None
    with pytest.raises(StoreUnavailable) as raised:
        SilverRows(place, table).table()
    assert "log" not in str(raised.value).removeprefix(place.url)


def test_a_write_that_the_system_refuses_is_told_with_its_reason(place: Place) -> None:
    table = open_table(place)
    assert table is not None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limit[1]))
    try:
        with pytest.raises(StoreUnavailable, match=r"^[^\n]*: File too large$"), naming_the_store(place):
            table.alter.set_table_properties({"a.b": "c"}, raise_if_not_exists=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


@pytest.mark.parametrize("folder", [".", "_delta_log"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, folder: str) -> None:
    file = tmp_path / "t" / folder
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    with pytest.raises(StoreUnavailable, match=f"; {file} is no folder: move it away$"):
        open_table(Place(str(tmp_path / "t")))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            Path.unlink,
            "{file} not found; as long as it is gone, put it back; else the folder of the base can be removed",
        ),
        (
            lambda file: file.write_bytes(file.read_bytes()[:-9]),
            "Parquet file {file.name}: .*a file is damaged: put it",
        ),
    ],
    ids=["gone", "cut short"],
)
def test_a_file_that_spark_cannot_read_is_named_with_the_way_on(
    warehouse: Path, damage: Callable[[Path], object], message: str
):
    place = Places(str(warehouse)).base("t").silver("market", "t")
    write_deltalake(place.url, pa.table({"n": [1]}))
    for error in (ApplyError("Spark: an exception", table="t"), StoreUnavailable("Spark cannot read a file")):
        with pytest.raises(type(error), match=str(error)), naming_damaged_file(place):
            raise error
    (file,) = Path(place.url).glob("*.parquet")
    damage(file)
    with pytest.raises(StoreUnavailable, match=message.format(file=file)), naming_damaged_file(place):
        raise ApplyError("Spark: an exception", table="t")
    with pytest.raises(Overtaken), naming_damaged_file(place):
        raise Overtaken("another process wrote it", table="t")
