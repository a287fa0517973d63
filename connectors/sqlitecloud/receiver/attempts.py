"""The snapshots of one table in an epoch: when the next one is due, and the state of the current attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.payload import TableUpdate
from silverfold.connectors.sqlitecloud.protocol.landed.typed_notification import Reader, compile_readers, read_nothing
from silverfold.connectors.sqlitecloud.protocol.messages import Value
from silverfold.connectors.sqlitecloud.receiver import bronze_frames
from silverfold.connectors.sqlitecloud.receiver.window import SnapshotWindow

AT_ONCE: Final = 3
"""Consecutive attempts made without waiting; later ones back off."""

BAD_NOTIFICATION: Final = "bad_notification"
SCHEMA_CHANGED: Final = "schema_changed"
_HOUR: Final = 3_600
_LONG_AGO: Final = 60.0
"""Seconds after a complete snapshot until it counts as stable; the backoff is then reset."""


class TableAttempts:
    """Snapshot attempts for one table. All times are seconds of one clock.

    Args:
        backoff: The waits between attempts.
        schema: Schema version of the database before the table was listened to; None if the server does not report one.
        due: Time of the first attempt.
    """

    def __init__(
        self,
        stream: str,
        table: SqliteCloudTable,
        options: SqliteCloudOptions,
        backoff: Backoff,
        *,
        schema: int | None,
        now: float,
        due: float,
    ) -> None:
        self.stream, self.table = stream, table
        self.schema = schema
        """Schema version before the table was last described. A later version may mean that the table was recreated."""
        self._options, self._backoff = options, backoff
        self._scheduled_at: float | None = due
        self._reconcile_at: float | None = None
        self._described: Description | None = None
        self._window: SnapshotWindow | None = None
        self._from_listening = False
        self._readers: Callable[[bytes], Reader] | None = None
        self.is_open = False
        """A snapshot window is open: notifications must be parsed as they arrive."""
        self.attempt = 0
        """Number of the current attempt. Deferred notifications of earlier attempts are ignored."""
        self._void_count = 0
        self._completed_at = now
        self.notified_at = now
        """Time of the last notification."""

    @property
    def due(self) -> float | None:
        """The time of the next attempt; None while one is running or if none is scheduled."""
        times = [time for time in (self._scheduled_at, self._reconcile_at) if time is not None]
        return None if self.is_open and not self._from_listening else min(times, default=None)

    @property
    def is_void(self) -> bool:
        """Whether the last attempt led to no snapshot."""
        return self._void_count > 0

    def reader(self, text: bytes) -> Reader:
        """Return the reader of notifications that need no parsing, for a text's vocabulary."""
        return read_nothing if self.is_open or self._readers is None else self._readers(text)

    def start_listening(self, described: Description) -> None:
        """Open the first attempt's window when listening starts. Used only without a fence."""
        scheduled_at = self._scheduled_at
        self._listen(described)
        self._from_listening, self._scheduled_at = True, scheduled_at

    def begin(self, described: Description, schema: int | None = None) -> list[Frame]:
        """Start an attempt overlaid by all later notifications; return the frames that record it.

        Args:
            schema: Schema version before the table was described.
        """
        self._listen(described)
        self.schema, self._from_listening = schema, False
        return bronze_frames.begin_frames(described)

    def begin_from_listening(self, described: Description, schema: int | None = None) -> list[Frame]:
        """Start the first attempt, overlaid by all since listening started, or anew if the table has changed."""
        if not self._from_listening or (described, schema) != (self._described, self.schema):
            return self.begin(described, schema)
        self._scheduled_at = None
        return bronze_frames.description_frames(described)

    def select(self, rows: Sequence[tuple[Value, ...]], frame: bytes) -> list[Frame]:
        """Add one frame of snapshot rows; return the frames to land."""
        assert self._window is not None
        self._window.select(rows)
        frames = [bronze_frames.snapshot_frame(self.stream, frame, begins=self._from_listening)]
        self._from_listening = False
        return frames

    def notify(self, update: TableUpdate, now: float) -> list[Frame]:
        """Add a notification of the table; return a "snapshot due" mark if it newly requires a snapshot."""
        self.notified_at = now
        if self._window is None:
            return []
        if self.is_open:
            self._window.notify(update)
            return []
        return [] if self._window.matches(update) else self.require_snapshot("other columns", now)

    def compare_schema(self, version: int, now: float) -> list[Frame]:
        """Compare with the current schema version; return frames as `notify` does."""
        return [] if version == self.schema else self.distrust(now, SCHEMA_CHANGED)

    def distrust(self, now: float, reason: str = BAD_NOTIFICATION) -> list[Frame]:
        """Record that the table may differ from its notifications; return frames as `notify` does."""
        if self.is_open and self._window is not None:
            self._window.void = self._window.void or reason
            return []
        return self.require_snapshot(reason, now)

    def require_snapshot(self, reason: str, now: float) -> list[Frame]:
        """Schedule a snapshot unless one is pending. The wait grows if the last one completed only recently."""
        if self.is_open or self._scheduled_at is not None:
            return []
        is_stable = now - self._completed_at > _LONG_AGO
        if is_stable:
            self._backoff.reset()
        wait = self._backoff.next_wait()
        self._scheduled_at = now + wait
        level = {} if is_stable else {"level": "warning"}  # the trigger may recur with every notification
        return [mark("snapshot due", stream=self.stream, reason=reason, next_in=round(wait, 3), **level)]

    def close(self, now: float) -> list[Frame]:
        """Close the window; return the mark that the snapshot is complete or void."""
        assert self._window is not None
        reason = self._window.close()
        if reason is not None:
            return self.give_up(reason, now)
        self.is_open, self._void_count, self._completed_at = False, 0, now
        hours = self._options.reconcile_hours
        self._reconcile_at = now + hours * _HOUR if hours else None
        return [bronze_frames.complete(self.stream)]

    def give_up(self, reason: str, now: float) -> list[Frame]:
        """Abandon the attempt regardless of its window; return the mark."""
        self.is_open = self._from_listening = False
        self._void_count += 1
        wait = 0.0 if self._void_count < AT_ONCE else self._backoff.next_wait()
        self._scheduled_at = now + wait
        return [bronze_frames.void(self.stream, reason, attempts=self._void_count, wait=wait)]

    def _listen(self, described: Description) -> None:
        self._window = SnapshotWindow(described, self.table, self._options)
        self._described, self.is_open, self._readers = described, True, compile_readers(described)
        self.attempt += 1
        self._scheduled_at = self._reconcile_at = None
