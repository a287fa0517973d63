"""A stub connector whose frames hold changes in JSON, to test the engine without any protocol.

A frame's body is ``{"changes": [{"op", "key", "sent", "old_key", "sequence"}, …]}``. A key is two numbers, ``lane`` and
``k``, so that one table can hold many small histories at once: a Spark job costs the same for one as for many. A test
may give its connector other keys and columns; a control frame, ``{"columns": …}``, changes the columns of a stream from
there on. Values that JSON lacks are objects with one name, such as ``{"$decimal": "0.1"}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from inspect import signature
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from silverfold.conf.errors import InvalidValue
from silverfold.conf.model import Strict, Table
from silverfold.connectors.base import Connector, Cut, Feed
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.common.row_decoder import UnfoldedDecoder
from silverfold.connectors.frames import Boundary, ControlFrame, Frame, Kind, Receiver, mark
from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.transforms.changes import change_type
from tests.support.change_model import Change

FEED = "told"
STREAM = "t"
KEY = T.StructType().add("lane", T.LongType()).add("k", T.LongType())
ROW = T.StructType().add("lane", T.LongType()).add("k", T.LongType()).add("a", T.StringType()).add("b", T.LongType())
COLUMNS = ("lane", "k", "a", "b")

_ZONE: Mapping[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Spark 4.0 asks for none."""
_KINDS = {
    "$binary": (bytes, bytes.hex, bytes.fromhex),
    "$decimal": (Decimal, str, Decimal),
    "$time": (datetime, datetime.isoformat, datetime.fromisoformat),
    "$date": (date, date.isoformat, date.fromisoformat),
}
"""Types that JSON lacks: class, encoder, decoder. A datetime is also a date, so it comes first."""


Context: TypeAlias = Mapping[str | None, T.StructType]


class StubOptions(Strict):
    """Feed options: none."""


class StubTable(Table):
    """Table settings: only the common ones."""


@dataclass(frozen=True)
class StubDecoder(UnfoldedDecoder[StubTable]):
    """A decoder of JSON bodies; its context is the columns of each stream.

    Args:
        misread: Positions of frames that it fails on, to simulate a fault of the decoder.
    """

    row: T.StructType = ROW
    key: T.StructType = KEY
    misread: frozenset[int] = frozenset()

    def context(self, control: Iterable[ControlFrame]) -> Context:
        return {frame.stream: _columns(frame) for frame in control}

    def row_type(self, context: Context, cut: Cut, table: Table) -> T.StructType:
        return context.get(cut.stream, self.row)

    def changes(self, frames: ArrowRows, context: Context, cut: Cut, table: Table) -> ArrowRows:
        row = self.row_type(context, cut, table)
        step = _Read(self.key, row, self.misread)
        return frames.run(step, to_arrow_schema(change_type(self.key, row), **_ZONE), "frame_seq", "kind", "body")


