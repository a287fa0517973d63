"""One connection of a feed, without its link. It takes events, and returns frames to land and packets to send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from silverfold.conf.errors import ProtocolError, SourceRefused, WireError
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.tengi.protocol.events import BadFrame, MessageReceived
from silverfold.connectors.tengi.protocol.feed.heading import Heading, HeadingReader
from silverfold.connectors.tengi.protocol.feed.packets import (
    Ack,
    Ping,
    Pong,
    Position,
    SourceError,
    Subscribe,
    read_packet,
)
from silverfold.connectors.tengi.receiver.table_feed import TableFeed

_ROWS: Final = frozenset({"schema", "snapshot", "change", "update"})

_MOST_UNKNOWN: Final = 1_000
"""Most names of unknown tables and packets that are counted: a peer chooses them."""

_MOST_SHOWN: Final = 100
"""Most characters of the kind of a packet in a mark: a peer chooses its names."""

_MOST_ANSWERS: Final = 1000
"""Most answers to a source's pings that wait to be sent. Beyond it, pings are not answered."""


class Epoch:
    """The tables of a feed on one connection.

    Args:
        tables: The feed's tables, by stream.
        ping_interval: Seconds between pings. Their answers show that the source is there, and its newest updates.
        clock: Seconds since 1970.
    """

    def __init__(self, tables: Mapping[str, TableFeed], *, ping_interval: float, clock: Callable[[], float]) -> None:
        self._tables, self._ping_interval, self._clock = tables, ping_interval, clock
        self._headings = HeadingReader()
        self._answers: list[Ping | Pong] = []
        self._acknowledged: dict[str, Position] = {}
        self._unknown = Counter[str]()
        self._pings = 0
        self._ping_at = 0.0
        self._reported: dict[str, dict[str, float]] = {}

    @property
    def deadline(self) -> float:
        """Latest time for the next call of `due`."""
        return min(self._ping_at, *(table.deadline for table in self._tables.values()))

    @property
    def landed(self) -> dict[str, Position]:
        """Newest landed positions that are not acknowledged, by stream."""
        found = {stream: table.landed for stream, table in self._tables.items() if table.landed is not None}
        return {stream: at for stream, at in found.items() if self._acknowledged.get(stream) != at}

    def begin(self, now: float) -> list[Frame]:
        """Subscribe to all tables; return the frames to land."""
        self._ping_at = now + self._ping_interval
        return [frame for table in self._tables.values() for frame in table.subscribe(now)]

    def due(self, now: float, *, is_reading: bool = True) -> list[Frame]:
        """Return the frames to land because of the time. Safe to call at any time. Raises as `take`.

        Args:
            is_reading: False while nobody reads: then no packet is late, and only pings are due.
        """
        if self._ping_at <= now:
            self._pings, self._ping_at = self._pings + 1, now + self._ping_interval
            self._answers.append(Ping(self._pings))
        late = [table for table in self._tables.values() if is_reading and table.deadline <= now]
        return [frame for table in late for frame in table.due(now)]

    def postpone(self, seconds: float) -> None:
        """Wait so many seconds longer for all packets: nobody read meanwhile."""
        for table in self._tables.values():
            table.postpone(seconds)

    def requests(self) -> list[Subscribe | Ping | Pong]:
        """Return the packets to send since the last call."""
        found: list[Subscribe | Ping | Pong] = [*self._answers]
        self._answers.clear()
        for table in self._tables.values():
            found += table.requests
            table.requests = []
        return found

    def acknowledge(self, committed: Mapping[str, Position]) -> list[Ack]:
        """Return the acknowledgements for committed positions: the value of `landed` before the commit."""
        self._acknowledged |= committed
        return [Ack(stream, position) for stream, position in committed.items()]

    def take(self, event: MessageReceived | BadFrame, now: float) -> list[Frame]:
        """Take an event; return the frames to land.

        Raises:
            RemoteProtocolError: A table's order cannot be restored.
            SourceRefused: The source refuses all tables.
        """
        if isinstance(event, BadFrame):
            return [self._bad_frame(event.raw, event.error)]
        try:
            heading = self._headings.read(event.raw, event.body_at, event.types)
            if heading.name not in _ROWS:
                return self._take_other(event, heading, now)
        except WireError as error:
            return [self._bad_frame(event.raw, error)]
        table = self._tables.get(heading.table or "")
        if table is None:
            return self._mark_unknown(f"table {heading.table}")
        return table.take(heading, event, now)

    def _bad_frame(self, octets: bytes, error: WireError | ProtocolError) -> Frame:
        """Return the mark of a packet that cannot be read."""
        self._hint(str(error))
        return bad_input("bad frame", octets, error if isinstance(error, WireError) else None, level="warning")

    def _hint(self, reason: str) -> None:
        """Name a packet that may be what any of the tables waits for."""
        for table in self._tables.values():
            table.hint = reason

    def _take_other(self, event: MessageReceived, heading: Heading, now: float) -> list[Frame]:
        if heading.name not in ("ping", "pong", "error"):
            return self._mark_unknown(f"packet {heading.name}")
        packet = read_packet(event.body)
        if isinstance(packet, Pong):
            return self._take_pong(packet, now)
        if isinstance(packet, Ping):
            if len(self._answers) < _MOST_ANSWERS:
                self._answers.append(Pong(packet.seq))
            return []
        assert isinstance(packet, SourceError)
        return self._take_error(packet, now)

    def _take_pong(self, pong: Pong, now: float) -> list[Frame]:
        """Return a mark of the feed's lag behind the source's report, if it has changed."""
        frames: list[Frame] = []
        for stream in sorted(pong.newest.keys() & self._tables.keys()):
            frames += self._tables[stream].take_newest(pong.newest[stream], now)
        clock = self._clock()
        lags = {f"table {stream}": table.lag(clock) for stream, table in self._tables.items()}
        parts = {name: lag for name, lag in lags.items() if lag is not None}
        if parts != self._reported:
            self._reported = parts
            frames.append(mark("progress", parts=parts))
        return frames

    def _take_error(self, error: SourceError, now: float) -> list[Frame]:
        """Pass an error to its table, or to all tables if it names none.

        One of another table lands as a mark: a source may spell the name otherwise than it was asked.
        """
        named = self._tables.get(error.table or "")
        if error.table is not None and named is None:
            what = f"error {error.code} of table {error.table}"[:_MOST_SHOWN]
            self._hint(f"{what}: {error.text}")
            return self._mark_unknown(what, code=error.code, text=error.text)
        tables = self._tables.values() if named is None else [named]
        frames = [frame for table in tables for frame in table.take_error(error, now)]
        refusals = {stream: table.refused for stream, table in self._tables.items() if table.refused is not None}
        if len(refusals) == len(self._tables):
            text = f"the source refuses: {error.text}"
            raise Refused(frames, code=str(error.code), text=text, stream=error.table)
        return frames

    def _mark_unknown(self, what: str, **details: Any) -> list[Frame]:
        """Return a mark for the 1st, 10th, 100th … packet of a kind: a source may send nothing else."""
        what = what[:_MOST_SHOWN]
        if what not in self._unknown and len(self._unknown) >= _MOST_UNKNOWN:
            return []
        self._unknown[what] += 1
        number = self._unknown[what]
        if number != 10 ** (len(str(number)) - 1):
            return []
        return [mark("unexpected packet", what=what, count=number, level="warning", **details)]


class Refused(SourceRefused):
    """A refusal, with the marks that land before it is raised."""

    def __init__(self, frames: list[Frame], *, code: str, text: str, stream: str | None) -> None:
        self.frames = frames
        super().__init__(code=code, text=text, stream=stream)
