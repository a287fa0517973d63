"""Writes silver tables by hand, as a build leaves them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from pipelines.cuts import app_id
from pipelines.places import Places


def write_silver(
    places: Places, feed: str, table: str, rows: Sequence[dict[str, Any]], *, position: int, schema: pa.Schema
) -> None:
    """Let the table hold exactly these rows, at a position."""
    write_deltalake(
        places.silver(feed, table).url,
        pa.Table.from_pylist(list(rows), schema=schema),
        mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id(feed, table), position)]),
    )