@dataclass(frozen=True)
class _Read:
    key: T.StructType
    row: T.StructType
    misread: frozenset[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(change_type(self.key, self.row), **_ZONE)
        for batch in batches:
            rows = [row for frame in batch.to_pylist() if frame["body"] for row in self._changes(frame)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _changes(self, frame: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        position = frame["frame_seq"]
        try:
            changes = _parse_changes(position, b"" if position in self.misread else frame["body"])
        except InvalidValue as error:
            yield {"frame_seq": position, "error": {"error_class": "INVALID_VALUE", "reason": str(error)}}
            return
        for ordinal, change in enumerate(changes):
            yield _change(position, ordinal, change, self.key.names, self.row.names)


def _change(
    position: int, ordinal: int, change: Mapping[str, Any], keys: Sequence[str], columns: Sequence[str]
) -> dict[str, Any]:
    sent = change["sent"]
    deleted = change["op"] == "delete"
    return {
        "frame_seq": position,
        "ordinal": ordinal,
        "op": change["op"],
        "key": dict(zip(keys, change["key"], strict=True)),
        "old_key": None if change["old_key"] is None else dict(zip(keys, change["old_key"], strict=True)),
        "row": None if deleted else {**dict.fromkeys(columns), **sent},
        "present": None if deleted or set(sent) == set(columns) else sorted(sent),
        "sequence": change["sequence"],
    }


@dataclass
class StubReferenceReader:
    """`connectors.verification.ReferenceReader` over JSON bodies, which already hold changes."""

    stream: str = STREAM
    keys: tuple[str, ...] = ("lane", "k")
    columns: tuple[str, ...] = COLUMNS

    def control(self, frame: ControlFrame) -> None:
        if frame.stream == self.stream:
            self.columns = tuple(_columns(frame).names)

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        return (
            _reference_change(position, change)
            for position, body in frames
            for change in _parse_changes(position, body)
        )


def _columns(frame: ControlFrame) -> T.StructType:
    return T.StructType.fromJson(json.loads(frame.body)["columns"])


def _value(found: dict[str, Any]) -> Any:
    """Return a JSON object, or the value that it encodes (`_KINDS`)."""
    ((name, text),) = found.items() if len(found) == 1 else [("", None)]
    return _KINDS[name][2](text) if name in _KINDS else found


def _written(value: object) -> Mapping[str, str]:
    for name, (kind, write, _) in _KINDS.items():
        if isinstance(value, kind):
            return {name: write(value)}
    raise TypeError(f"{value!r} cannot be told")


def _parse_changes(position: int, body: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        changes: Sequence[Mapping[str, Any]] = json.loads(body, object_hook=_value)["changes"]
    except ValueError as error:
        raise InvalidValue(f"frame {position}: {error}", reason="json") from error
    return changes


def _reference_change(position: int, change: Mapping[str, Any]) -> ReferenceChange:
    old_key = None if change["old_key"] is None else tuple(change["old_key"])
    op = "insert" if change["op"] == "snapshot" else change["op"]
    return ReferenceChange(
        op, position, tuple(change["key"]), change["sent"], old_key=old_key, sequence=change["sequence"]
    )


@dataclass(frozen=True)
class StubConnector(Connector[StubOptions, StubTable]):
    """A connector whose properties are chosen by the test."""

    continuity: Literal["resync", "resume"] = "resync"
    snapshots: bool = True
    has_partial_updates: bool = True
    source_ordered: bool = False
    row: T.StructType = field(default_factory=lambda: ROW)
    key: T.StructType = field(default_factory=lambda: KEY)
    misread: frozenset[int] = frozenset()
    name = FEED
    Options = StubOptions
    TableOptions = StubTable

    def has_snapshots(self, table: Table) -> bool:
        return self.snapshots

    def stream(self, feed: Feed, table: str) -> str:
        return table

    def receiver(self, feed: Feed) -> Receiver:
        raise AssertionError("histories are landed without one")

    def decoder(self, feed: Feed) -> StubDecoder:
        return StubDecoder(self.row, self.key, self.misread)

    def reference(self, feed: Feed, table: str) -> StubReferenceReader:
        return StubReferenceReader(table, tuple(self.key.names), tuple(self.row.names))

    def simulator(self) -> Callable[..., None]:
        raise AssertionError("there is no source")


CONNECTOR = StubConnector()


@dataclass
class StubFeed:
    """Frames of a feed's streams, in the order of the calls that add them; landed by `land`."""

    places: Places
    epoch: int = 0
    position: int = -1
    """Position of the last frame added."""
    _frames: list[tuple[int, Frame]] = field(default_factory=list)

    def connect(self) -> None:
        """Begin an epoch."""
        self.epoch += 1
        self.add(mark("opened", epoch=self.epoch))

    def land(self) -> None:
        """Commit the frames added since the last call."""
        writer = BronzeWriter.open(self.places.bronze(FEED), FEED, token="told")
        batch = Batch(writer.last + 1)
        for epoch, frame in self._frames:
            batch.add([frame], epoch, 1_700_000_000_000_000)
        if self._frames:
            writer.append(batch.prepare().table)
            self._frames.clear()

    def add(self, frame: Frame) -> int:
        """Add a frame; return its position."""
        self._frames.append((self.epoch, frame))
        self.position += 1
        return self.position


class StubHistory:
    """Adds the frames of one stream to a feed; to a new feed unless one is given."""

    def __init__(self, places: Places, *, feed: StubFeed | None = None, stream: str = STREAM) -> None:
        self.feed, self.stream = feed or StubFeed(places), stream

    @property
    def position(self) -> int:
        """Position of the feed's last frame."""
        return self.feed.position

    def connect(self) -> None:
        """Begin an epoch of the feed."""
        self.feed.connect()

    def land(self) -> None:
        """Commit the feed's frames added since the last call."""
        self.feed.land()

    def update(self, changes: Sequence[Change], *, sequences: Sequence[str | None] = ()) -> int:
        """Add an update in one frame; return its position."""
        return self._add(body_of(changes, sequences), Kind.DATA, Boundary.WHOLE)

    def raw(self, body: bytes) -> int:
        """Add an update with any body; return its position."""
        return self._add(body, Kind.DATA, Boundary.WHOLE)

    def torn(self, changes: Sequence[Change]) -> int:
        """Add the beginning of an update that never ends."""
        return self._add(body_of(changes), Kind.DATA, Boundary.BEGIN)

    def columns(self, row: T.StructType) -> int:
        """Add a control frame: from here on the stream has these columns."""
        return self._add(json.dumps({"columns": row.jsonValue()}).encode(), Kind.CONTROL, Boundary.NONE)

    def inside(
        self, changes: Sequence[Change] | bytes, boundary: Boundary, *, sequences: Sequence[str | None] = ()
    ) -> int:
        """Add one of several frames of an update; bytes are used as the body."""
        body = changes if isinstance(changes, bytes) else body_of(changes, sequences)
        return self._add(body, Kind.DATA, boundary)

    def begin_snapshot(self) -> int:
        """Begin a snapshot."""
        return self._add(b"", Kind.SNAPSHOT, Boundary.BEGIN)

    def snapshot_rows(self, rows: Sequence[Change], *, sequences: Sequence[str | None] = ()) -> int:
        """Add rows of the snapshot."""
        return self._add(body_of(rows, sequences), Kind.SNAPSHOT, Boundary.INSIDE)

    def end_snapshot(self) -> int:
        """End the snapshot."""
        return self._add(b"", Kind.SNAPSHOT, Boundary.END)

    def _add(self, body: bytes, kind: Kind, boundary: Boundary) -> int:
        return self.feed.add(Frame(body, kind, boundary, self.stream))


def body_of(changes: Sequence[Change], sequences: Sequence[str | None] = ()) -> bytes:
    """Return the body of a frame."""
    numbered = list(sequences) or [None] * len(changes)
    entries = [
        {"op": c.op, "key": c.key, "sent": dict(c.sent), "old_key": c.old_key, "sequence": s}
        for c, s in zip(changes, numbered, strict=True)
    ]
    return json.dumps({"changes": entries}, default=_written).encode()


def put(k: int, a: str, *, op: str = "insert") -> Change:
    """Return a change with a complete row."""
    return Change(0, op, (0, k), {"lane": 0, "k": k, "a": a, "b": 0})


def partial_update(k: int, a: str) -> Change:
    """Return an update of one column."""
    return Change(0, "update", (0, k), {"a": a})


def gone(k: int) -> Change:
    """Return a delete."""
    return Change(0, "delete", (0, k))
