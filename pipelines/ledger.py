"""Small append-only Delta tables that jobs write without Spark: what was cut, what was held.

Laws: rows are only added, each append is whole or not there; several processes may append at once; a ledger nobody
has written yet reads as no rows. It keeps itself small: about every hundredth append merges the small files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipelines.places import Place
from pipelines.store import create_table, naming_the_store, open_table

_COMPACT_EVERY = 100
_FILE_BYTES = 4 << 20  # files of this size are left alone, so that compaction costs the same however long the ledger


def append(place: Place, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows in one commit, creating the ledger when it is not there.

    Raises:
        StoreUnavailable: The store cannot be written now; nothing was added.
    """
    batch = pa.Table.from_pylist(list(rows), schema=schema)
    ledger = open_table(place) or create_table(place, schema, {"delta.appendOnly": "true"})
    with naming_the_store(place):
        write_deltalake(ledger, batch, mode="append")
        if ledger.version() % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            _compact(ledger)


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


def _compact(ledger: DeltaTable) -> None:
    try:
        ledger.optimize.compact(target_size=_FILE_BYTES)
    except CommitFailedError:
        return  # another process tidied up at the same moment
