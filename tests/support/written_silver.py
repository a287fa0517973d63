"""Writes silver tables by hand, as a build leaves them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.cuts import app_id


def write_silver(
    places: Places,
    feed: str,
    table: str,
    rows: Sequence[dict[str, Any]],
    *,
    position: int,
    schema: pa.Schema,
    note: CommitNote | None = None,
) -> None:
    """Write a table of exactly these rows, at a position, with a note of its last cut, if any."""
    write_deltalake(
        places.silver(feed, table).url,
        pa.Table.from_pylist(list(rows), schema=schema),
        mode="overwrite",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app_id(feed, table), position)],
            custom_metadata=None if note is None else {"userMetadata": note.to_json()},
        ),
    )
