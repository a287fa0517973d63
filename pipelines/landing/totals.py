"""What a feed's receiver has landed since its process began, counted as it happens, for whoever watches the process.

Only the receiver's event loop writes here. Other threads may read at any time; each number is right by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.pipelines.landing.batch import FRAME_BYTES, Added

# Looked up once: to find a member of an enumeration takes 0.1 µs, and this runs at each read of a socket.
_BEGIN, _END, _DATA, _MARK = Boundary.BEGIN, Boundary.END, Kind.DATA, Kind.MARK


@dataclass
class LandingTotals:
    """Totals of one feed. Marks, which the receiver writes itself, count as frames only in ``held_bytes``."""

    frames: int = 0
    """Frames received."""
    bytes: int = 0
    """Their bodies together."""
    held_bytes: int = 0
    """Approximate memory of all frames that are not committed."""
    received_at: int | None = None
    """When the newest frame was received, in microseconds since 1970; None before the first."""
    commits: int = 0
    commit_seconds: float = 0.0
    """Time the commits took together, without failed attempts."""
    commit_failures: int = 0
    """Attempts to commit that failed; each is followed by another."""
    epochs: int = 0
    """Epochs begun."""
    is_open: bool = False
    """The epoch's first mark was taken, and the epoch has not ended."""
    is_connected: bool = False
    """A frame, or a mark after the one that begins the epoch, came in the open epoch: as `ReceiverState.CONNECTED`."""
    snapshots: dict[str, bool] = field(default_factory=dict)
    """Whether a snapshot of each stream given at the start is under way: it and its epoch have not ended."""

    def end_epoch(self) -> None:
        """Note that the connection is over, and its snapshots with it."""
        self.is_open = self.is_connected = False
        self.snapshots = dict.fromkeys(self.snapshots, False)

    def take(self, frames: Sequence[Frame], added: Added, received_at: int) -> None:
        """Count frames that were received together, and added to a batch."""
        self.held_bytes += added.size
        self.is_connected = self.is_open
        has_marks = False
        for run in added.runs:
            has_marks |= run.kind is _MARK
            if (run.boundary is _BEGIN or run.boundary is _END) and run.stream in self.snapshots:
                self.snapshots[run.stream] = run.boundary is _BEGIN and run.kind is not _DATA
        marks = [frame for frame in frames if frame.kind is _MARK] if has_marks else []
        if len(marks) < len(frames):
            self.frames += len(frames) - len(marks)
            self.bytes += added.size - FRAME_BYTES * len(frames) - sum(len(mark.body) for mark in marks)
            self.received_at = received_at

    def commit(self, size: int, seconds: float) -> None:
        """Count a commit of frames that took ``size`` bytes of memory."""
        self.held_bytes -= size
        self.commits += 1
        self.commit_seconds += seconds
