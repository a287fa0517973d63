"""What a connector is: the types that cross between a source, bronze and the engine.

A `Receiver` turns one connection (an epoch) into `Frame`s and hands them to a `FrameSink`. A `Decoder` turns the landed
frames of one `Cut` into change rows (`transforms.changes`). A `ReferenceReader` reads the same frames by another way, and a
`SourceSubscription` asks the source itself: what silver is verified by. `connectors.registry` finds a `Connector` by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from conf.model import Commit, Reconnect, Table
from connectors.key_span import EVERY_KEY, KeySpan

if TYPE_CHECKING:  # receivers must not import Spark
    from pydantic import BaseModel
    from pyspark.sql.types import StructType

    from connectors.arrow_rows import ArrowRows
    from connectors.transport import Address


class Kind(StrEnum):
    """What a frame is for: bronze column ``kind``."""

    CONTROL = "control"
    SNAPSHOT = "snapshot"
    DATA = "data"
    MARK = "mark"


class Boundary(StrEnum):
    """A frame's place in its update: bronze column ``boundary``."""

    BEGIN = "begin"
    INSIDE = "inside"
    END = "end"
    WHOLE = "whole"
    NONE = "none"


class TableKind(StrEnum):
    """What a silver table keeps of its stream."""

    STATE = "state"
    """The rows that stand, each once: changes are merged into them."""
    CHANGELOG = "changes"
    """Every change, as a log that is only ever added to."""
    APPEND = "rows"
    """Every row that came, as it came: only ever added to. Such a stream has no snapshots, and says nothing but rows.
    Its decoder gives inserts with an ``ordinal``. Position and ordinal are ``key``, and `ReferenceReader.keys`."""


class Frame(NamedTuple):
    """One message as received, and what the receiver knows of it without decoding the body."""

    body: bytes
    kind: Kind
    boundary: Boundary = Boundary.NONE
    stream: str | None = None
    source_position: str | None = None


def mark(name: str, *, stream: str | None = None, **details: object) -> Frame:
    """Return a frame the receiver writes itself: ``name`` is what happened, details must be JSON values.

    One with ``level="warning"`` is logged as a warning, and shows in status while it is its stream's newest mark.
    """
    said = json.dumps({"mark": name, **details}, sort_keys=True, default=str)
    return Frame(said.encode(), Kind.MARK, Boundary.NONE, stream)


@dataclass(frozen=True)
class Resume:
    """Where an epoch begins.

    Args:
        epoch: Number of this connection, from 1.
        source_positions: Last ``source_position`` landed per stream, and had by each silver table (``silver/<table>``).
        last_control: Body of the last control frame that landed for the feed itself, not for a stream; likewise. None for none.
    """

    epoch: int
    source_positions: Mapping[str, str] = field(default_factory=dict)
    last_control: bytes | None = None


