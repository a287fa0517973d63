"""Opens Delta tables without Spark, and gives the store's troubles one name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from conf.errors import StoreUnavailable
from pipelines.places import Place


def open_table(place: Place) -> DeltaTable | None:
    """Return the table at its newest version; None when there is none yet. Raises StoreUnavailable."""
    with naming_the_store(place):
        try:
            return DeltaTable(place.url, storage_options=dict(place.storage_options))
        except TableNotFoundError:
            return None


@contextmanager
def naming_the_store(place: Place) -> Iterator[None]:
    """Turn what delta-rs raises inside the block into StoreUnavailable, which names the place."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"{place}: {error}") from error
