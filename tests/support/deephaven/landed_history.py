"""Writes the history of a Deephaven feed into bronze frame by frame, as a receiver lands it, without a socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silverfold.conf.model import Commit
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column, encode_removed
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import TYPES, ColumnType
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place

BUFFER = 65_536

_COMMIT_BYTES = Commit().max_bytes


def ranges_of(keys: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return ascending keys as inclusive ranges."""
    found: list[list[int]] = []
    for key in keys:
        if found and found[-1][1] == key - 1:
            found[-1][1] = key
        else:
            found.append([key, key])
    return np.array(found, np.int64).reshape(-1, 2)


@dataclass
class LandedHistory:
    """A history that grows call by call: each call appends frames, and `land` commits the frames appended since.

    Args:
        columns: Name → Deephaven type, for each stream. Subscription ids are 1, 2, … in this order.
        streams: Landed names of streams, where they differ from the names used here.
    """

    columns: Mapping[str, Mapping[str, str]]
    limit: int = BUFFER
    roles: Roles = field(default_factory=load_roles)
    epoch: int = 0
    frames: list[tuple[int, Frame]] = field(default_factory=list)
    streams: dict[str, str] = field(default_factory=dict)

    def connect(self, *, streams: Sequence[str] | None = None) -> None:
        """Begin an epoch: mark "opened", connection response, subscribe responses."""
        self.epoch += 1
        self._add(mark("opened", epoch=self.epoch))
        self._add(Frame(control.encode_connection_response(self.roles, self.limit), Kind.CONTROL))
        for stream in streams if streams is not None else self.columns:
            self.respond(stream)

    def respond(self, stream: str) -> None:
        """Answer a subscription."""
        body = control.encode_subscribe_response(self.roles, self._id(stream), self._infos(stream))
        self._add(Frame(body, Kind.CONTROL, Boundary.NONE, stream))

    def begin(self, stream: str, kind: Kind = Kind.DATA) -> None:
        """Open an update."""
        self._add(Frame(control.encode_begin(self.roles, self._id(stream)), kind, Boundary.BEGIN, stream))

    def end(self, stream: str, kind: Kind = Kind.DATA) -> None:
        """Close the update."""
        self._add(Frame(control.encode_end(self.roles, self._id(stream)), kind, Boundary.END, stream))

    def rows(
        self,
        stream: str,
        rows: Mapping[int, Mapping[str, Any]],
        *,
        modified: bool,
        kind: Kind = Kind.DATA,
    ) -> None:
        """Send rows by key: for each column that any row has, one or more messages with the rows that have it."""
        for column_id, name in enumerate(self.columns[stream]):
            keys = sorted(key for key, row in rows.items() if name in row)
            if keys:
                self.column(stream, column_id, keys, [rows[k][name] for k in keys], modified=modified, kind=kind)

    def column(
        self,
        stream: str,
        column_id: int,
        keys: Sequence[int],
        values: Any,
        *,
        modified: bool,
        kind: Kind = Kind.DATA,
    ) -> None:
        """Send one column's values."""
        bodies = encode_column(
            self.roles,
            TYPES[list(self.columns[stream].values())[column_id]],
            values,
            subscription_id=self._id(stream),
            column_id=column_id,
            modified=modified,
            ranges=ranges_of(keys),
            limit=self.limit,
        )
        for body in bodies:
            self.inside(stream, body, kind)

    def removed(self, stream: str, ranges: Sequence[tuple[int, int]], kind: Kind = Kind.DATA) -> None:
        """Send removed ranges, both ends inclusive."""
        array = np.array(ranges, np.int64).reshape(-1, 2)
        for body in encode_removed(self.roles, subscription_id=self._id(stream), ranges=array, limit=self.limit):
            self.inside(stream, body, kind)

    def inside(self, stream: str, body: bytes, kind: Kind = Kind.DATA) -> None:
        """Land any body inside an update."""
        self._add(Frame(body, kind, Boundary.INSIDE, stream))

    def snapshot(self, stream: str, rows: Mapping[int, Mapping[str, Any]]) -> None:
        """Send a complete snapshot."""
        self.begin(stream, Kind.SNAPSHOT)
        self.rows(stream, rows, modified=False, kind=Kind.SNAPSHOT)
        self.end(stream, Kind.SNAPSHOT)

    def update(
        self,
        stream: str,
        *,
        removed: Sequence[int] = (),
        added: Mapping[int, Mapping[str, Any]] | None = None,
        modified: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        """Send a complete update."""
        self.begin(stream)
        if removed:
            self.removed(stream, [(first, last) for first, last in ranges_of(sorted(removed)).tolist()])
        self.rows(stream, added or {}, modified=False)
        self.rows(stream, modified or {}, modified=True)
        self.end(stream)

    def close(self, reason: str = "connection lost") -> None:
        """End the epoch."""
        self._add(mark("closed", epoch=self.epoch, reason=reason))

    def land(self, place: Place, feed: str, *, received_at: int = 1_700_000_000_000_000) -> int:
        """Commit the frames appended since the last call, in commits of a receiver's size; return the last position."""
        writer = BronzeWriter.open(place, feed, token="history")
        batch = Batch(writer.last + 1)
        for epoch, frame in self.frames:
            stream = self.streams.get(frame.stream or "", frame.stream)
            batch.add([frame._replace(stream=stream)], epoch, received_at)
            if batch.size >= _COMMIT_BYTES:
                writer.append(batch.prepare().table)
                batch = Batch(writer.last + 1)
        if len(batch):
            writer.append(batch.prepare().table)
        self.frames.clear()
        return writer.last

    def _add(self, frame: Frame) -> None:
        self.frames.append((self.epoch, frame))

    def _id(self, stream: str) -> int:
        return list(self.columns).index(stream) + 1

    def _infos(self, stream: str) -> list[tuple[int, str, ColumnType]]:
        columns = self.columns[stream].items()
        return [(column_id, name, TYPES[type_name]) for column_id, (name, type_name) in enumerate(columns)]
