"""Connector contract: what the engine asks of a connector.

A `Receiver` turns one connection (an epoch) into `Frame`s and hands them to a `FrameSink` (`connectors.frames`). A
`Decoder` turns the landed frames of one `Cut` into change rows (`transforms.changes`). Silver is verified against a
`ReferenceReader`, an independent reader of the same frames, and a `SourceSubscription` or `SourceReplay`, which query
the source itself. `connectors.registry` finds a `Connector` by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, Self

from pydantic import BaseModel
from typing_extensions import TypeVar

from silverfold.conf.errors import SourceRefused
from silverfold.conf.model import Commit, Reconnect, Table
from silverfold.connectors.frames import ControlFrame, Receiver

if TYPE_CHECKING:  # receivers must not import Spark
    from pyspark.sql.types import StructType

    from silverfold.connectors.common.arrow_rows import ArrowRows
    from silverfold.connectors.common.transport import Address
    from silverfold.connectors.verification import ReferenceReader, SourceReplay, SourceSubscription

# The engine writes `Feed`, `Connector` and `Decoder` alone: any connector, with any of its feeds.
Options_co = TypeVar("Options_co", bound=BaseModel, default=BaseModel, covariant=True)
Table_co = TypeVar("Table_co", bound=Table, default=Table, covariant=True)
OptionsT = TypeVar("OptionsT", bound=BaseModel, default=Any)
TableT = TypeVar("TableT", bound=Table, default=Any)


class TableKind(StrEnum):
    """How a silver table represents its stream."""

    STATE = "state"
    """Current rows, each once: changes are merged into them."""
    CHANGELOG = "changes"
    """Every change, as an append-only log."""
    APPEND = "rows"
    """Every received row, append-only. Such a stream has no snapshots and carries only rows. Its decoder yields inserts
    with an ``ordinal``. Position and ordinal form the ``key``, and `ReferenceReader.keys`."""


@dataclass(frozen=True)
class Feed(Generic[Options_co, Table_co]):
    """A configured connection to a source.

    Its connector's models have validated ``options`` and ``tables``, which gives them their types
    (`connectors.registry.open_feed`).

    Args:
        catalog: Schema in which the tables are registered, as `conf.names.schema_parts` reads it; empty for none.
    """

    name: str
    connector: str
    address: str
    options: Options_co
    tables: Mapping[str, Table_co]
    commit: Commit = field(default_factory=Commit)
    reconnect: Reconnect = field(default_factory=Reconnect)
    catalog: str = ""

    def apart(self, table: str) -> Self:
        """Return the feed with one table alone and without a catalog, to build it once more in a folder apart."""
        return replace(self, tables={table: self.tables[table]}, catalog="")


@dataclass(frozen=True)
class Cut:
    """Input of one MERGE into one silver table: complete updates, ending at the end of an update.

    Args:
        stream: Stream that feeds the table (`Connector.stream`).
        epoch: Epoch of the last update.
        after: Position the table had reached before; -1 for none.
        last: Position the table will have reached.
        spans: Inclusive ranges of positions, ascending. Only frames of the stream inside them are applied.
        begins, ends: Positions of the first and the last frame of each update, ascending. The first identifies it.
        replaces: The cut begins with a snapshot: rows that do not exist at its end are deleted.
        snapshot_end: Position of that snapshot's end; all changes up to it belong to one moment. None without a
            snapshot.
        left_out: Positions of frames inside the spans that are not to be decoded, ascending.
        received: Receive time of the last frame, in microseconds since 1970; None if unknown.
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


MOST_BAD: Final = 1_000
"""Frames of a cut that cannot be decoded, as far as they are named at once."""


class Undecodable(NamedTuple):
    """A landed frame that cannot be decoded."""

    position: int
    """Its frame_seq."""
    error_class: str
    reason: str


class CutStatistics(NamedTuple):
    """Bounded facts about a cut, found before anything is written."""

    bad: Sequence[Undecodable]
    """The first `MOST_BAD` frames that cannot be decoded, by position; empty when all can."""
    changes: int
    """Values of rows added or modified, plus rows removed: a measure of work, not an exact row count."""
    bounds: Mapping[str, tuple[int, int]]
    """Smallest and largest value touched per key column, for file pruning; a column with unknown bounds is absent."""
    wide_ranges: int
    """Removed key ranges that are too wide to be listed key by key."""
    counters: Mapping[str, int]
    """Counts worth reporting, by name: ``truncated_nanoseconds`` and the like."""


