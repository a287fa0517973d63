"""Removes a whole tree of files from any store: what a rebuild made for itself alone."""

from __future__ import annotations

import shutil

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from pipelines.places import Place
from pipelines.store import naming_the_store


def remove_tree(place: Place) -> None:
    """Remove everything below a place, and the place. Does nothing where there is nothing; safe to repeat.

    Raises:
        StoreUnavailable: The store does not answer, or does not allow it.
    """
    with naming_the_store(place):
        if place.local is None:
            _remove_objects(place)
        elif place.local.exists():
            shutil.rmtree(place.local)


def _remove_objects(place: Place) -> None:
    store = fs.PyFileSystem(DeltaStorageHandler(place.url, dict(place.storage_options)))
    for found in store.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True)):
        if found.type == fs.FileType.File:
            store.delete_file(found.path)
