"""A table's landed frames, folded as a connector's decoder and as its reference reader read them; without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from silverfold.connectors.base import Connector, Cut, Feed
from silverfold.connectors.common.arrow_rows import InProcess
from silverfold.connectors.frames import Boundary, ControlFrame, Frame, Kind
from silverfold.connectors.registry import find_connector
from silverfold.connectors.verification import ReferenceChange, ReferenceReader
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.verifying.table_fold import TableFold

Rows = Mapping[tuple[Any, ...], Mapping[str, Any]]
_COLUMNS = pa.schema([SCHEMA.field(name) for name in ("frame_seq", "epoch", "kind", "boundary", "body")])


@dataclass(frozen=True)
class TwoReaders:
    """One epoch's complete updates of a table, whose snapshot is the first if there are any."""

    feed: Feed
    name: str
    frames: Sequence[Frame]

    @cached_property
    def connector(self) -> Connector:
        return find_connector(self.feed.connector)

    @property
    def table(self) -> Any:
        """The table's settings."""
        return self.feed.tables[self.name]

    def by_decoder(self) -> tuple[Rows, list[Mapping[str, Any]]]:
        """Return the rows when each update is a cut, and the errors of frames that cannot be decoded."""
        decoder, errors, folded = self.connector.decoder(self.feed), list[Mapping[str, Any]](), self._fold()
        context = decoder.context(self._control())
        for cut in self._cuts():
            arguments = self._arrow_rows(cut), context, cut, self.table
            if self.connector.folds:  # its changes leave out keys of wide ranges
                folded.apply(map(_removal, decoder.removed_ranges(*arguments).collect()))
            found = decoder.changes(*arguments).collect()
            errors += [change["error"] for change in found if change["error"] is not None]
            folded.apply(map(_change, sorted((each for each in found if each["error"] is None), key=_order)))
        return self._rows(folded), errors

    def by_reference(self) -> Rows:
        """Return the rows. Raises SilverfoldError if a frame cannot be read."""
        reader, folded = self._reader(), self._fold()
        for cut in self._cuts():
            folded.apply(reader.changes(1, [(at, frame.body) for at, frame in self._landed(cut)]))
        return self._rows(folded)

    def _fold(self) -> TableFold:
        # An update of a row that is not there shows as well, unless the decoder has folded it.
        return TableFold(self._reader().keys, upserts=not self.connector.folds)

    def _rows(self, folded: TableFold) -> Rows:
        columns = self._reader().columns
        return {key: {name: row.get(name) for name in columns} for key, row in folded.rows.items()}

    def _reader(self) -> ReferenceReader:
        reader = self.connector.reference(self.feed, self.name)
        for frame in self._control():
            reader.control(frame)
        return reader

    @cached_property
    def _stream(self) -> str:
        return self.connector.stream(self.feed, self.name)

    def _control(self) -> list[ControlFrame]:
        return [
            ControlFrame(at, 1, frame.stream, frame.body)
            for at, frame in enumerate(self.frames)
            if frame.kind is Kind.CONTROL
        ]

    def _landed(self, cut: Cut) -> list[tuple[int, Frame]]:
        ((begin, end),) = cut.spans
        inside = enumerate(self.frames[begin : end + 1], begin)
        return [(at, f) for at, f in inside if f.stream == self._stream and f.kind in (Kind.SNAPSHOT, Kind.DATA)]

    def _arrow_rows(self, cut: Cut) -> InProcess:
        rows = [{**frame._asdict(), "frame_seq": at, "epoch": 1} for at, frame in self._landed(cut)]
        return InProcess(None, pa.Table.from_pylist(rows, _COLUMNS))

    def _cuts(self) -> Iterator[Cut]:
        """Yield a cut for each complete update."""
        begin, last, snapshot_due = 0, -1, self.connector.has_snapshots(self.table)
        for at, frame in enumerate(self.frames):
            if frame.stream != self._stream:
                continue
            if frame.boundary in (Boundary.BEGIN, Boundary.WHOLE):
                begin = at
            if frame.boundary in (Boundary.END, Boundary.WHOLE):
                snapshot_end = at if snapshot_due else None
                yield Cut(self._stream, 1, last, at, ((begin, at),), (begin,), (at,), snapshot_due, snapshot_end)
                last, snapshot_due = at, False


def _order(change: Mapping[str, Any]) -> tuple[bool, int, int]:
    return change["op"] != "snapshot", change["frame_seq"], change.get("ordinal") or 0


def _removal(removed: Mapping[str, Any]) -> ReferenceChange:
    """Return a removed range as the reference reader has it."""
    return ReferenceChange("delete", removed["frame_seq"], (removed["first_key"],), last_key=(removed["last_key"],))


def _change(change: Mapping[str, Any]) -> ReferenceChange:
    """Return a change row as the reference reader has it."""
    row, present, old_key = change["row"] or {}, change.get("present"), change.get("old_key")
    return ReferenceChange(
        "insert" if change["op"] == "snapshot" else change["op"],
        change["frame_seq"],
        tuple(change["key"].values()),
        row if present is None else {name: row[name] for name in present},
        old_key=None if old_key is None else tuple(old_key.values()),
    )
