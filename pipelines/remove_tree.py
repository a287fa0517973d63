"""Removes whole trees of files from any store, and sets aside logs that are damaged: what a rebuild has no use for."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime

from pyarrow import fs

from pipelines.places import Place
from pipelines.store import files_of, is_damaged, naming_the_store, open_table

_NEVER = datetime.min.replace(tzinfo=UTC)


def remove_tree(place: Place) -> None:
    """Remove everything below a place, and the place. Does nothing where there is nothing; safe to repeat.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    with naming_the_store(place):
        if place.local is None:
            store = files_of(place)
            for found in _found(store):
                if found.type == fs.FileType.File:
                    store.delete_file(found.path)
        elif place.local.exists():
            shutil.rmtree(place.local)


def remove_unused(place: Place, *, since: datetime) -> None:
    """Remove each folder below a place in which nothing was written since then, and the place if it is empty.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    newest: dict[str, datetime] = {}
    with naming_the_store(place):
        for found in _found(files_of(place)):
            name = found.path.split("/")[0]
            newest[name] = max(newest.get(name, _NEVER), found.mtime or _NEVER)
    for name, written in newest.items():
        if written < since:
            remove_tree(Place(f"{place.url}/{name}", place.storage_options))
    if place.local is not None:
        with suppress(OSError):  # it is not there, or not empty
            place.local.rmdir()


def set_damaged_log_aside(place: Place, token: str) -> str | None:
    """Rename a table's log that cannot be read, though its store answers; return where it is then, None of any other.

    Without it there is no table at the place any more. Its files stay until ``VACUUM`` finds them unused.

    Args:
        token: For the new name, which begins with ``_delta_log.damaged-``.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    if not is_damaged(place, lambda: _read_log(place)):
        return None
    aside = f"_delta_log.damaged-{token}"
    with naming_the_store(place):
        if place.local is not None:
            (place.local / "_delta_log").rename(place.local / aside)
        else:
            store = files_of(place)
            for file in store.get_file_info(fs.FileSelector("_delta_log", recursive=True)):
                if file.type == fs.FileType.File:
                    store.move(file.path, aside + file.path.removeprefix("_delta_log"))
    return f"{place}/{aside}"


def _read_log(place: Place) -> None:
    opened = open_table(place)
    if opened is not None:
        with naming_the_store(place):
            opened.history()
            opened.get_add_actions()


def _found(store: fs.FileSystem) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = store.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return found
