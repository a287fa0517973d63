"""Opens Delta tables without Spark, and gives the store's troubles one name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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


def count_rows(place: Place) -> int:
    """Return how many rows a table has that was written without deletion vectors; 0 where there is none.

    From its log alone. Raises StoreUnavailable.
    """
    opened = open_table(place)
    return 0 if opened is None else sum(opened.get_add_actions(flatten=True)["num_records"].to_pylist())


def largest(place: Place, column: str) -> Any:
    """Return a value that no row of a table exceeds in a column, from its log alone; None where that is not known.

    Raises:
        StoreUnavailable: The table cannot be read now.
    """
    opened = open_table(place)
    files = None if opened is None else pa.table(opened.get_add_actions(flatten=True))
    if files is None or f"max.{column}" not in files.column_names:
        return None
    found = files[f"max.{column}"]
    return None if found.null_count else pc.max(found).as_py()


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
