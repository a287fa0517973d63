"""The course of one epoch, without a socket: notifications become bronze frames, and tables become due.

Notifications land byte for byte. They are parsed to find their stream, to check open snapshot windows, and to detect
when a table must be read again: when one has columns that the last snapshot lacks, or cannot be decoded. That does not
end the epoch. While no window is open, most are not parsed but read as typed (`typed_notification`), and parsing of the
others is deferred (`deferred_checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from silverfold.conf.errors import WireError
from silverfold.connectors.common.backoff import Backoff, CircuitBreaker
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.frame_access import log_stream, message_stream
from silverfold.connectors.sqlitecloud.protocol.landed.payload import (
    ChannelMessage,
    TableUpdate,
    parse_streams,
    read_notification,
)
from silverfold.connectors.sqlitecloud.protocol.landed.typed_notification import Reader, read_nothing
from silverfold.connectors.sqlitecloud.protocol.messages import Notification
from silverfold.connectors.sqlitecloud.receiver import bronze_frames
from silverfold.connectors.sqlitecloud.receiver.attempts import TableAttempts
from silverfold.connectors.sqlitecloud.receiver.deferred_checks import Deferred, DeferredChecks, named_table

_MOST_TOLD: Final = 1000
"""Streams that nobody captures of which a first notification that cannot be read is told: a peer names any number."""


class Epoch:
    """The streams of one session.

    Args:
        tables: Settings of the feed's tables, by stream.
        channel: Our own channel, which carries fences and canaries.
        backoff: Creates the backoff of one table.
        circuit_breaker: Suspends tables whose snapshots break epochs.
        clock: Seconds, of any origin.
        logged: Tables whose notifications also land in their log's stream, each right behind the original.
    """

    def __init__(
        self,
        tables: Mapping[str, SqliteCloudTable],
        options: SqliteCloudOptions,
        *,
        channel: str,
        backoff: Callable[[], Backoff],
        circuit_breaker: CircuitBreaker,
        clock: Callable[[], float],
        logged: Collection[str] = (),
        channels: Collection[str] = (),
    ) -> None:
        self.settings, self._options, self._channel = tables, options, channel
        self._backoff, self.circuit_breaker, self._clock = backoff, circuit_breaker, clock
        self._tables: dict[str, TableAttempts] = {}
        self._by_name: dict[bytes, TableAttempts] = {}
        self._deferred = DeferredChecks()
        self._logged, self._unknown = logged, set[str]() if options.all_tables else set(logged)
        self._channels = channels
        self._unread = set[str]()
        self._on_return: dict[str, Callable[[], list[Frame]]] = {}
        self.candidates: list[str] = []
        """Candidate tables that are not captured yet; the receiver checks and removes them."""

    def add(self, stream: str, schema: int | None = None) -> TableAttempts:
        """Start capturing a table; its snapshot is due at once, or when it is suspended no longer.

        Args:
            schema: Schema version before the table was listened to.
        """
        table, now = self.settings_of(stream), self._clock()
        due = now + self.circuit_breaker.suspension(stream)
        attempts = TableAttempts(stream, table, self._options, self._backoff(), schema=schema, now=now, due=due)
        self._tables[stream] = self._by_name[stream.encode()] = attempts
        return attempts

    def leave(self, stream: str) -> None:
        """Stop capturing a table; its next notification makes it found again."""
        self._tables.pop(stream, None)
        self._by_name.pop(stream.encode(), None)
        self._unknown.discard(stream)

    def is_wanted(self, stream: str) -> bool:
        """Return whether a table should be captured, but is not yet."""
        return stream not in self._tables and (self._options.all_tables or stream in self.settings)

    def compare_schema(self, version: int) -> list[Frame]:
        """Compare every table with the current schema version; tables described under another one become due.

        Nothing reliably identifies the tables that a schema change affects: a recreated table can have the same name,
        SQL text and root page as the one before.
        """
        now = self._clock()
        return [frame for table in self._tables.values() for frame in table.compare_schema(version, now)]

    def settings_of(self, stream: str) -> SqliteCloudTable:
        """Return the settings of a table, or the defaults if the feed has no table for it."""
        return self.settings.get(stream) or SqliteCloudTable()

    def next_due(self) -> TableAttempts | None:
        """Return the table whose snapshot is most overdue; None if none is due now."""
        now = self._clock()
        due = [(table.due, stream) for stream, table in self._tables.items() if table.due is not None]
        first, stream = min(due, default=(now + 1, ""))
        return self._tables[stream] if first <= now else None

    def wait(self) -> float | None:
        """Return seconds until the next snapshot is due; None if none is scheduled."""
        times = [table.due for table in self._tables.values() if table.due is not None]
        return max(0.0, min(times) - self._clock()) if times else None

    def expect(self, token: str, then: Callable[[], list[Frame]] = list) -> None:
        """Expect a message on our channel; when it comes back, the frames of ``then`` land behind it."""
        self._on_return[token] = then

    def has_returned(self, token: str) -> bool:
        """Return whether the expected message has come back."""
        return token not in self._on_return

    def receive(self, notifications: Iterable[Notification]) -> list[Frame]:
        """Process notifications in order; return the frames to land, each notification's own first."""
        frames: list[Frame] = []
        deferred: list[Deferred] = []
        room, whole, new = self._deferred.room, Boundary.WHOLE, tuple.__new__
        read: Reader = read_nothing
        stream = ""
        for notification in notifications:
            text, frame = notification
            if read(text) is None:
                table = self._table_named(text)
                # A message has no table. It may open a window, so the reader is looked up again after it.
                read, stream = (read_nothing, "") if table is None else (table.reader(text), table.stream)
                if read(text) is None:
                    if table is None or table.is_open or room <= 0:
                        frames += self._process(notification)
                        continue
                    room -= len(text)
                    deferred.append((table, table.attempt, text))
            frames.append(new(Frame, (frame, Kind.DATA, whole, stream, None)))
        self._deferred.add(deferred)
        return self._with_logs(frames) if self._logged else frames

    def _with_logs(self, frames: Iterable[Frame]) -> list[Frame]:
        """Add a copy of each logged table's notifications in its log's stream."""
        found: list[Frame] = []
        for frame in frames:
            found.append(frame)
            if frame.kind is Kind.DATA and frame.stream in self._logged:
                found.append(frame._replace(stream=log_stream(frame.stream or "")))
        return found

    def _table_named(self, text: bytes) -> TableAttempts | None:
        """Return the captured table named at the start of the text, if any."""
        begins = named_table(text)
        return None if begins is None else self._by_name.get(begins[1])

    def check(self, count: int) -> list[Frame] | None:
        """Parse up to ``count`` deferred notifications.

        Returns:
            Marks of the findings, to land; None if nothing is left to parse.
        """
        landed, now = self._deferred.take(count), self._clock()
        frames: list[Frame] = []
        for table, attempt, text in landed:
            if table.attempt != attempt:
                continue
            try:
                message = read_notification(text)
            except WireError as error:
                frames += [bronze_frames.bad_notification(table.stream, error), *table.distrust(now)]
            else:
                frames += table.notify(message, now) if isinstance(message, TableUpdate) else []
        return frames if landed else None

    def _process(self, notification: Notification) -> list[Frame]:
        """Process one notification, fully parsed."""
        try:
            message = read_notification(notification.text)
        except WireError as error:
            return self._land_unreadable(notification, error)
        if isinstance(message, ChannelMessage):
            frame = bronze_frames.notification_frame(message_stream(message.channel), notification)
            is_own = message.channel == self._channel and message.text in self._on_return
            return [frame, *self._on_return.pop(message.text or "")()] if is_own else [frame]
        frame = bronze_frames.notification_frame(message.channel, notification)
        table = self._tables.get(message.channel)
        return [
            frame,
            *(self._note_unknown(message.channel) if table is None else table.notify(message, self._clock())),
        ]

    def _note_unknown(self, stream: str) -> list[Frame]:
        """Record a notified table that is not captured."""
        if stream in self._unknown:
            return []
        self._unknown.add(stream)
        self.candidates.append(stream)
        return [mark("unknown stream", stream=stream), *self._of_channel(stream)]

    def _of_channel(self, table: str) -> list[Frame]:
        """Return a warning for the silver table of a channel that is a table, which has no messages."""
        if table not in self._channels:
            return []
        why = f"{table} is a table of the database, whose changes are no messages: name it as source, not as channel"
        return [mark("no channel", stream=message_stream(table), level="warning", reason=why)]

    def _land_unreadable(self, notification: Notification, error: WireError) -> list[Frame]:
        """Land an undecodable notification in the streams that it may be of: every table's if it names none."""
        named = _named_streams(notification.text)
        if not named:
            affected = list(self._tables.values())
            frames = [bronze_frames.bad_frame(notification.frame, error)]
            streams = sorted({*(table.stream for table in affected), *self._logged})
            frames += (bronze_frames.unreadable_frame(each, notification) for each in streams)
        else:
            frames = []
            for stream in named:
                frames.append(bronze_frames.notification_frame(stream, notification))
                if self._is_told(stream):
                    frames.append(bronze_frames.bad_notification(stream, error))
            affected = [table for table in self._tables.values() if table.stream in named]
        now = self._clock()
        return [*frames, *(frame for table in affected for frame in table.distrust(now))]

    def _is_told(self, stream: str) -> bool:
        """Return whether what cannot be read is told: always of what is captured, else the first of a stream."""
        if stream in self._tables or stream in self._logged:
            return True
        if stream in self._unread or len(self._unread) == _MOST_TOLD:
            return False
        self._unread.add(stream)
        return True


def _named_streams(text: bytes) -> Sequence[str]:
    """Return the streams that an undecodable text names; none if they are unreadable too."""
    try:
        begins = named_table(text)
        return [begins[1].decode()] if begins else parse_streams(text)
    except (WireError, UnicodeDecodeError):
        return []