class FrameSink(Protocol):
    """Where a receiver puts frames. Implemented by `pipelines.sink`."""

    def take(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order, without waiting for room: what a receiver holds when it is stopped."""

    async def land(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order. All are taken before the first await: a cancelled caller loses none.

        Waits while too many bytes are uncommitted, which is what slows the socket down.
        """

    async def flush(self) -> int:
        """Commit everything landed so far; return the last frame_seq. Acknowledge at the source after this."""


class Receiver(Protocol):
    """Owns the socket of one feed."""

    async def run(self, sink: FrameSink, resume: Resume) -> str | None:
        """Run one epoch: connect, subscribe, land every frame until the connection ends.

        Returns when it ended in order: None when the source ended it, else why. Raises SourceUnavailable or
        RemoteProtocolError when it broke: the caller waits and begins a new epoch. Others end the run. Safe to cancel.
        """


@dataclass(frozen=True)
class Feed:
    """A configured connection to a source, its settings validated by its connector."""

    name: str
    connector: str
    address: str
    options: BaseModel
    tables: Mapping[str, Table]
    commit: Commit = field(default_factory=Commit)
    reconnect: Reconnect = field(default_factory=Reconnect)


class ControlFrame(NamedTuple):
    """A landed control frame, as a decoder's context needs it."""

    frame_seq: int
    epoch: int
    stream: str | None
    body: bytes


@dataclass(frozen=True)
class Cut:
    """What one MERGE applies to one silver table: whole updates, ending at the end of an update.

    Args:
        stream: The stream that feeds the table (`Connector.stream`).
        epoch: Epoch of the last update.
        after: Position the table had reached before; -1 for none.
        last: Position the table will have reached.
        spans: Inclusive ranges of positions, ascending. Frames of the stream inside them are applied, others not.
        begins, ends: Positions of the first and the last frame of each update, ascending. The first is its identity.
        replaces: The cut begins with a snapshot: rows it does not leave in existence are deleted.
        snapshot_end: Position of that snapshot's end; what the cut holds up to there is one moment. None without a snapshot.
        left_out: Positions of frames inside the spans that are not to be decoded, ascending.
        received: Microseconds since 1970 at which the last frame was received; None where nobody knows.
    """

    stream: str
    epoch: int
    after: int
    last: int
    spans: tuple[tuple[int, int], ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    replaces: bool
    snapshot_end: int | None = None
    left_out: tuple[int, ...] = ()
    received: int | None = field(default=None, compare=False)


class CutStatistics(NamedTuple):
    """Bounded facts about a cut, found by one pass over its frames before anything is written."""

    bad_position: int | None
    """frame_seq of the first frame that cannot be decoded; None when all can."""
    bad_class: str | None
    bad_reason: str | None
    changes: int
    """Values of rows added or modified, and rows removed: how much work the cut is, not an exact row count."""
    bounds: Mapping[str, tuple[int, int]]
    """Smallest and largest value touched of key columns, for file pruning; none of a column where that is unknown."""
    wide_ranges: int
    """Removed key ranges too wide to be listed key by key."""
    counters: Mapping[str, int]
    """Counts worth telling, by name: ``truncated_nanoseconds`` and the like."""


NO_STATISTICS: Final = CutStatistics(None, None, None, 0, {}, 0, {})
"""Stands for the statistics of a cut that needs none: it replaces all, or folding tells as much."""


class Decoder(Protocol):
    """Turns landed frames into change rows, by steps over Arrow batches (`connectors.arrow_rows`)."""

    def context(self, control: Iterable[ControlFrame]) -> Any:
        """Return what later frames need to be read: small, picklable, connector's own. Runs on the driver."""

    def row_type(self, context: Any, cut: Cut, table: Table) -> StructType:
        """Return the source's columns of the table at the end of the cut."""

    def statistics(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> CutStatistics:
        """Look through the cut once. Runs one Spark job at most; writes nothing; never raises on bad bytes."""

    def has_counters(self, context: Any, cut: Cut, table: Table) -> bool:
        """Tell whether the statistics may find notes. If not, a replacing cut is surveyed only once it has failed."""

    def changes(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Return change rows (`transforms.changes`). Bad bytes become rows with ``error``, never exceptions."""

    def versions(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Return change rows whose updates are kept apart, whatever `changes` folds: what a history is made of.

        ``frame_seq`` tells the update; where `changes` folds (`Connector.folds`) it is the update's end, `Cut.ends`, and
        there is at most one change per key and update. Only rows of the snapshot that settles at `Cut.snapshot_end` are
        ``snapshot``.
        """

    def removed_ranges(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Return the wide ranges of the statistics, which neither `changes` nor `versions` list.

        Columns: ``first_key``, ``last_key``, ``frame_seq``, and ``moment``: where the update ends.
        """

    def tombstone_horizon(self, context: Any, cut: Cut, table: Table) -> str | None:
        """Of a `Connector.source_ordered` source: tell of which deletes nothing older can come after the cut's beginning.

        A condition in SQL on ``t._position`` (`transforms.tombstones.write_tombstones`); None when the source vouches for nothing.
        """


class ReferenceChange(NamedTuple):
    """One change in plain Python: what `silverfold verify` folds, row by row."""

    op: Literal["insert", "update", "delete"]
    position: int
    """frame_seq of the last frame that took part in it; 0 where nothing landed."""
    key: tuple[Any, ...]
    """Values of `ReferenceReader.keys`."""
    row: Mapping[str, Any] = MappingProxyType({})
    """The columns that were sent, each value as Arrow gives silver's to Python; nothing for a delete."""
    last_key: tuple[Any, ...] | None = None
    """Of a deleted range the last key, whose first is ``key``, both inclusive; None where one row is meant."""
    old_key: tuple[Any, ...] | None = None
    """Of an update the key from which it takes the row to ``key``; None where the row stays."""
    sequence: str | None = None
    """Of a `Connector.source_ordered` source: where the change belongs in the source's own order."""


class ReferenceUpdate(NamedTuple):
    """One whole update of a source, in order of effect."""

    snapshot: bool
    """Its rows are all there are: what stood before is gone."""
    changes: Sequence[ReferenceChange]


class ReferenceReader(Protocol):
    """Reads one stream's landed frames in landing order, in plain Python: no Spark, nothing of what a build runs.

    Only the wire codec may be shared with the connector's `Decoder`: each is there to find the other's mistakes.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns by which the source names a row; where it tells them, none before a control frame."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns, as the last control frame of the stream tells; none before it."""

    def control(self, frame: ControlFrame) -> None:
        """Take a control frame, of this or any stream."""

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of one whole update, in order of effect.

        Args:
            frames: Position and body of each of its frames, the first and the last included.
            within: Others may come too. A change that cannot be read is an error, whatever its key.

        Raises:
            WireError, ProtocolError: A frame cannot be read; maybe only as the changes are iterated over.
        """


class SourceSubscription(Protocol):
    """A subscription of its own to one table of the source, beside the receiver's: a snapshot, then updates."""

    @property
    def keys(self) -> tuple[str, ...]:
        """As `ReferenceReader.keys`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns; none before the first update."""

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the whole updates that have come since the last call, in order; wait for the first, at most so long.

        Raises:
            SourceRefused, SourceUnavailable, ProtocolError: There will be no more.
        """


class Problem(NamedTuple):
    """A setting that is wrong though the models allow it."""

    key: str
    """Dotted, from the top of the feed's file."""
    found: object
    allowed: str


class SourceChange(NamedTuple):
    """What became of a source's schema since a control frame of it landed."""

    summary: str
    """In one line, such as from which version to which."""
    changes: Sequence[str]
    """Each in one line."""
    breaks: bool
    """What landed before would be misread."""


class Connector(Protocol):
    """One per folder, one line in the registry."""

    @property
    def name(self) -> str:
        """What a feed's ``connector`` setting says."""

    @property
    def Options(self) -> type[BaseModel]:  # noqa: N802 - it is a class
        """Model of a feed's ``options``."""

    @property
    def TableOptions(self) -> type[Table]:  # noqa: N802 - it is a class
        """Model of a feed's tables."""

    @property
    def continuity(self) -> Literal["resync", "resume"]:
        """After a lost connection: needs a snapshot, or resumes by position."""

    @property
    def folds(self) -> bool:
        """`Decoder.changes` yields at most one change per key: it has folded already. `Decoder.versions` has not."""

    @property
    def has_partial_updates(self) -> bool:
        """Updates may carry some of a row's columns only."""

    @property
    def source_ordered(self) -> bool:
        """The order of changes is their ``sequence``, not the order in which they landed.

        A partial update completes a later one only inside one cut. A table with snapshots keeps no history.
        """

    def has_snapshots(self, table: Table) -> bool:
        """Tell whether the table's stream ever carries snapshots. One without applies on across epochs."""

    def table_kind(self, table: Table) -> TableKind:
        """Return what silver keeps of the table's stream."""

    def stream(self, feed: Feed, table: str) -> str:
        """Return the stream that feeds a silver table, as frames name it. Several tables may have one."""

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return what else says which rows a table has, by name: built under another value, it is to be rebuilt."""

    def problems(self, feed: Feed) -> Iterable[Problem]:
        """Yield what is wrong with settings that are valid one by one: the address, what spans tables."""

    def schema_change(self, feed: Feed, last_control: bytes) -> SourceChange | None:
        """Return how the settings' schema differs from the one that landed (`Resume.last_control`); None if it does not."""

    def listens_at(self, feed: Feed) -> Address | None:
        """Return where a feed's receiver listens, at which no other one can; None if it connects instead."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Subscribe to a table whose stream has snapshots, as its settings say, until the block ends.

        Raises:
            SourceUnavailable: The source cannot be reached.
        """
