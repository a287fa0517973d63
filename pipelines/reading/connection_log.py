"""Read a receiver's reports on its connection and its streams: marks of the newest epoch, and when epochs began.

An epoch begins with a mark ``opened`` and ends with a mark ``closed`` (`pipelines.landing.receiving`). One that has not
ended is the receiver's present one, or its last before a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from silverfold.conf.text import in_one_line
from silverfold.connectors.frames import Kind
from silverfold.pipelines.landing.batch import WARNING
from silverfold.pipelines.landing.bronze_table import last_epoch, open_bronze
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import dataset_of, naming_the_store, open_table

OPENED = "opened"
CLOSED = "closed"
PROGRESS = "progress"

_REASON_DETAILS = ("error_class", "code", "reason", "text")
"""Details of a mark that give the reason."""


@dataclass(frozen=True)
class Mark:
    """A mark: a frame the receiver wrote itself."""

    position: int
    epoch: int
    received_at: datetime
    name: str
    """What happened; empty if the body does not name it."""
    details: dict[str, Any]
    """All other details of the body."""

    @property
    def warning(self) -> str | None:
        """Warning text; None unless the mark is a warning."""
        if self.details.get("level") != WARNING:
            return None
        reasons = [str(value) for name, value in self.details.items() if name in _REASON_DETAILS and value is not None]
        return in_one_line(": ".join([self.name, *reasons]))  # a part may be a peer's

    @property
    def end(self) -> tuple[str | None, str | None] | None:
        """Reason of a mark that closes an epoch, and stable name of the error, each None without; None if it is not."""
        if self.name != CLOSED:
            return None
        reason, error_class = (self.details.get(name) for name in ("reason", "error_class"))
        return None if reason is None else in_one_line(str(reason)), error_class  # a part may be a peer's

    @property
    def progress(self) -> dict[str, dict[str, float]]:
        """What a mark of progress measures, by part of the source; empty for any other mark."""
        return dict(self.details.get("parts", {})) if self.name == PROGRESS else {}


@dataclass(frozen=True)
class EpochMarks:
    """The relevant marks of an epoch.

    Args:
        of_feed: The first and the newest mark of the feed itself, not of a stream; None without any.
        of_streams: The newest mark of each stream.
    """

    of_feed: tuple[Mark, Mark] | None
    of_streams: Mapping[str, Mark]


def epoch_marks(bronze: Place, epoch: int) -> EpochMarks:
    """Return the marks of an epoch that describe its state; none if there are none. Reads only their bodies.

    Raises StoreUnavailable.
    """
    table = open_table(bronze)
    if table is None:
        return EpochMarks(None, {})
    with naming_the_store(bronze):
        frames = dataset_of(table)
        of_epoch = (ds.field("kind") == Kind.MARK.value) & (ds.field("epoch") == epoch)
        found = frames.to_table(columns=["frame_seq", "stream"], filter=of_epoch)
        ends = found.group_by("stream").aggregate([("frame_seq", "min"), ("frame_seq", "max")]).to_pylist()
        wanted = [line[f"frame_seq_{end}"] for line in ends for end in ("min", "max")]
        rows = frames.to_table(
            columns=["frame_seq", "epoch", "received_at", "body"], filter=of_epoch & ds.field("frame_seq").isin(wanted)
        )
    marks = {mark.position: mark for mark in (_mark(**row) for row in pa.Table.to_pylist(rows))}
    both = {line["stream"]: (marks[line["frame_seq_min"]], marks[line["frame_seq_max"]]) for line in ends}
    return EpochMarks(both.pop(None, None), {stream: newest for stream, (_, newest) in both.items()})


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Args:
        ended_at: When its last frame was received; None while it has not ended, or if that frame is not in bronze.
        reason: Why it was closed; None if its receiver did not report it.
        error_class: Stable name of the error that closed it; None if none did.
    """

    number: int
    opened_at: datetime
    ended_at: datetime | None
    reason: str | None = None
    error_class: str | None = None


def newest_epochs(bronze: Place, count: int) -> list[Epoch]:
    """Return the newest epochs that bronze has the beginning of, at most ``count``, oldest first.

    Reads small columns of these epochs, and two marks of each. Raises StoreUnavailable.
    """
    table = open_bronze(bronze)
    if table is None:
        return []
    with naming_the_store(bronze):
        frames, oldest = dataset_of(table), last_epoch(table) - count + 1
        is_mark = (ds.field("kind") == Kind.MARK.value) & ds.field("stream").is_null() & (ds.field("epoch") >= oldest)
        found = frames.to_table(columns=["frame_seq", "epoch"], filter=is_mark)
        ends = found.group_by("epoch").aggregate([("frame_seq", "min"), ("frame_seq", "max")]).sort_by("epoch")
        firsts, lasts = (ends[f"frame_seq_{end}"].to_pylist() for end in ("min", "max"))
        rows = frames.to_table(
            columns=["frame_seq", "epoch", "received_at", "body"],
            filter=is_mark & ds.field("frame_seq").isin([*firsts, *lasts]),
        )
        before = (ds.field("epoch") >= oldest) & ds.field("frame_seq").isin([first - 1 for first in firsts[1:]])
        times = frames.to_table(columns=["frame_seq", "received_at"], filter=before)
    marks = {mark.position: mark for mark in (_mark(**row) for row in pa.Table.to_pylist(rows))}
    received = dict(zip(times["frame_seq"].to_pylist(), times["received_at"].to_pylist(), strict=True))
    ended = [received.get(first - 1) for first in firsts[1:]]
    spans = zip(firsts, lasts, [*ended, None], strict=False)
    epochs = (_epoch(marks[first], marks[last], until) for first, last, until in spans)
    return [epoch for epoch in epochs if epoch is not None]


def _epoch(first: Mark, last: Mark, until: datetime | None) -> Epoch | None:
    """Return an epoch; None if its beginning is not in bronze.

    Args:
        last: Its newest mark.
        until: When the frame before the next epoch was received.
    """
    if first.name != OPENED:
        return None
    if last.end is None:
        return Epoch(first.epoch, first.received_at, until)
    return Epoch(first.epoch, first.received_at, last.received_at, *last.end)


def _mark(frame_seq: int, epoch: int, received_at: datetime, body: bytes) -> Mark:
    try:
        decoded = json.loads(body)
    except ValueError:
        decoded = {}
    details = decoded if isinstance(decoded, dict) else {}
    return Mark(frame_seq, epoch, received_at, str(details.pop("mark", "")), details)
