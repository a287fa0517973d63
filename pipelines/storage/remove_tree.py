"""Remove folders from any store, and set aside damaged logs, for rebuilds."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime

from pyarrow import fs

from silverfold.pipelines.places import Place
from silverfold.pipelines.store import files_of, is_damaged, naming_the_store, open_table

_NEVER = datetime.min.replace(tzinfo=UTC)


def remove_tree(place: Place) -> None:
    """Remove a place and everything below it. Does nothing if it does not exist; safe to repeat.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    with naming_the_store(place):
        if place.local is None:
            store = files_of(place)
            for found in _list_files(store):
                if found.type == fs.FileType.File:
                    store.delete_file(found.path)
        elif place.local.exists():
            shutil.rmtree(place.local)


def remove_unused(place: Place, *, since: datetime) -> None:
    """Remove each folder below a place that was not written since then, and the place itself if empty.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    newest: dict[str, datetime] = {}
    with naming_the_store(place):
        for found in _list_files(files_of(place)):
            name = found.path.split("/")[0]
            newest[name] = max(newest.get(name, _NEVER), found.mtime or _NEVER)
    for name, written in newest.items():
        if written < since:
            remove_tree(Place(f"{place.url}/{name}", place.storage_options))
    if place.local is not None:
        with suppress(OSError):  # it does not exist, or is not empty
            place.local.rmdir()


def set_damaged_log_aside(place: Place, token: str) -> str | None:
    """Rename a table's log if it is unreadable though its store answers; return its new path, None otherwise.

    Without a log there is no table at the place. Its files stay until ``VACUUM`` finds them unused. The checksums that
    Hadoop stores beside commits of a local table are removed in any case.

    Args:
        token: Part of the new name, which begins with ``_delta_log.damaged-``.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    _remove_checksums(place)
    if not is_damaged(place, lambda: _read_log(place)):
        return None
    renamed = f"_delta_log.damaged-{token}"
    with naming_the_store(place):
        if place.local is not None:
            (place.local / "_delta_log").rename(place.local / renamed)
        else:
            store = files_of(place)
            for file in store.get_file_info(fs.FileSelector("_delta_log", recursive=True)):
                if file.type == fs.FileType.File:
                    store.move(file.path, renamed + file.path.removeprefix("_delta_log"))
    return f"{place}/{renamed}"


def _remove_checksums(place: Place) -> None:
    """Remove Hadoop's checksums of commits: one left by a commit that is gone fails the next commit of that number."""
    log = None if place.local is None else place.local / "_delta_log"
    if log is not None and log.is_dir():
        with naming_the_store(place):
            for checksum in log.glob(".*.json.crc"):
                checksum.unlink(missing_ok=True)


def _read_log(place: Place) -> None:
    opened = open_table(place)
    if opened is not None:
        with naming_the_store(place):
            opened.history()
            opened.get_add_actions()


def _list_files(store: fs.FileSystem) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = store.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return found
