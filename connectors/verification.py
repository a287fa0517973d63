"""What silver is verified by: a second reader of landed frames, and the source itself, by subscription or replay."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame

SourceRecord: TypeAlias = tuple[Any, ...]
"""Identity of a record at its source."""


class ReferenceChange(NamedTuple):
    """One change as Python values: the input of the row-by-row fold in `silverfold verify`."""

    op: Literal["insert", "update", "delete"]
    position: int
    """frame_seq of the last frame that contributed to it; 0 if nothing landed."""
    key: tuple[Any, ...]
    """Values of `ReferenceReader.keys`."""
    row: Mapping[str, Any] = MappingProxyType({})
    """The columns that were sent, with values as Arrow converts silver's to Python; empty for a delete."""
    last_key: tuple[Any, ...] | None = None
    """Last key of a deleted range whose first key is ``key``, both inclusive; None for a single row."""
    old_key: tuple[Any, ...] | None = None
    """Previous key of an updated row that moves to ``key``; None if the row does not move."""
    sequence: str | None = None
    """Place of the change in the source's own order; only for a `Connector.source_ordered` source."""


class ReferenceUpdate(NamedTuple):
    """One complete update of a source, in order of effect."""

    snapshot: bool
    """Its rows are the complete table: earlier rows are gone."""
    changes: Sequence[ReferenceChange]


class ReferenceReader(Protocol):
    """Reads the landed frames of one stream in landing order, without Spark and without code that a build runs.

    It shares with the connector's `Decoder` only the wire codec, and what settings mean: each exists to find the
    other's mistakes.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns. Empty before the first control frame if the source reports them there."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns, as reported by the stream's last control frame; empty before it."""

    def control(self, frame: ControlFrame) -> None:
        """Take a control frame of this or any other stream."""

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of one complete update, in order of effect.

        Args:
            frames: Position and body of each of its frames, the first and the last included.
            within: Keys of interest; changes of other keys may be returned too. A change that cannot be read is an
                error, whatever its key.

        Raises:
            WireError, ProtocolError: A frame cannot be read; possibly raised only during iteration.
        """


class SourceSubscription(Protocol):
    """A separate subscription to one table of the source, independent of the receiver's: a snapshot, then updates."""

    @property
    def keys(self) -> tuple[str, ...]:
        """See `ReferenceReader.keys`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns; empty before the first update."""

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the complete updates received since the last call, in order; wait at most ``seconds`` for the first.

        Raises:
            SourceRefused, SourceUnavailable, ProtocolError: No more updates will follow.
        """


class SourceReplay(Protocol):
    """Reads again what a source without snapshots still holds of a table's stream, independently of the receiver."""

    @property
    def keys(self) -> tuple[str, ...]:
        """See `ReferenceReader.keys`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns."""

    def control(self, frame: ControlFrame) -> None:
        """Take a control frame that landed for the feed, in order."""

    def landed(self, position: int, body: bytes) -> Iterable[SourceRecord]:
        """Return the records of a landed frame, but for those that are known to have landed before it."""

    def records(self, wanted: Container[SourceRecord]) -> Iterator[tuple[SourceRecord, Sequence[ReferenceChange]]]:
        """Yield each record that the source holds, in the source's own order; changes only of the wanted ones.

        Raises:
            SourceRefused, SourceUnavailable, ProtocolError: The source cannot be read.
            WireError: A wanted record cannot be read.
        """

    def was_acknowledged(self, record: SourceRecord) -> bool:
        """Return whether, by the control frames taken, the source had been told that the record is in bronze."""

    def is_expired(self, record: SourceRecord) -> bool:
        """Return whether a record is older than all that the source holds of its kind; after `records`."""