NO_STATISTICS: Final = CutStatistics((), 0, {}, 0, {})
"""Statistics of a cut that needs none: it replaces all rows, or folding finds the same."""


class Decoder(ABC, Generic[TableT]):
    """Turns landed frames into change rows, in steps over Arrow batches (`connectors.common.arrow_rows`).

    The defaults suit a decoder that does not fold, removes rows one by one, and counts nothing.
    """

    announces_columns: ClassVar[bool] = True
    """Whether control frames may bring columns: the context then tells what `row_type` will be."""

    @abstractmethod
    def context(self, control: Iterable[ControlFrame]) -> Any:
        """Return the state needed to read later frames: small, picklable, private to the connector.

        Runs on the driver.
        """

    @abstractmethod
    def row_type(self, context: Any, cut: Cut, table: TableT) -> StructType:
        """Return the table's source columns at the end of the cut."""

    @abstractmethod
    def statistics(self, frames: ArrowRows, context: Any, cut: Cut, table: TableT) -> CutStatistics:
        """Scan the cut once. Runs one Spark job at most; writes nothing; never raises on bad bytes."""

    @abstractmethod
    def changes(self, frames: ArrowRows, context: Any, cut: Cut, table: TableT) -> ArrowRows:
        """Return change rows (`transforms.changes`). Bad bytes become rows with ``error``, never exceptions."""

    def has_counters(self, context: Any, cut: Cut, table: TableT) -> bool:
        """Return whether the statistics may have counters; if not, a replacing cut has them only after it failed."""
        return False

    def versions(self, frames: ArrowRows, context: Any, cut: Cut, table: TableT) -> ArrowRows:
        """Return change rows with separate updates, whether or not `changes` folds them: the input of a history.

        ``frame_seq`` identifies the update. Where `changes` folds (`Connector.folds`) it is the update's end,
        `Cut.ends`, and there is at most one change per key and update. Only rows of the snapshot that ends at
        `Cut.snapshot_end` have ``snapshot`` set.
        """
        return self.changes(frames, context, cut, table)

    def removed_ranges(self, frames: ArrowRows, context: Any, cut: Cut, table: TableT) -> ArrowRows:
        """Return the wide ranges counted by the statistics; neither `changes` nor `versions` lists their keys.

        Columns: ``first_key``, ``last_key``, ``frame_seq``, and ``moment``, the end of the update.
        """
        raise AssertionError("no range of rows is removed")

    def tombstone_horizon(self, context: Any, cut: Cut, table: TableT) -> str | None:
        """Return which tombstones can be dropped: from the cut's beginning on, no change older than them can arrive.

        Only for a `Connector.source_ordered` source. A SQL condition on ``t._position``
        (`transforms.tombstones.write_tombstones`); None when the source guarantees nothing.
        """
        return None


class Problem(NamedTuple):
    """A wrong setting that the models allow."""

    key: str
    """Dotted path, from the top of the feed's file."""
    found: object
    allowed: str


def address_problems(feed: Feed, parse: Callable[[str], object]) -> Iterator[Problem]:
    """Yield a Problem if ``parse`` raises ValueError for the feed's address, with its message."""
    try:
        parse(feed.address)
    except ValueError as error:
        yield Problem("address", feed.address, str(error))


class SourceChange(NamedTuple):
    """Difference between a source's schema and the one of a landed control frame."""

    summary: str
    """One line, such as from which version to which."""
    changes: Sequence[str]
    """One line each."""
    breaks: bool
    """Frames that landed before would be misread."""


