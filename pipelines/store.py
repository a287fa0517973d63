"""Open Delta tables without Spark, and raise the store's errors as StoreUnavailable."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from silverfold.conf.errors import ApplyError, Overtaken, StoreUnavailable
from silverfold.pipelines.places import Place, recovery_advice

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

_T = TypeVar("_T")

_SMALL = 16 << 20
"""Bytes."""

_LOG_FILE = re.compile(r'ParsedLogPath \{.*?filename: "([^"]*)".*?file_type: \w+ \}')
"""A log file as formatted in delta-rs's errors."""

_GONE = re.compile(r"\[Errno 2\] Failed to open local file '(.*)'\. Detail: .*")
"""A file that Arrow lacks, as its errors have it."""

_CAUSE = re.compile(r"↳\S* (.*) \(os error \d+\)")
"""The operating system's error, such as a full disk, which delta-rs lists in a line below those it caused."""

_OF_THEIRS = " This is a kernel bug, please report."
"""Text that delta-rs appends for a damaged log."""

_A_MOMENT = 1.0
"""Seconds."""

_LOOKS_AGAIN = (0.05, 0.2)
"""Seconds before each further look at a log that seems damaged: a listing can miss a commit that is made meanwhile."""

_TRIES = 10
"""How often a commit is tried while those of others come first."""


def open_table(place: Place) -> DeltaTable | None:
    """Return the table at its newest version; None if it does not exist. Raises StoreUnavailable."""
    for pause in _LOOKS_AGAIN:
        try:
            return _open_now(place)
        except StoreUnavailable as error:
            if not _damage(str(error.__cause__), of_its_log=True):
                raise
        time.sleep(pause)
    return _open_now(place)


def open_own(place: Place, schema: pa.Schema, what: str) -> DeltaTable | None:
    """Do as `open_table`, for a table that has at least the columns of a schema.

    Raises:
        StoreUnavailable: It cannot be read now; or it is another table, not ``what``.
    """
    table = open_table(place)
    if table is None:
        return None
    found = [field.name for field in table.schema().fields]
    if lacking := [name for name in schema.names if name not in found]:
        raise StoreUnavailable(f"{place}: this is not {what}, it has no column {lacking[0]}: move it away")
    return table


def _open_now(place: Place) -> DeltaTable | None:
    with naming_the_store(place, of_its_log=True):
        try:
            return DeltaTable(place.url, storage_options=dict(place.storage_options))
        except TableNotFoundError:
            return None


def emptied_commits(place: Place) -> list[int]:
    """Return the versions whose log file is empty, ascending: a power cut leaves such files on a local disk."""
    log = None if place.local is None else place.local / "_delta_log"
    if log is None or not log.is_dir():
        return []
    return sorted(int(each.stem) for each in log.glob("*.json") if each.stem.isdigit() and not each.stat().st_size)


def is_emptied(place: Place, version: int) -> bool:
    """Return whether one version's log file is empty."""
    commit = None if place.local is None else place.local / "_delta_log" / f"{version:020}.json"
    return commit is not None and commit.is_file() and not commit.stat().st_size


def files_of(place: Place) -> FileSystem:
    """Return the file system below a place, with relative paths. Its calls raise errors of Arrow or delta-rs."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - receivers need not load it
    from pyarrow import fs  # noqa: PLC0415 - as above

    if place.local is not None:
        return _local_files(str(place.local))
    return fs.PyFileSystem(DeltaStorageHandler(place.url, dict(place.storage_options)))


def dataset_of(table: DeltaTable, *, file_pruning_predicate: str | None = None) -> Dataset:
    """Return a table as an Arrow dataset.

    Arrow reads local files itself. delta-rs's own file system is written in Python, and a thread of Arrow's that closes
    a file by it while the interpreter ends aborts the process.
    """
    scheme, _, path = table.table_uri.partition("://")
    local = _local_files(unquote(path)) if scheme == "file" else None
    return table.to_pyarrow_dataset(filesystem=local, file_pruning_predicate=file_pruning_predicate)


def _local_files(folder: str) -> FileSystem:
    from pyarrow import fs  # noqa: PLC0415 - receivers need not load it

    return fs.SubTreeFileSystem(folder, fs.LocalFileSystem())


def count_rows(table: DeltaTable) -> int | None:
    """Return the number of rows, from a table's log and deletion vectors; None if a file lacks statistics."""
    counts = pa.table(table.get_add_actions())["num_records"]
    if counts.null_count:
        return None
    selected = [pa.record_batch(batch)["selection_vector"].flatten() for batch in table.deletion_vectors()]
    deleted = sum(len(mask) - (pc.sum(mask).as_py() or 0) for mask in selected)
    return int(pc.sum(counts).as_py() or 0) - deleted


def mean_row_bytes(table: DeltaTable) -> float:
    """Return the approximate bytes per row in a table's files, from its log; 0.0 without rows."""
    files = pa.table(table.get_add_actions())
    rows = pc.sum(files["num_records"]).as_py() or 0
    return (pc.sum(files["size_bytes"]).as_py() or 0) / rows if rows else 0.0


def is_small(opened: DeltaTable | None) -> bool:
    """Return whether a table's files are small enough to rewrite all of them quickly, or there is no table."""
    return opened is None or (pc.sum(pa.table(opened.get_add_actions())["size_bytes"]).as_py() or 0) <= _SMALL


