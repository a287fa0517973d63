"""Small append-only Delta tables that jobs write without Spark: what was cut, what was held.

Laws: rows are only added, each append is whole or not there; several processes may append at once; a ledger nobody
has written yet reads as no rows. It keeps itself small: about every hundredth append merges the small files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from conf.errors import StoreUnavailable
from pipelines.compaction import join_files
from pipelines.places import Place
from pipelines.store import create_table, naming_the_store, open_table, until_committed

_COMPACT_EVERY = 100
_FILE_BYTES = 4 << 20  # files of this size are left alone, so that compaction costs the same however long the ledger


def append(place: Place, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows in one commit, creating the ledger when it is not there.

    Raises:
        StoreUnavailable: The store cannot be written now; nothing was added.
    """
    batch = pa.Table.from_pylist(list(rows), schema=schema)
    version = until_committed(place, lambda: _append(place, batch))
    if version % _COMPACT_EVERY == _COMPACT_EVERY - 1:
        with suppress(StoreUnavailable):  # the rows are there; the next time may do
            compact(place)


def compact(place: Place) -> int:
    """Join the ledger's small files (`pipelines.compaction`); return the files joined. Raises StoreUnavailable."""
    return join_files(place, target_size=_FILE_BYTES)


def read(place: Place, schema: pa.Schema, *, where: str | None = None, columns: Sequence[str] = ()) -> pa.Table:
    """Return the ledger's rows in no particular order.

    Args:
        where: A condition in SQL, as `sql_text` quotes its values; None for all rows.
        columns: Names of the columns wanted; none for all.

    Raises:
        StoreUnavailable: The store cannot be read now.
    """
    wanted = pa.schema([schema.field(name) for name in columns]) if columns else schema
    ledger = open_table(place)
    if ledger is None:
        return wanted.empty_table()
    with naming_the_store(place):
        scanned = pa.table(ledger.scan(columns=wanted.names, predicate=where))
    return scanned.cast(wanted)


def sql_text(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _append(place: Place, batch: pa.Table) -> int:
    """Commit rows; return the version made."""
    ledger = open_table(place) or create_table(place, batch.schema, {"delta.appendOnly": "true"})
    write_deltalake(ledger, batch, mode="append")
    return ledger.version()
