"""Reads the landed frames of one cut: the step between bronze rows and columns of values.

Pure: runs inside Spark's Python workers, but without Spark. Invalid bytes never raise here. They come out as
`Undecodable`, alongside whatever could be read of the other frames.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, ProtocolError, UnknownTemplate, WireError, of_decoder
from silverfold.connectors.base import Undecodable
from silverfold.connectors.deephaven.decoder.blocks import (
    ADDED,
    MODIFIED,
    NARROW,
    REMOVAL_COLUMN,
    REMOVED,
    Change,
    Longs,
    WideRange,
)
from silverfold.connectors.deephaven.decoder.silver_types import SilverColumn
from silverfold.connectors.deephaven.protocol.binding import Roles
from silverfold.connectors.deephaven.protocol.columns.decode import check_column, decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.control import decode_subscribe_response
from silverfold.connectors.deephaven.protocol.handshake import roles_of_epoch
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.frames import ControlFrame

_MAX_LISTED = 1 << 20
"""Limit of removed keys listed per frame: each sixteen bytes could name thousands."""


@dataclass(frozen=True)
class Subscription:
    """The content of a subscribe response, and the position where it landed."""

    stream: str | None
    position: int
    columns: tuple[ColumnInfo, ...]

    @cached_property
    def by_id(self) -> Mapping[int, ColumnInfo]:
        """Columns by column id."""
        return {info.column_id: info for info in self.columns}


@dataclass(frozen=True)
class Context:
    """The parsed control frames of some epochs."""

    roles: Mapping[int, Roles]
    """By epoch: the schema in the byte order of that connection."""
    subscriptions: Mapping[tuple[int, int], Subscription]
    """By epoch and subscription id."""

    def latest(self, stream: str, epoch: int, before: int) -> Subscription | None:
        """Return the stream's newest subscription of the epoch that landed before a position; None if there is none."""
        found = [
            subscription
            for (at, _), subscription in self.subscriptions.items()
            if at == epoch and subscription.stream == stream and subscription.position < before
        ]
        return max(found, key=lambda subscription: subscription.position, default=None)


def read_context(control: Iterable[ControlFrame], roles: Roles) -> Context:
    """Parse the control frames of some epochs, in order; frames that do not concern decoding are skipped.

    Args:
        roles: Roles of our schema, in its own byte order.

    Raises:
        WireError, RemoteProtocolError: A control frame cannot be parsed, although it could be when it landed.
    """
    by_epoch: dict[int, Roles] = {}
    subscriptions: dict[tuple[int, int], Subscription] = {}
    for frame in control:
        known = by_epoch.get(frame.epoch)
        if known is None:  # the first control frame of an epoch is its ConnectionResponse
            by_epoch[frame.epoch] = roles_of_epoch(roles, frame.body)
        elif known.template_id(frame.body) == known.response.message.id:
            found = decode_subscribe_response(known, frame.body)
            subscription = Subscription(frame.stream, frame.frame_seq, found.columns)
            subscriptions[frame.epoch, found.subscription_id] = subscription
    return Context(by_epoch, subscriptions)


class LandedFrame(NamedTuple):
    """The columns of a bronze row that reading needs."""

    frame_seq: int
    epoch: int
    body: bytes


class ColumnCells(NamedTuple):
    """A column message's values, in silver types."""

    change: Change
    truncated: int
    """Number of date-times that lost nanoseconds."""


class Removals(NamedTuple):
    """A removal message: narrow ranges as keys, wide ones as ranges."""

    narrow: Change
    wide: tuple[WideRange, ...]


ReadResult: TypeAlias = ColumnCells | Removals | Undecodable


