"""Lands the steps of a story in bronze as the source's receiver would; returns the end of each update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import types as T

from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.deephaven.connector import CONNECTOR as DEEPHAVEN
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import Boundary
from silverfold.pipelines.places import Places
from tests.matrix.lanes import FAR, KEYS
from tests.matrix.layout import Layout
from tests.matrix.steps import Change, Connect, Snapshot, Update
from tests.matrix.values import DOMAINS
from tests.support import change_model, stub_connector
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.stub_connector import StubConnector, StubFeed, StubHistory, StubOptions, StubTable

TABLE, OTHER = "t", "u"
"""The table of the story, and one that is built while the first is out of the feed."""

_SPARK = {
    "long": T.LongType(),
    "int": T.IntegerType(),
    "text": T.StringType(),
    "boolean": T.BooleanType(),
    "double": T.DoubleType(),
    "decimal": T.DecimalType(38, 10),
    "date": T.DateType(),
    "time": T.TimestampType(),
    "binary": T.BinaryType(),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GARBAGE = b"{"


class Landing(ABC):
    """The growing bronze of a feed."""

    feed_name: str

    def __init__(self, layout: Layout, places: Places) -> None:
        self.layout, self.places = layout, places
        self.misread: set[int] = set()
        """Positions of valid frames that the decoder cannot read until it is fixed."""
        self.bad: set[int] = set()
        """Positions of invalid frames."""

    @abstractmethod
    def connect(self, step: Connect) -> None: ...

    @abstractmethod
    def columns(self) -> None:
        """Change the table's columns."""

    @abstractmethod
    def update(self, update: Update) -> int:
        """Land an update; return its end position."""

    @abstractmethod
    def snapshot(self, snapshot: Snapshot) -> int:
        """Land a snapshot; return its end position."""

    @abstractmethod
    def other(self) -> None:
        """Land a snapshot and an update of the other table."""

    @abstractmethod
    def land(self) -> None:
        """Commit the frames sent."""

    @abstractmethod
    def connector(self, *, misreads: bool) -> Connector: ...

    @abstractmethod
    def feed(self, tables: Iterable[str], settings: Mapping[str, Any]) -> Feed:
        """Return the feed with these tables; the settings apply to the story's table."""


