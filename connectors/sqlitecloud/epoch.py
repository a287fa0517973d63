"""The course of one epoch, without a socket: what is heard becomes frames for bronze, and tables fall due.

Of a notification that lands nothing is changed. It is read to tell its stream, to judge the windows of snapshots that
are under way, and to find out when a table must be read again: because it has columns that its last snapshot has not,
or because the notification cannot be decoded. That does not end the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from conf.errors import WireError
from connectors.backoff import Backoff
from connectors.base import Frame, mark
from connectors.sqlitecloud import landing
from connectors.sqlitecloud.attempts import TableAttempts
from connectors.sqlitecloud.messages import Notification
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import ChannelMessage, read_notification, stream_of
from connectors.sqlitecloud.saying import message_stream


class Epoch:
    """One session's streams.

    Args:
        tables: Settings of the feed's tables, by stream.
        channel: Our own channel: what is said there is a fence, or a canary.
        backoff: Makes the waits of one table.
        clock: Seconds, of any origin.
    """

    def __init__(
        self,
        tables: Mapping[str, SqliteCloudTable],
        options: SqliteCloudOptions,
        *,
        channel: str,
        backoff: Callable[[], Backoff],
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._options, self._channel = tables, options, channel
        self._backoff, self._clock = backoff, clock
        self._tables: dict[str, TableAttempts] = {}
        self._unknown: set[str] = set()
        self._on_return: dict[str, Callable[[], list[Frame]]] = {}
        self.found: list[str] = []
        """Tables that were notified and nothing else is known of; for the receiver to look at, and take out."""

    def add(self, stream: str) -> TableAttempts:
        """Let a table take part; a snapshot of it is due at once."""
        table, now = self.settings_of(stream), self._clock()
        self._tables[stream] = TableAttempts(stream, table, self._options, self._backoff(), now=now)
        return self._tables[stream]

    def leave(self, stream: str) -> None:
        """Let a table take part no more; when it is notified again, it is found again."""
        self._tables.pop(stream, None)
        self._unknown.discard(stream)

    def settings_of(self, stream: str) -> SqliteCloudTable:
        """Return the settings of a table, which are the default ones for what the feed has no table for."""
        return self._settings.get(stream) or SqliteCloudTable(source=stream)

    def next_due(self) -> TableAttempts | None:
        """Return the table whose snapshot has been due for the longest time; None when none is due now."""
        now = self._clock()
        due = [(table.due, stream) for stream, table in self._tables.items() if table.due is not None]
        first, stream = min(due, default=(now + 1, ""))
        return self._tables[stream] if first <= now else None

    def wait(self) -> float | None:
        """Return seconds until a snapshot is due; None when none is to come."""
        times = [table.due for table in self._tables.values() if table.due is not None]
        return max(0.0, min(times) - self._clock()) if times else None

    def expect(self, token: str, then: Callable[[], list[Frame]] = list) -> None:
        """Expect what is about to be said on our channel: when it is heard, ``then`` tells what lands behind it."""
        self._on_return[token] = then

    def has_returned(self, token: str) -> bool:
        """Tell whether what was expected has been heard."""
        return token not in self._on_return

    def hear(self, notifications: Iterable[Notification]) -> list[Frame]:
        """Take notifications, in order; return the frames to land, each notification's own first."""
        frames: list[Frame] = []
        for notification in notifications:
            try:
                said = read_notification(notification.text)
            except WireError as error:
                frames += self._unreadable(notification, error)
                continue
            if isinstance(said, ChannelMessage):
                frames.append(landing.notified(message_stream(said.channel), notification))
                if said.channel == self._channel and said.text in self._on_return:
                    frames += self._on_return.pop(said.text)()
                continue
            frames.append(landing.notified(said.channel, notification))
            table = self._tables.get(said.channel)
            frames += self._find(said.channel) if table is None else table.notify(said, self._clock())
        return frames

    def _find(self, stream: str) -> list[Frame]:
        """Take note of a table that was notified and is none of those that take part."""
        if stream in self._unknown:
            return []
        self._unknown.add(stream)
        self.found.append(stream)
        return [mark("unknown stream", stream=stream)]

    def _unreadable(self, notification: Notification, error: WireError) -> list[Frame]:
        """Land what cannot be decoded where it belongs. What belongs nowhere may be of any table."""
        try:
            stream = stream_of(notification.text)
        except WireError:
            frames = [landing.bad_frame(notification.frame, error)]
            touched = list(self._tables.values())
        else:
            frames = [landing.notified(stream, notification), landing.bad_notification(stream, error)]
            touched = [table for table in self._tables.values() if table.stream == stream]
        now = self._clock()
        return [*frames, *(frame for table in touched for frame in table.distrust(now))]
