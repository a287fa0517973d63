"""Removes whole trees of files from any store: what a rebuild made for itself alone."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime

from pyarrow import fs

from pipelines.places import Place
from pipelines.store import files_of, naming_the_store

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


def _found(store: fs.FileSystem) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = store.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return found
