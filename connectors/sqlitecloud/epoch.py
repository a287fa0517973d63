"""The course of one epoch, without a socket: what is heard becomes frames for bronze, and tables fall due.

Of a notification that lands nothing is changed. It is read to tell its stream, to judge the windows of snapshots that
are under way, and to find out when a table must be read again: because it has columns that its last snapshot has not,
or because the notification cannot be decoded. That does not end the epoch. Where no window is open, most are not read
at all (`foreseen`), and reading of the others is put off (`unchecked`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from conf.errors import WireError
from connectors.backoff import Backoff
from connectors.base import Boundary, Frame, Kind, mark
from connectors.sqlitecloud import bronze_frames
from connectors.sqlitecloud.attempts import TableAttempts
from connectors.sqlitecloud.deferred_checks import DeferredChecks, Unread, named_table
from connectors.sqlitecloud.frame_access import message_stream
from connectors.sqlitecloud.messages import Notification
from connectors.sqlitecloud.notification_pattern import Foresees, nothing
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import ChannelMessage, TableUpdate, read_notification, stream_of


class Epoch:
    """One session's streams.

    Args:
        tables: Settings of the feed's tables, by stream.
        channel: Our own channel: what is said there is a fence, or a canary.
        backoff: Makes the waits of one table.
        clock: Seconds, of any origin.
        logged: Tables that are notified, and of which nothing else is wanted.
    """

    def __init__(
        self,
        tables: Mapping[str, SqliteCloudTable],
        options: SqliteCloudOptions,
        *,
        channel: str,
        backoff: Callable[[], Backoff],
        clock: Callable[[], float],
        logged: Collection[str] = (),
    ) -> None:
        self.settings, self._options, self._channel = tables, options, channel
        self._backoff, self._clock = backoff, clock
        self._tables: dict[str, TableAttempts] = {}
        self._by_name: dict[bytes, TableAttempts] = {}
        self._unchecked = DeferredChecks()
        self._unknown, self._logged = set(logged), logged
        self._on_return: dict[str, Callable[[], list[Frame]]] = {}
        self.found: list[str] = []
        """Tables that may be there and take no part; for the receiver to look at, and take out."""

    def add(self, stream: str, schema: int | None = None) -> TableAttempts:
        """Let a table take part; a snapshot of it is due at once.

        Args:
            schema: Version of the schema before the table was listened to.
        """
        table, now = self.settings_of(stream), self._clock()
        attempts = TableAttempts(stream, table, self._options, self._backoff(), schema=schema, now=now)
        self._tables[stream] = self._by_name[stream.encode()] = attempts
        return attempts

    def leave(self, stream: str) -> None:
        """Let a table take part no more; when it is notified again, it is found again."""
        self._tables.pop(stream, None)
        self._by_name.pop(stream.encode(), None)
        self._unknown.discard(stream)

    def is_wanted(self, stream: str) -> bool:
        """Tell whether a table is to take part, and does not yet."""
        return stream not in self._tables and (self._options.all_tables or stream in self.settings)

    def compare_schema(self, version: int) -> list[Frame]:
        """Take note of the version that the schema has by now: any table read by another one is due again.

        Which tables a change concerned is not told by anything that stays exact: a table made anew can have the name,
        the text and the place of the one before.
        """
        now = self._clock()
        return [frame for table in self._tables.values() for frame in table.compare_schema(version, now)]

    def settings_of(self, stream: str) -> SqliteCloudTable:
        """Return the settings of a table, which are the default ones for what the feed has no table for."""
        return self.settings.get(stream) or SqliteCloudTable(source=stream)

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
        later: list[Unread] = []
        room, whole, new = self._unchecked.room, Boundary.WHOLE, tuple.__new__
        foresees: Foresees = nothing
        stream = ""
        for notification in notifications:
            text, frame = notification
            spelt = text.decode(errors="surrogateescape")
            if not foresees(spelt):
                table = self._named(text)
                # A message has no table: behind one, which may open a window, everything is looked up anew.
                foresees, stream = (nothing, "") if table is None else (table.foresees, table.stream)
                if not foresees(spelt):
                    if table is None or table.is_open or room <= 0:
                        frames += self._read(notification)
                        continue
                    room -= len(text)
                    later.append((table, table.attempt, text))
            frames.append(new(Frame, (frame, Kind.DATA, whole, stream, None)))
        self._unchecked.add(later)
        return frames

    def _named(self, text: bytes) -> TableAttempts | None:
        """Return the table that a text is of, if its beginning tells, and the table takes part."""
        begins = named_table(text)
        return None if begins is None else self._by_name.get(begins[1])

    def check(self, count: int) -> list[Frame] | None:
        """Read so many of the notifications that have landed and were not read.

        Returns:
            Marks of what was found, to land; None when there is nothing left to read.
        """
        landed, now = self._unchecked.take(count), self._clock()
        frames: list[Frame] = []
        for table, attempt, text in landed:
            if table.attempt != attempt:
                continue
            try:
                said = read_notification(text)
            except WireError as error:
                frames += [bronze_frames.bad_notification(table.stream, error), *table.distrust(now)]
            else:
                frames += table.notify(said, now) if isinstance(said, TableUpdate) else []
        return frames if landed else None

    def _read(self, notification: Notification) -> list[Frame]:
        """Take one notification, read whole."""
        try:
            said = read_notification(notification.text)
        except WireError as error:
            return self._unreadable(notification, error)
        if isinstance(said, ChannelMessage):
            frame = bronze_frames.notified(message_stream(said.channel), notification)
            is_own = said.channel == self._channel and said.text in self._on_return
            return [frame, *self._on_return.pop(said.text or "")()] if is_own else [frame]
        frame = bronze_frames.notified(said.channel, notification)
        table = self._tables.get(said.channel)
        return [frame, *(self._find(said.channel) if table is None else table.notify(said, self._clock()))]

    def _find(self, stream: str) -> list[Frame]:
        """Take note of a table that was notified and is none of those that take part."""
        if stream in self._unknown:
            return []
        self._unknown.add(stream)
        self.found.append(stream)
        return [mark("unknown stream", stream=stream)]

    def _unreadable(self, notification: Notification, error: WireError) -> list[Frame]:
        """Land what cannot be decoded where it belongs. What belongs nowhere may be of any table."""
        stream = _stream(notification.text)
        if stream is None:
            touched = list(self._tables.values())
            frames = [bronze_frames.bad_frame(notification.frame, error)]
            streams = sorted({*(table.stream for table in touched), *self._logged})
            frames += (bronze_frames.unreadable(each, notification) for each in streams)
        else:
            frames = [bronze_frames.notified(stream, notification), bronze_frames.bad_notification(stream, error)]
            touched = [table for table in self._tables.values() if table.stream == stream]
        now = self._clock()
        return [*frames, *(frame for table in touched for frame in table.distrust(now))]


def _stream(text: bytes) -> str | None:
    """Return the stream of a text that cannot be decoded; None when it does not tell that either."""
    try:
        begins = named_table(text)
        return begins[1].decode() if begins else stream_of(text)
    except (WireError, UnicodeDecodeError):
        return None