class Connector(ABC, Generic[OptionsT, TableT]):
    """Entry point of a connector: one per folder, one line in the registry.

    A subclass states what is its own; all else has a neutral or refusing default.
    """

    name: str
    """Value of a feed's ``connector`` setting."""
    Options: type[OptionsT]
    """Model of a feed's ``options``."""
    TableOptions: type[TableT]
    """Model of a feed's tables."""
    simulator_summary: str
    """First sentence of the help of `simulator`, for lists: they load no server."""
    continuity: Literal["resync", "resume"]
    """Whether the feed needs a snapshot after a lost connection, or resumes by position."""
    folds: bool = False
    """`Decoder.changes` yields at most one change per key, already folded. `Decoder.versions` does not fold."""
    has_partial_updates: bool = True
    """Updates may carry only some of a row's columns."""
    source_ordered: bool = False
    """Changes are ordered by their ``sequence``, not by the order in which they landed.

    A partial update completes a later one only within one cut. A table with snapshots cannot have a history.
    """
    control_adds_up: bool = False
    """Control frames add to earlier ones of their stream, or of the feed; otherwise the newest one holds alone."""
    row_number: tuple[str, ...] = ()
    """Key columns that number the rows of a source without keys. Another subscription may number them otherwise."""
    packages: tuple[str, ...] = ()
    """Modules of the connector's extra in ``pyproject.toml``. Its settings load none of them."""

    def has_snapshots(self, table: TableT) -> bool:
        """Return whether the table's stream ever carries snapshots. Without any, changes apply across epochs."""
        return False

    def table_kind(self, table: TableT) -> TableKind:
        """Return how silver represents the table's stream."""
        return TableKind.STATE

    @abstractmethod
    def stream(self, feed: Feed[OptionsT, TableT], table: str) -> str:
        """Return the stream that feeds a silver table, as named in frames. Several tables may share one."""

    def row_settings(self, feed: Feed[OptionsT, TableT], table: str) -> Mapping[str, str | list[str]]:
        """Return the settings, by name, that determine a table's rows; a changed value requires a rebuild."""
        return feed.tables[table].row_settings

    def reserved_names(self, table: TableT) -> frozenset[str]:
        """Return the case-folded names of columns that are silverfold's own or Delta's in the table or beside it.

        The source's columns must not have them.
        """
        of_side_table = {"_reasons"} if self.source_ordered else set[str]()
        of_rows = {"_ordinal"} if self.table_kind(table) is TableKind.APPEND else set[str]()
        return table.reserved_names | of_side_table | of_rows

    def problems(self, feed: Feed[OptionsT, TableT]) -> Iterable[Problem]:
        """Yield mistakes in settings that are valid one by one, such as the address or conflicts between tables."""
        return ()

    def column_comments(self, feed: Feed[OptionsT, TableT], table: str) -> Mapping[str, str]:
        """Return what the source's schema says of the table's columns, by name; only those that it describes."""
        return {}

    def schema_change(self, feed: Feed[OptionsT, TableT], last_control: bytes) -> SourceChange | None:
        """Return how the settings' schema differs from the landed one (`Resume.last_control`).

        None if it does not, or if the settings have no schema.
        """
        return None

    def listens_at(self, feed: Feed[OptionsT, TableT]) -> Address | None:
        """Return the address a feed's receiver listens on, exclusively; None if it connects instead."""
        return None

    def exclusive(self, feed: Feed[OptionsT, TableT]) -> tuple[str, Iterable[str]]:
        """Return a setting's key, and what only one feed may have by it, such as a subscription at each address."""
        return "", ()

    def resume_position(self, landed: Sequence[str]) -> str:
        """Return what a receiver resumes by, of the ``source_position``s of a stream in the order of landing."""
        return landed[-1]

    def source_places(
        self, control: Sequence[ControlFrame], landed: Iterable[tuple[int, str]]
    ) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Yield of each frame its position, the part of the source that it is of, and its place there.

        Only for a `source_ordered` source. Frames that are known to have come again are left out.

        Args:
            control: The feed's control frames, in order.
            landed: Position and ``source_position`` of frames of one stream, in order.
        """
        raise NotImplementedError(f"{self.name} orders by landing")

    @abstractmethod
    def receiver(self, feed: Feed[OptionsT, TableT]) -> Receiver:
        """Return a receiver for the feed. Opens nothing."""

    @abstractmethod
    def decoder(self, feed: Feed[OptionsT, TableT]) -> Decoder[TableT]:
        """Return the feed's decoder."""

    @abstractmethod
    def reference(self, feed: Feed[OptionsT, TableT], table: str) -> ReferenceReader:
        """Return a reader for the landed frames of one table's stream."""

    def subscribe(self, feed: Feed[OptionsT, TableT], table: str) -> AbstractContextManager[SourceSubscription]:
        """Subscribe to a table whose stream has snapshots, as configured, until the block ends.

        Raises:
            SourceRefused: The stream carries changes, never the current rows.
            SourceUnavailable: The source cannot be reached.
        """
        raise SourceRefused(code="no-snapshot", text=f"{self.name} has no snapshots to compare with")

    def replay(self, feed: Feed[OptionsT, TableT], table: str) -> AbstractContextManager[SourceReplay] | None:
        """Return a replay of the stream of a table without snapshots, open in its block; None if nothing is kept.

        Entering the block raises SourceRefused if the source cannot know what silver must have, or SourceUnavailable.
        """
        return None

    @abstractmethod
    def simulator(self) -> Callable[..., None]:
        """Return the function behind ``silverfold simulate <name>``; its parameters are the options, as in typer."""
