"""Opens Delta tables without Spark, and gives the store's troubles one name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
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
def naming_the_store(place: Place) -> Iterator[None]:
    """Turn what delta-rs raises inside the block into StoreUnavailable, which names the place."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"{place}: {error}") from error
