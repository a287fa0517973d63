"""Writes a stub table, its history and tombstones by hand, as a build leaves them. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.connectors.base import Feed
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.commit_note import NOT_RECORDED, CommitNote
from silverfold.pipelines.storage.cuts import position_reached
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_history
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubHistory, StubOptions, StubTable

COLUMNS = pa.schema([("lane", pa.int64()), ("k", pa.int64()), ("a", pa.string()), ("b", pa.int64())])
POSITIONAL = StubConnector()

Version: TypeAlias = tuple[int, Any, Any, Any]
"""The row's key, its column a, and its start and end positions."""


class WrittenHistory:
    """A feed with one table, which keeps history."""

    def __init__(self, root: Path, connector: StubConnector = POSITIONAL) -> None:
        self.places, self.connector = Places(str(root)), connector
        table = StubTable(source="T", stored_as_scd_type=2)
        self.feed = Feed(FEED, FEED, "unused", StubOptions(), {STREAM: table})
        self.source = StubHistory(self.places)

    def keep(self, versions: Sequence[Version], position: int) -> None:
        """Write a history of exactly these versions; unless the table is at the position, write it there, empty."""
        moment = pa.string() if self.connector.source_ordered else pa.int64()
        rows = [(0, k, a, 0, start, end) for k, a, start, end in versions]
        kind = pa.schema([*COLUMNS, ("__START_AT", moment), ("__END_AT", moment)])
        _write(self.places.history(FEED, STREAM), kind, rows, f"history/{FEED}/{STREAM}", _note(position))
        if position_reached(self.places, FEED, STREAM) != position:
            self.write([], position)

    def write(
        self,
        rows: Sequence[tuple[int, str, Any]],
        position: int,
        *,
        history: int | None = NOT_RECORDED,
        stones: int = 0,
    ) -> None:
        """Write a table of exactly these rows (key, column a, position), and note the versions that count beside it."""
        kind = COLUMNS.append(pa.field("_position", pa.string() if self.connector.source_ordered else pa.int64()))
        cells = [(0, k, a, 0, at) for k, a, at in rows]
        note = replace(_note(position), history=history, tombstones=stones)
        _write(self.places.silver(FEED, STREAM), kind, cells, f"apply/{FEED}/{STREAM}", note)

    def write_tombstones(self, stones: Sequence[tuple[int, str]], position: int) -> None:
        kind = pa.schema([("lane", pa.int64()), ("k", pa.int64()), ("_position", pa.string())])
        rows = [(0, k, at) for k, at in stones]
        _write(self.places.tombstones(FEED, STREAM), kind, rows, f"tombstones/{FEED}/{STREAM}", _note(position))

    def verify(self) -> TableVerification:
        return verify_history(self.places, self.connector, self.feed, STREAM)

    def verdict(self, versions: Sequence[Version], position: int) -> Verdict:
        self.keep(versions, position)
        return self.verify().verdict


def _note(position: int) -> CommitNote:
    return CommitNote(
        feed=FEED, table=STREAM, epoch=1, first_position=0, last_position=position, replaced=False, updates=1
    )


def _write(place: Place, kind: pa.Schema, rows: Sequence[tuple[Any, ...]], app: str, note: CommitNote) -> None:
    table = pa.Table.from_pylist([dict(zip(kind.names, row, strict=True)) for row in rows], schema=kind)
    recorded = CommitProperties(
        app_transactions=[Transaction(app, note.last_position)], custom_metadata={"userMetadata": note.to_json()}
    )
    write_deltalake(place.url, table, mode="overwrite", commit_properties=recorded)