class StubLanding(Landing):
    """Landing of the stub connector."""

    feed_name = stub_connector.FEED

    def __init__(self, layout: Layout, places: Places) -> None:
        super().__init__(layout, places)
        self._feed = StubFeed(places)
        self._table = StubHistory(places, feed=self._feed, stream=TABLE)
        self._other = StubHistory(places, feed=self._feed, stream=OTHER)

    def connect(self, step: Connect) -> None:
        if step.torn:
            self._table.torn(self._model_changes(step.torn))
        self._feed.connect()
        self._table.columns(self._row(step.columns))

    def columns(self) -> None:
        self._table.columns(self._row(1))

    def update(self, update: Update) -> int:
        last, end = len(update.frames) - 1, -1
        for at, frame in enumerate(update.frames):
            inner = Boundary.BEGIN if at == 0 else Boundary.END if at == last else Boundary.INSIDE
            sequences = [None if change.sequence is None else f"{change.sequence:06}" for change in frame]
            unreadable = at == update.bad and update.ends != "fix"
            body = _GARBAGE if unreadable else stub_connector.body_of(self._model_changes(frame), sequences)
            end = self._table.inside(body, inner if last else Boundary.WHOLE)
            if at == update.bad:
                (self.bad if unreadable else self.misread).add(end)
        return end

    def snapshot(self, snapshot: Snapshot) -> int:
        rows = [change_model.Change(0, "snapshot", key, self._sent(key, row)) for key, row in snapshot.rows.items()]
        self._table.begin_snapshot()
        self._table.snapshot_rows(rows[: len(rows) // 2])
        for update in snapshot.overlay:
            self.update(update)
        self._table.snapshot_rows(rows[len(rows) // 2 :])
        return self._table.end_snapshot()

    def other(self) -> None:
        self._other.columns(self._row(0))
        self._other.begin_snapshot()
        self._other.end_snapshot()
        self._other.update([])

    def land(self) -> None:
        self._feed.land()

    def connector(self, *, misreads: bool) -> Connector:
        kind = self.layout.settings.kind
        return StubConnector(
            continuity="resync" if kind == "keyed" else "resume",
            snapshots=kind == "keyed",
            has_partial_updates=self.layout.settings.sends == "partial",
            source_ordered=kind == "sequenced",
            row=self._row(0),
            key=_struct(self.layout.keys),
            misread=frozenset(self.misread if misreads else ()),
        )

    def feed(self, tables: Iterable[str], settings: Mapping[str, Any]) -> Feed:
        own = StubTable(source="T", **settings)
        every = {TABLE: own, OTHER: StubTable(source="U")}
        return Feed(self.feed_name, self.feed_name, "unused", StubOptions(), {name: every[name] for name in tables})

    def _row(self, version: int) -> T.StructType:
        return _struct(self.layout.columns(version))

    def _model_changes(self, changes: Iterable[Change]) -> list[change_model.Change]:
        return [change_model.Change(0, change.op, change.key, self._of(change), change.old_key) for change in changes]

    def _of(self, change: Change) -> Mapping[str, Any]:
        """Return the cells that a change carries, at random with or without the key columns, as sources do."""
        if change.op == "delete":
            return {}
        without = change.op == "update" and self.layout.settings.sends == "partial" and len(change.sent) % 2
        return change.sent if without and change.old_key is None else self._sent(change.key, change.sent)

    def _sent(self, key: Sequence[Any], cells: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**dict(zip(self.layout.keys, key, strict=True)), **cells}


class DeephavenLanding(Landing):
    """Landing of the Deephaven connector."""

    feed_name = "market"

    def __init__(self, layout: Layout, places: Places) -> None:
        super().__init__(layout, places)
        upserts = self.layout.settings.kind == "positional-upsert"
        streams = {TABLE: f"{TABLE}/{TABLE}"} if upserts else {}
        self._history = LandedHistory({TABLE: self._columns(0), OTHER: {"A": "Long"}}, streams=streams)
        self._landed = 0

    def connect(self, step: Connect) -> None:
        if step.torn:
            self._begin(step.torn)
        self._history.columns = {**self._history.columns, TABLE: self._columns(step.columns)}
        self._history.connect()

    def columns(self) -> None:
        """Change the table's columns, as announced in the next subscribe response."""
        self._history.columns = {**self._history.columns, TABLE: self._columns(1)}
        self._history.connect()

    def update(self, update: Update) -> int:
        (changes, *others) = update.frames
        self._begin(changes)
        for _ in others:
            self.bad.add(self._landed + len(self._history.frames))
            self._history.inside(TABLE, _GARBAGE)
        self._history.end(TABLE)
        return self._last()

    def snapshot(self, snapshot: Snapshot) -> int:
        self._history.snapshot(TABLE, {key[0]: self._cells(row) for key, row in snapshot.rows.items()})
        return self._last()

    def other(self) -> None:
        self._history.snapshot(OTHER, {1: {"A": 1}})
        self._history.update(OTHER, modified={1: {"A": 2}})

    def land(self) -> None:
        self._landed = self._history.land(self.places.bronze(self.feed_name), self.feed_name) + 1

    def connector(self, *, misreads: bool) -> Connector:
        return DEEPHAVEN

    def feed(self, tables: Iterable[str], settings: Mapping[str, Any]) -> Feed:
        upserts: dict[str, Any] = (
            {"mode": "updates_only", "apply": "upsert"} if self.layout.settings.kind == "positional-upsert" else {}
        )
        keys = tuple(self.layout.keys)
        decimals = {name: 10 for name, kind in self.layout.columns(1).items() if kind == "decimal"}
        own = DeephavenTable(source=TABLE, keys=keys, decimals=decimals, **upserts, **settings)
        every = {TABLE: own, OTHER: DeephavenTable(source="U")}
        return Feed(self.feed_name, "deephaven", "unused", DeephavenOptions(), {name: every[name] for name in tables})

    def _begin(self, changes: Iterable[Change]) -> None:
        """Send an update without its end: removed, added and modified rows."""
        found: dict[str, dict[int, Mapping[str, Any]]] = {"delete": {}, "insert": {}, "update": {}}
        for change in changes:
            found[change.op][change.key[0]] = self._cells(change.sent)
        self._history.begin(TABLE)
        if found["delete"]:
            self._history.removed(TABLE, _ranges(sorted(found["delete"])))
        self._history.rows(TABLE, found["insert"], modified=False)
        self._history.rows(TABLE, found["update"], modified=True)

    def _cells(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _native(value) for name, value in cells.items()}

    def _columns(self, version: int) -> dict[str, str]:
        kinds = self.layout.columns(version).items()
        return {name: str(DOMAINS[kind].deephaven) for name, kind in kinds}

    def _last(self) -> int:
        return self._landed + len(self._history.frames) - 1


def landing(layout: Layout, places: Places) -> Landing:
    """Return the landing for a story with this layout."""
    return (DeephavenLanding if layout.settings.deephaven else StubLanding)(layout, places)


def _ranges(keys: Sequence[int]) -> list[tuple[int, int]]:
    """Return keys as ranges; all keys of the first lane become a single range, wider than any list of keys."""
    far = [key for key in keys if key >= FAR]
    near = [(key, key) for key in keys if key < FAR]
    return [*near, (10**9, FAR + KEYS)] if len(far) == KEYS else [*near, *((key, key) for key in far)]


def _native(value: Any) -> Any:
    return (value - _EPOCH) // timedelta(microseconds=1) * 1000 if isinstance(value, datetime) else value


def _struct(kinds: Mapping[str, str]) -> T.StructType:
    return T.StructType([T.StructField(name, _SPARK[kind]) for name, kind in kinds.items()])
