"""What crosses from a source to bronze: `Frame`s, from a `Receiver` of one connection, an epoch, to a `FrameSink`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class Kind(StrEnum):
    """Purpose of a frame: bronze column ``kind``."""

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


class Frame(NamedTuple):
    """One message as received, with what the receiver knows of it without decoding the body."""

    body: bytes
    kind: Kind
    boundary: Boundary = Boundary.NONE
    stream: str | None = None
    source_position: str | None = None


def mark(name: str, *, stream: str | None = None, **details: object) -> Frame:
    """Return a frame written by the receiver itself: ``name`` is the event, ``details`` must be JSON values.

    A mark with ``level="warning"`` is logged as a warning. Status shows it while it is the newest mark of its stream.
    Status also shows the feed's newest ``progress`` mark; ``parts`` maps each part of the source to its measures.
    """
    body = json.dumps({"mark": name, **details}, sort_keys=True, default=str)
    return Frame(body.encode(), Kind.MARK, Boundary.NONE, stream)


@dataclass(frozen=True)
class Resume:
    """Starting point of an epoch.

    Args:
        epoch: Number of this connection, from 1.
        source_positions: `Connector.resume_position` per stream that has landed.
        last_control: Body of the last control frame that landed without a stream; None if there is none.
        stream_controls: Body of the last control frame of each stream, of those that an earlier process landed.
        silver_positions: Last ``source_position`` of each silver table, if known; further, if bronze was lost.
    """

    epoch: int
    source_positions: Mapping[str, str] = field(default_factory=dict)
    last_control: bytes | None = None
    stream_controls: Mapping[str, bytes] = field(default_factory=dict)
    silver_positions: Mapping[str, str] = field(default_factory=dict)


class FrameSink(Protocol):
    """Destination of a receiver's frames. Implemented by `pipelines.landing.sink`.

    *Taken* frames are in memory, and lost if the process dies. They have *landed* once they are committed.
    """

    def take(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order, without waiting for room. Call `wait_for_room` as soon as possible."""

    async def land(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order, then `wait_for_room`. A cancelled caller loses none."""

    async def wait_for_room(self) -> None:
        """Wait while too many bytes are taken and not committed: this is the back-pressure on the socket."""

    async def flush(self) -> int:
        """Commit all frames taken so far; return the last frame_seq. Acknowledge at the source only after this."""


class Receiver(Protocol):
    """Owns the socket of one feed."""

    async def run(self, sink: FrameSink, resume: Resume) -> str | None:
        """Run one epoch: connect, subscribe, land every frame until the connection ends.

        Returns after an orderly end: None when the source ended the connection, else the reason. Raises
        SourceUnavailable or RemoteProtocolError when the connection broke: the caller waits and begins a new epoch.
        Other errors end the run. Safe to cancel.
        """


class ControlFrame(NamedTuple):
    """A landed control frame, as passed to `Decoder.context`."""

    frame_seq: int
    epoch: int
    stream: str | None
    body: bytes
