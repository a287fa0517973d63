"""Reads the landed frames of one cut: the step between bronze rows and columns of values.

Pure: what runs inside Spark's Python workers, without Spark. Bad bytes never raise here; they come out as
`BadFrame`, beside whatever could be read of the other frames.
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

from conf.errors import InvalidValue, ProtocolError, UnknownTemplate, WireError, of_decoder
from connectors.base import ControlFrame
from connectors.deephaven.binding import Roles
from connectors.deephaven.blocks import ADDED, MODIFIED, NARROW, REMOVAL_COLUMN, REMOVED, Change, Longs, WideRange
from connectors.deephaven.columns import check_column, decode_column, decode_removed
from connectors.deephaven.control import decode_subscribe_response
from connectors.deephaven.handshake import roles_of_epoch
from connectors.deephaven.messages import ColumnInfo
from connectors.deephaven.silver_types import SilverColumn

_MOST_LISTED = 1 << 20
"""Removed keys of one frame that are listed at most: sixteen bytes could ask for thousands."""


@dataclass(frozen=True)
class Subscription:
    """What a subscribe response said, and where it landed."""

    stream: str | None
    position: int
    columns: tuple[ColumnInfo, ...]

    @cached_property
    def by_id(self) -> Mapping[int, ColumnInfo]:
        """The columns by column id."""
        return {info.column_id: info for info in self.columns}


@dataclass(frozen=True)
class Context:
    """What the control frames of some epochs say."""

    roles: Mapping[int, Roles]
    """Per epoch: the schema in the byte order of that connection."""
    subscriptions: Mapping[tuple[int, int], Subscription]
    """Per epoch and subscription id."""

    def latest(self, stream: str, epoch: int, before: int) -> Subscription | None:
        """Return the stream's newest subscription of the epoch that landed before a position."""
        found = [
            subscription
            for (at, _), subscription in self.subscriptions.items()
            if at == epoch and subscription.stream == stream and subscription.position < before
        ]
        return max(found, key=lambda subscription: subscription.position, default=None)


def read_context(control: Iterable[ControlFrame], roles: Roles) -> Context:
    """Read the control frames of some epochs, in order; those that do not concern decoding are passed over.

    Args:
        roles: Of our schema, in its own byte order.

    Raises:
        WireError, RemoteProtocolError: A control frame cannot be read; it was read when it landed.
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
    """A bronze row, as far as reading needs it."""

    frame_seq: int
    epoch: int
    body: bytes


class BadFrame(NamedTuple):
    """A frame that cannot be read, and why."""

    position: int
    error_class: str
    reason: str


class Cells(NamedTuple):
    """A column message's values in silver form."""

    change: Change
    truncated: int
    """Date-times that lost nanoseconds."""


class Removals(NamedTuple):
    """A removal message: narrow ranges as keys, wide ones as ranges."""

    narrow: Change
    wide: tuple[WideRange, ...]


Reading: TypeAlias = Cells | Removals | BadFrame


@dataclass(frozen=True)
class CutReader:
    """Reads frames of one cut of one table. Picklable.

    Args:
        begins: Position of the first frame of each update of the cut, ascending.
        columns: The table's columns, in their order.
        lists_ranges: Keep every removed range as a range, however narrow: what a log wants.
    """

    context: Context
    begins: tuple[int, ...]
    columns: tuple[SilverColumn, ...]
    lists_ranges: bool = False

    def read(self, frames: Iterable[LandedFrame]) -> Iterator[Reading]:
        """Read frames in any order; those that carry no rows yield nothing."""
        for frame in frames:
            try:
                found = self._read(frame)
            except (WireError, ProtocolError) as error:
                found = BadFrame(frame.frame_seq, error.error_class, str(error))
            except Exception as error:  # a bug must not stop the table for good
                found = BadFrame(frame.frame_seq, *of_decoder(error))
            if found is not None:
                yield found

    def _read(self, frame: LandedFrame) -> Reading | None:
        roles = self.context.roles.get(frame.epoch)
        if roles is None:
            raise InvalidValue(f"epoch {frame.epoch} has no connection response", reason="no-context")
        template = roles.template_id(frame.body)
        if template in roles.columns:
            return self._cells(roles, frame)
        if template == roles.removed.message.id:
            return self._removals(roles, frame)
        if template in (roles.begin.message.id, roles.end.message.id):
            return None
        raise UnknownTemplate(f"template {template} inside an update", reason="unknown-template")

    def _cells(self, roles: Roles, frame: LandedFrame) -> Cells:
        read = decode_column(roles, frame.body)
        info = check_column(read, self._subscription(frame.epoch, read.subscription_id).by_id)
        index = self._index.get(info.name)
        if index is None:
            raise InvalidValue(f"column {info.name} is not in the table", reason="unknown-column")
        values, truncated = self.columns[index].convert(read.values)
        phase = MODIFIED if read.modified else ADDED
        update = self._update(frame.frame_seq)
        return Cells(Change(index, update, phase, frame.frame_seq, read.row_keys, values), truncated)

    def _removals(self, roles: Roles, frame: LandedFrame) -> Removals:
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
    """Tell which ranges hold more keys than are to be listed; all do when together they hold too many."""
    steps = ranges[:, 1].view(np.uint64) - ranges[:, 0].view(np.uint64)  # one less than the keys; never overflows
    wide: npt.NDArray[np.bool_] = steps >= listed
    return np.ones_like(wide) if int(steps[~wide].sum()) > _MOST_LISTED else wide


def landed_frames(batch: pa.RecordBatch) -> Iterator[LandedFrame]:
    """Return the rows of a bronze batch (``frame_seq``, ``epoch``, ``body``)."""
    return map(
        LandedFrame,
        batch.column("frame_seq").to_pylist(),
        batch.column("epoch").to_pylist(),
        batch.column("body").to_pylist(),
    )