@dataclass(frozen=True)
class CutReader:
    """Reads frames of one cut of one table. Picklable.

    Args:
        begins: Position of the first frame of each update of the cut, ascending.
        columns: The table's columns, in order.
        lists_ranges: Return every removed range as a range, however narrow: for a changelog.
    """

    context: Context
    begins: tuple[int, ...]
    columns: tuple[SilverColumn, ...]
    lists_ranges: bool = False

    def read(self, frames: Iterable[LandedFrame]) -> Iterator[ReadResult]:
        """Read frames in any order; frames without rows yield nothing."""
        for frame in frames:
            try:
                found = self._read(frame)
            except (WireError, ProtocolError) as error:
                found = Undecodable(frame.frame_seq, error.error_class, str(error))
            except MemoryError:  # no fault of the frame
                raise
            except Exception as error:  # a bug in decoding must not stop the table for good
                found = Undecodable(frame.frame_seq, *of_decoder(error))
            if found is not None:
                yield found

    def _read(self, frame: LandedFrame) -> ReadResult | None:
        roles = self.context.roles.get(frame.epoch)
        if roles is None:
            raise InvalidValue(f"epoch {frame.epoch} has no connection response", reason="no-context")
        template = roles.template_id(frame.body)
        if template in roles.columns:
            return self._read_column(roles, frame)
        if template == roles.removed.message.id:
            return self._read_removed(roles, frame)
        if template in (roles.begin.message.id, roles.end.message.id):
            return None
        raise UnknownTemplate(f"template {template} inside an update", reason="unknown-template")

    def _read_column(self, roles: Roles, frame: LandedFrame) -> ColumnCells:
        read = decode_column(roles, frame.body)
        info = check_column(read, self._subscription(frame.epoch, read.subscription_id).by_id)
        index = self._index.get(info.name)
        if index is None:
            raise InvalidValue(f"column {info.name} is not in the table", reason="unknown-column")
        values, truncated = self.columns[index].convert(read.values)
        phase = MODIFIED if read.modified else ADDED
        update = self._update(frame.frame_seq)
        return ColumnCells(Change(index, update, phase, frame.frame_seq, read.row_keys, values), truncated)

    def _read_removed(self, roles: Roles, frame: LandedFrame) -> Removals:
        _, ranges = decode_removed(roles, frame.body)
        wide = _wide(ranges, listed=0 if self.lists_ranges else NARROW)
        update = self._update(frame.frame_seq)
        keys = [first + np.arange(last - first + 1) for first, last in ranges[~wide].tolist()]
        narrow = np.concatenate(keys) if keys else np.empty(0, np.int64)
        return Removals(
            Change(REMOVAL_COLUMN, update, REMOVED, frame.frame_seq, narrow, None),
            tuple(WideRange(update, frame.frame_seq, first, last) for first, last in ranges[wide].tolist()),
        )

    def _update(self, position: int) -> int:
        return bisect_right(self.begins, position) - 1

    def _subscription(self, epoch: int, subscription_id: int) -> Subscription:
        found = self.context.subscriptions.get((epoch, subscription_id))
        if found is None:
            raise InvalidValue(f"no response for subscription {subscription_id}", reason="unknown-subscription")
        return found

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {column.info.name: index for index, column in enumerate(self.columns)}


def _wide(ranges: Longs, *, listed: int) -> npt.NDArray[np.bool_]:
    """Return which ranges hold more than ``listed`` keys; all of them when the others together hold too many."""
    steps = ranges[:, 1].view(np.uint64) - ranges[:, 0].view(np.uint64)  # number of keys minus one; never overflows
    wide: npt.NDArray[np.bool_] = steps >= listed
    return np.ones_like(wide) if int(steps[~wide].sum()) > _MAX_LISTED else wide


def landed_frames(batch: pa.RecordBatch) -> Iterator[LandedFrame]:
    """Return an iterator over the rows of a bronze batch (``frame_seq``, ``epoch``, ``body``)."""
    return map(
        LandedFrame,
        batch.column("frame_seq").to_pylist(),
        batch.column("epoch").to_pylist(),
        batch.column("body").to_pylist(),
    )
