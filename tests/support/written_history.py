"""Writes a table of the tests' own source, its history and tombstones by hand, as a build leaves them. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.connectors.base import Feed
from silverfold.pipelines.applying.commit_note import NOT_TOLD, CommitNote
from silverfold.pipelines.applying.cuts import position_reached
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_history
from tests.support.told import FEED, STREAM, ToldConnector, ToldHistory, ToldOptions, ToldTable

COLUMNS = pa.schema([("lane", pa.int64()), ("k", pa.int64()), ("a", pa.string()), ("b", pa.int64())])
POSITIONAL = ToldConnector()

Version: TypeAlias = tuple[int, Any, Any, Any]
"""The row's key, its column a, where it begins and ends."""


class WrittenHistory:
    """A feed with one table that keeps history."""

    def __init__(self, root: Path, connector: ToldConnector = POSITIONAL) -> None:
        self.places, self.connector = Places(str(root)), connector
        table = ToldTable(source="T", stored_as_scd_type=2)
        self.feed = Feed(FEED, FEED, "unused", ToldOptions(), {STREAM: table})
        self.source = ToldHistory(self.places)

    def keep(self, versions: Sequence[Version], position: int) -> None:
        """Let the history hold exactly these versions, and a table that stands elsewhere stand there without rows."""
        moment = pa.string() if self.connector.source_ordered else pa.int64()
        rows = [(0, k, a, 0, start, end) for k, a, start, end in versions]
        kind = pa.schema([*COLUMNS, ("__START_AT", moment), ("__END_AT", moment)])
        _write(self.places.history(FEED, STREAM), kind, rows, f"history/{FEED}/{STREAM}", _note(position))
        if position_reached(self.places, FEED, STREAM) != position:
            self.write([], position)

    def write(
        self, rows: Sequence[tuple[int, str, Any]], position: int, *, history: int | None = NOT_TOLD, stones: int = 0
    ) -> None:
        """Let the table hold exactly these rows, of each key, column a and position; and say what counts beside it."""
        kind = COLUMNS.append(pa.field("_position", pa.string() if self.connector.source_ordered else pa.int64()))
        told = [(0, k, a, 0, at) for k, a, at in rows]
        note = replace(_note(position), history=history, tombstones=stones)
        _write(self.places.silver(FEED, STREAM), kind, told, f"apply/{FEED}/{STREAM}", note)

    def write_tombstones(self, stones: Sequence[tuple[int, str]], position: int) -> None:
        kind = pa.schema([("lane", pa.int64()), ("k", pa.int64()), ("_position", pa.string())])
        told = [(0, k, at) for k, at in stones]
        _write(self.places.tombstones(FEED, STREAM), kind, told, f"tombstones/{FEED}/{STREAM}", _note(position))

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
