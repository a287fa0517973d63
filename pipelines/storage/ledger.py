"""Small append-only Delta tables that jobs write without Spark: the log of cuts, the quarantine.

Rows are only added, and each append is atomic. Several processes may append at once. A ledger that does not exist reads
as no rows. About every hundredth append compacts the small files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.compaction import join_files
from silverfold.pipelines.store import create_table, naming_the_store, open_own, open_table, until_committed

_COMPACT_EVERY = 100
_FILE_BYTES = 4 << 20  # larger files are left alone, so the cost of compaction does not grow with the ledger


def append(place: Place, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows in one commit, creating the ledger if needed.

    Raises:
        StoreUnavailable: The store cannot be written now; nothing was added.
    """
    batch = pa.Table.from_pylist(list(rows), schema=schema)
    version = until_committed(place, lambda: _append(place, batch))
    if version % _COMPACT_EVERY == _COMPACT_EVERY - 1:
        with suppress(StoreUnavailable):  # the rows are committed; compaction can wait for the next time
            compact(place)


def compact(place: Place) -> int:
    """Join small files (`pipelines.storage.compaction`); return the number of files joined. Raises StoreUnavailable."""
    return join_files(place, target_size=_FILE_BYTES)


def read(place: Place, schema: pa.Schema, *, where: str | None = None, columns: Sequence[str] = ()) -> pa.Table:
    """Return the ledger's rows in no particular order.

    Args:
        where: A condition in SQL, its values quoted by `sql_text`; None for all rows.
        columns: Names of the columns to read; none for all.

    Raises:
        StoreUnavailable: The store cannot be read now.
    """
    wanted = pa.schema([schema.field(name) for name in columns]) if columns else schema
    ledger = open_own(place, wanted, "a table of ours")
    if ledger is None:
        return wanted.empty_table()
    with naming_the_store(place):
        scanned = pa.table(ledger.scan(columns=wanted.names, predicate=where))
    return scanned.cast(wanted)


def sql_text(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _append(place: Place, batch: pa.Table) -> int:
    """Commit rows; return the new version."""
    ledger = open_table(place) or create_table(place, batch.schema, {"delta.appendOnly": "true"})
    write_deltalake(ledger, batch, mode="append")
    return ledger.version()
