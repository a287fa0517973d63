"""The snapshots of one table in an epoch: when one is due, and whether the attempt under way may become whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from connectors.backoff import Backoff
from connectors.base import Frame, mark
from connectors.sqlitecloud import bronze_frames
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.messages import Value
from connectors.sqlitecloud.notification_pattern import Foresees, foresees, nothing
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import TableUpdate
from connectors.sqlitecloud.window import SnapshotWindow

AT_ONCE: Final = 3
"""Attempts in a row that are made without waiting."""

BAD_NOTIFICATION: Final = "bad_notification"
SCHEMA_CHANGED: Final = "schema_changed"
_HOUR: Final = 3_600
_LONG_AGO: Final = 60.0
"""Seconds after which a snapshot that was whole counts as one that lasted: the next may be had without waiting."""


class TableAttempts:
    """One table. All times are seconds of one clock.

    Args:
        backoff: The waits before what is tried again.
        schema: Version of the database's schema before the table was listened to; None where the server says none.
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
    ) -> None:
        self.stream, self.table = stream, table
        self.schema = schema
        """Version of the schema before the table was last described: a later one may have made another table of it."""
        self._options, self._backoff = options, backoff
        self._wanted: float | None = now
        self._reconciled: float | None = None
        self._described: Description | None = None
        self._window: SnapshotWindow | None = None
        self._begins = False
        self._foresees: Foresees = nothing
        self.is_open = False
        """Notifications are part of a window, so that they must be read as they come."""
        self.attempt = 0
        """Counts the attempts: what landed before the last one began says nothing about it."""
        self._voids = 0
        self._stood = now
        self.heard_at = now
        """When it was last notified."""

    @property
    def due(self) -> float | None:
        """When the next attempt is; None while one is under way, or none is to come."""
        times = [time for time in (self._wanted, self._reconciled) if time is not None]
        return None if self.is_open and not self._begins else min(times, default=None)

    @property
    def foresees(self) -> Foresees:
        """What tells which notifications need not be read, now."""
        return nothing if self.is_open else self._foresees

    def listened(self, described: Description) -> None:
        """Take note that the table was listened to: the first attempt without a fence reaches back to here."""
        wanted = self._wanted
        self._listen(described)
        self._begins, self._wanted = True, wanted

    def begin(self, described: Description, schema: int | None = None) -> list[Frame]:
        """Begin an attempt that is overlaid by what is notified from now on; return the frames that say so.

        Args:
            schema: Version of the schema before the table was described.
        """
        self._listen(described)
        self.schema, self._begins = schema, False
        return bronze_frames.begun(described)

    def begin_from_listening(self, described: Description, schema: int | None = None) -> list[Frame]:
        """Begin the first attempt, overlaid by all since the table was listened to, if it is still what it was then."""
        if not self._begins or (described, schema) != (self._described, self.schema):
            return self.begin(described, schema)
        self._wanted = None
        return bronze_frames.told(described)

    def select(self, rows: Sequence[tuple[Value, ...]], frame: bytes) -> list[Frame]:
        """Take a frame of the attempt's rows; return what lands."""
        assert self._window is not None
        self._window.select(rows)
        frames = [bronze_frames.selected(self.stream, frame, begins=self._begins)]
        self._begins = False
        return frames

    def notify(self, update: TableUpdate, now: float) -> list[Frame]:
        """Take a notification of the table; return the mark that a snapshot is due for it, if that is news."""
        self.heard_at = now
        if self._window is None:
            return []
        if self.is_open:
            self._window.notify(update)
            return []
        return [] if self._window.knows(update) else self.need("other columns", now)

    def compare_schema(self, version: int, now: float) -> list[Frame]:
        """Take note of the version that the schema has by now; return as `notify`."""
        return [] if version == self.schema else self.distrust(now, SCHEMA_CHANGED)

    def distrust(self, now: float, reason: str = BAD_NOTIFICATION) -> list[Frame]:
        """Take note that the table may be other than was notified; return as `notify`."""
        if self.is_open and self._window is not None:
            self._window.void = self._window.void or reason
            return []
        return self.need(reason, now)

    def need(self, reason: str, now: float) -> list[Frame]:
        """Let a snapshot be due, unless one is on its way; not at once, if there was one just before."""
        if self.is_open or self._wanted is not None:
            return []
        lasted = now - self._stood > _LONG_AGO
        if lasted:
            self._backoff.reset()
        wait = self._backoff.next_wait()
        self._wanted = now + wait
        level = {} if lasted else {"level": "warning"}  # a server may say each time what makes the next one due
        return [mark("snapshot due", stream=self.stream, reason=reason, next_in=round(wait, 3), **level)]

    def close(self, now: float) -> list[Frame]:
        """End the window; return the mark that the snapshot is complete, or void."""
        assert self._window is not None
        reason = self._window.close()
        if reason is not None:
            return self.give_up(reason, now)
        self.is_open, self._voids, self._stood = False, 0, now
        hours = self._options.reconcile_hours
        self._reconciled = now + hours * _HOUR if hours else None
        return [bronze_frames.complete(self.stream)]

    def give_up(self, reason: str, now: float) -> list[Frame]:
        """End the attempt, whatever its window says; return the mark."""
        self.is_open = self._begins = False
        self._voids += 1
        wait = 0.0 if self._voids < AT_ONCE else self._backoff.next_wait()
        self._wanted = now + wait
        return [bronze_frames.void(self.stream, reason, attempts=self._voids, wait=wait)]

    def _listen(self, described: Description) -> None:
        self._window = SnapshotWindow(described, self.table, self._options)
        self._described, self.is_open, self._foresees = described, True, foresees(described)
        self.attempt += 1
        self._wanted = self._reconciled = None