def skipping_bounds(opened: DeltaTable | None, bounds: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return those bounds that skip some files of a table, judging by its log alone.

    Args:
        opened: The table; None if it does not exist.
        bounds: Smallest and largest value by column, both inclusive. Only integer columns skip files here.
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


def newest_commits(place: Place | str, opened: DeltaTable, most: int | None) -> list[Mapping[str, Any]]:
    """Return the newest commits in a table's log, newest first. Raises StoreUnavailable.

    Args:
        opened: The table at its newest version: for others, delta-rs reports wrong version numbers.
        most: How many at most; None for all.
    """
    with naming_the_store(place):
        return list(opened.history(most))


def own_commit(commits: Iterable[Mapping[str, Any]], **entries: str) -> Mapping[str, Any] | None:
    """Return the first commit that carries these entries, which only ours has; None if it is not among them."""
    return next((commit for commit in commits if entries.items() <= commit.items()), None)


def create_table(place: Place, schema: pa.Schema, configuration: Mapping[str, str | None]) -> DeltaTable:
    """Create a table, or open one that another process creates concurrently. Raises StoreUnavailable."""
    with naming_the_store(place):
        try:
            return DeltaTable.create(
                place.url,
                schema,
                mode="error",
                configuration=dict(configuration),
                storage_options=dict(place.storage_options),
                # A retry would become a later version of their table, and conflict with their appends.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            theirs = open_table(place)
            if theirs is None:
                raise
            return theirs


@contextmanager
def naming_the_store(place: Place | str, *, of_its_log: bool = False) -> Iterator[None]:
    """Raise errors of delta-rs and Arrow inside the block as StoreUnavailable, with the place, in one line.

    A damaged or missing file is thus reported like a store that does not answer (`is_damaged`).

    Args:
        of_its_log: The block reads nothing but a table's log.
    """
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)  # delta-rs's causes or its stack follow
        first = _LOG_FILE.sub(r"\1", _GONE.sub(r"\1 not found", first)).removesuffix(_OF_THEIRS).rstrip(".")
        message = ": ".join([*(["its log cannot be read"] if of_its_log else []), first, *_CAUSE.findall(str(error))])
        raise StoreUnavailable("; ".join((f"{place}: {message}", *_advice(str(place), first, of_its_log)))) from error


@contextmanager
def naming_damaged_file(*places: Place) -> Iterator[None]:
    """Look for the file to blame if Spark cannot read one of some tables inside the block: it reads every file then.

    Raises:
        StoreUnavailable: Names a file that is damaged or missing.
    """
    try:
        yield
    except Overtaken:
        raise
    except (ApplyError, StoreUnavailable):
        for place in places:
            _read_files(place)
        raise


def _read_files(place: Place) -> None:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - receivers need not load it

    table = open_table(place)
    with naming_the_store(place):
        for path in [] if table is None else pa.table(table.get_add_actions())["path"].to_pylist():
            with files_of(place).open_input_file(unquote(path)) as file:
                try:
                    for _ in ParquetFile(file).iter_batches():
                        pass
                except (OSError, pa.ArrowException) as error:
                    raise pa.ArrowInvalid(f"Parquet file {path}: {error}") from error


def is_damaged(place: Place, read: Callable[[], object]) -> bool:
    """Return whether a table cannot be read, even a moment later, though its store answers. Raises StoreUnavailable.

    Args:
        read: Reads the table; raises StoreUnavailable if that fails.
    """
    for pause in (0.0, _A_MOMENT):  # a second look succeeds if the log was just being cleaned
        time.sleep(pause)
        try:
            read()
        except StoreUnavailable:
            continue
        return False
    with naming_the_store(place):
        files_of(place).get_file_info(["_delta_log"])
    return True


def _advice(url: str, message: str, of_its_log: bool) -> Sequence[str]:
    """Return advice on an error of delta-rs for a table; nothing if the store may be to blame."""
    folders = () if "://" in url else (Path(url), Path(url) / "_delta_log")
    for each in folders:
        if each.exists() and not each.is_dir():
            return (f"{each} is no folder: move it away",)
    damage = _damage(message, of_its_log=of_its_log)
    return tuple(filter(None, (damage, damage and recovery_advice(url))))


_DAMAGES = (
    "Invalid Checkpoint",
    "Corrupt footer",
    "Parquet argument error",
    "Expected contiguous commit files",
    "Json error",
    "No table metadata",
    "CRC file version",
)
"""Messages of delta-rs for a damaged log."""


def _damage(message: str, *, of_its_log: bool) -> str:
    """Return a description of a missing or damaged file; empty if the store may be to blame."""
    if of_its_log:
        return "its log is damaged: put back what it lacks" if any(text in message for text in _DAMAGES) else ""
    if ".parquet" in message and "not found" in message and "magic" not in message:
        return "as long as it is gone, put it back"
    damaged = ("Parquet" in message and "Object Store error" not in message) or "range was invalid" in message
    return "if it stays so, a file is damaged: put it back" if damaged else ""


def was_overtaken(error: StoreUnavailable) -> bool:
    """Return whether a commit failed because another came first: the store is well, and nothing was written."""
    return isinstance(error.__cause__, CommitFailedError)


def until_committed(place: Place, commit: Callable[[], _T]) -> _T:
    """Call a function that opens a table and commits to it, retrying while other commits come first; return its result.

    Raises:
        StoreUnavailable: The store does not answer, or others came first ten times. Nothing was written.
    """
    for _ in range(_TRIES - 1):
        with naming_the_store(place), suppress(CommitFailedError):
            return commit()
    with naming_the_store(place):
        return commit()
