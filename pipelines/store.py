"""Opens Delta tables without Spark, and gives the store's troubles one name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from conf.errors import StoreUnavailable
from pipelines.places import Place, way_on_without

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_T = TypeVar("_T")

_SMALL = 16 << 20
"""Bytes."""

_LOG_FILE = re.compile(r'ParsedLogPath \{.*?filename: "([^"]*)".*?file_type: \w+ \}')
"""How delta-rs spells a file of a log."""

_OF_THEIRS = " This is a kernel bug, please report."
"""What delta-rs adds where a log is damaged."""

_A_MOMENT = 1.0
"""Seconds."""

_TRIES = 10
"""How often a commit is tried while those of others come first."""


def open_table(place: Place) -> DeltaTable | None:
    """Return the table at its newest version; None when there is none yet. Raises StoreUnavailable."""
    with naming_the_store(place, of_its_log=True):
        try:
            return DeltaTable(place.url, storage_options=dict(place.storage_options))
        except TableNotFoundError:
            return None


def emptied_commits(place: Place) -> list[int]:
    """Return the versions whose file in the log is empty, ascending: what a power cut leaves on a local disk."""
    log = None if place.local is None else place.local / "_delta_log"
    if log is None or not log.is_dir():
        return []
    return sorted(int(each.stem) for each in log.glob("*.json") if each.stem.isdigit() and not each.stat().st_size)


def is_emptied(place: Place, version: int) -> bool:
    """Tell the same of one version."""
    commit = None if place.local is None else place.local / "_delta_log" / f"{version:020}.json"
    return commit is not None and commit.is_file() and not commit.stat().st_size


def files_of(place: Place) -> FileSystem:
    """Return the files below a place, by their paths from there. Each call raises what Arrow or delta-rs do."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - receivers need not load it
    from pyarrow import fs  # noqa: PLC0415 - as above

    if place.local is not None:
        return fs.SubTreeFileSystem(str(place.local), fs.LocalFileSystem())
    return fs.PyFileSystem(DeltaStorageHandler(place.url, dict(place.storage_options)))


def count_rows(table: DeltaTable) -> int | None:
    """Return how many rows a table has, from its log and deletion vectors; None when a file does not tell."""
    counts = pa.table(table.get_add_actions())["num_records"]
    if counts.null_count:
        return None
    kept = [pa.record_batch(batch)["selection_vector"].flatten() for batch in table.deletion_vectors()]
    deleted = sum(len(mask) - (pc.sum(mask).as_py() or 0) for mask in kept)
    return int(pc.sum(counts).as_py() or 0) - deleted


def mean_row_bytes(table: DeltaTable) -> float:
    """Return about how many bytes a row takes in a table's files, as its log tells; 0.0 where it has none."""
    files = pa.table(table.get_add_actions())
    rows = pc.sum(files["num_records"]).as_py() or 0
    return (pc.sum(files["size_bytes"]).as_py() or 0) / rows if rows else 0.0


def is_small(opened: DeltaTable | None) -> bool:
    """Tell whether a table's files are so small that all of them are written anew in no time, or there are none."""
    return opened is None or (pc.sum(pa.table(opened.get_add_actions())["size_bytes"]).as_py() or 0) <= _SMALL


def skipping_bounds(opened: DeltaTable | None, bounds: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return those bounds of columns by which some files of a table are skipped, as its log alone tells.

    Args:
        opened: The table; None where there is none.
        bounds: Smallest and largest value by column, both inclusive. Only columns of whole numbers skip files here.
    """
    if opened is None or not bounds:
        return {}
    files = pa.table(opened.get_add_actions(flatten=True))
    return {name: ends for name, ends in bounds.items() if _skips(files, name, *ends)}


def _skips(files: pa.Table, column: str, least: int, most: int) -> bool:
    names = f"min.{column}", f"max.{column}"
    if not set(names) <= set(files.column_names):
        return False
    first, last = (files[name] for name in names)
    if not pa.types.is_integer(first.type):
        return False
    return bool(pc.any(pc.or_(pc.less(last, least), pc.greater(first, most))).as_py())


def create_table(place: Place, schema: pa.Schema, configuration: Mapping[str, str | None]) -> DeltaTable:
    """Make a table; when another process makes one here at the same moment, take theirs. Raises StoreUnavailable."""
    with naming_the_store(place):
        try:
            return DeltaTable.create(
                place.url,
                schema,
                mode="error",
                configuration=dict(configuration),
                storage_options=dict(place.storage_options),
                # Tried again, it would become a later version of theirs, and their appends would conflict with it.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            theirs = open_table(place)
            if theirs is None:
                raise
            return theirs


@contextmanager
def naming_the_store(place: Place | str, *, of_its_log: bool = False) -> Iterator[None]:
    """Turn what delta-rs and Arrow raise inside the block into StoreUnavailable, which names the place, in one line.

    So a file that is damaged, or gone, is told as a store that does not answer is (`is_damaged`).

    Args:
        of_its_log: The block reads nothing but a table's log.
    """
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)  # below it is the stack of delta-rs
        first = _LOG_FILE.sub(r"\1", first).removesuffix(_OF_THEIRS).rstrip(".")
        told = f"its log cannot be read: {first}" if of_its_log else first
        raise StoreUnavailable("; ".join((f"{place}: {told}", *_ways_on(str(place), first, of_its_log)))) from error


def is_damaged(place: Place, read: Callable[[], object]) -> bool:
    """Tell whether a table cannot be read, nor a moment later, though its store answers. Raises StoreUnavailable.

    Args:
        read: Raises StoreUnavailable where it cannot be.
    """
    for pause in (0.0, _A_MOMENT):  # of a log that is just being cleaned, another look finds all
        time.sleep(pause)
        try:
            read()
        except StoreUnavailable:
            continue
        return False
    with naming_the_store(place):
        files_of(place).get_file_info(["_delta_log"])
    return True


def _ways_on(url: str, told: str, of_its_log: bool) -> Sequence[str]:
    """Say what can be done about what delta-rs told of a table; nothing where the store may be to blame."""
    folders = () if "://" in url else (Path(url), Path(url) / "_delta_log")
    for each in folders:
        if each.exists() and not each.is_dir():
            return (f"{each} is no folder: move it away",)
    damage = _damage(told, of_its_log=of_its_log)
    return tuple(filter(None, (damage, damage and way_on_without(url))))


_DAMAGES = (
    "Invalid Checkpoint",
    "Corrupt footer",
    "Parquet argument error",
    "Expected contiguous commit files",
    "Json error",
    "No table metadata",
    "CRC file version",
)
"""What delta-rs says of a log that is damaged."""


def _damage(told: str, *, of_its_log: bool) -> str:
    """Say what is the matter where a file is gone, or damaged; nothing where the store may be to blame."""
    if of_its_log:
        return "its log is damaged: put back what it lacks" if any(text in told for text in _DAMAGES) else ""
    if ".parquet" in told and "not found" in told and "magic" not in told:
        return "as long as it is gone, put it back"
    damaged = ("Parquet" in told and "Object Store error" not in told) or "range was invalid" in told
    return "if it stays so, a file is damaged: put it back" if damaged else ""


def was_overtaken(error: StoreUnavailable) -> bool:
    """Tell whether a commit failed because another came first: the store is well, and nothing was written."""
    return isinstance(error.__cause__, CommitFailedError)


def until_committed(place: Place, commit: Callable[[], _T]) -> _T:
    """Call what opens a table and commits to it, again while the commits of others come first; return its result.

    Raises:
        StoreUnavailable: The store does not answer, or others came first ten times. Nothing was written.
    """
    for _ in range(_TRIES - 1):
        with naming_the_store(place), suppress(CommitFailedError):
            return commit()
    with naming_the_store(place):
        return commit()
