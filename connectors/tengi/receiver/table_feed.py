"""One table on one connection: which of its packets land, and when the table is asked for.

PROTOCOL.md has the rules, under "Change feed" and "Our receiver".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Final

from silverfold.conf.errors import WireError
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.tengi.options import TengiOptions
from silverfold.connectors.tengi.protocol.events import MessageReceived
from silverfold.connectors.tengi.protocol.feed.heading import Heading, read_heading
from silverfold.connectors.tengi.protocol.feed.order import (
    Action,
    Ask,
    Duplicate,
    Gap,
    GivenUp,
    Land,
    NewerEpoch,
    TableOrder,
    doubled,
)
from silverfold.connectors.tengi.protocol.feed.packets import (
    Newest,
    Position,
    Schema,
    SourceError,
    Subscribe,
    read_packet,
)
from silverfold.connectors.tengi.protocol.frame_access import read_frame

_BOUNDARIES: Final = {each.value: each for each in Boundary}
_NEVER: Final = float("inf")
_NAMED: Final = frozenset({3, 10, 100})
"""Numbers of subscriptions in vain at which a warning says so."""
_MOST_REPORTS: Final = 1_000
"""Most reports of updates that have not landed. Beyond it, every second one is dropped: lags look smaller."""
_NO_VERSION: Final = -1 << 31
"""At most any version of a schema."""
_NO_POSITION: Final = "none"
"""Source position of the mark ``snapshot asked``. Until a snapshot is complete, later connections ask for one."""


class TableFeed:
    """A subscription to one table.

    Args:
        position: Position of the last landed change. None if there is none: a snapshot is asked for.
        schemas: Newest known schema of each stream. Updated.
        last_landed: Position of the last change that landed of each stream, on any connection, for the lag: it is known
            while a snapshot is asked for, too. Updated.
        backoff: The waits after errors of the source.
    """

    def __init__(
        self,
        stream: str,
        position: Position | None,
        options: TengiOptions,
        *,
        schemas: MutableMapping[str, Schema],
        last_landed: MutableMapping[str, Position],
        backoff: Backoff,
    ) -> None:
        self._stream, self._options, self._schemas, self._backoff = stream, options, schemas, backoff
        self._order, self._resumed = self._new_order(position), position
        self._last_landed = last_landed
        if position is not None:
            last_landed[stream] = position
        self._schema: Schema | None = None
        self._early: list[tuple[Heading, MessageReceived]] = []
        self._early_bytes, self._is_older, self._is_newer = 0, False, False
        self._schema_by = self._part_by = self._idle_by = self._retry_at = _NEVER
        self._vain = 0
        """Subscriptions in a row whose answer, or whose snapshot, did not come, or whose schema was of no use."""
        self._awaited = _NO_VERSION
        """Highest version of rows that came before a schema of it."""
        self._has_asked = False
        """Whether the last subscription asked for a snapshot: unless anything came since, the mark of that counts."""
        self.hint: str | None = None
        """The newest packet since the last subscription that cannot be read, or an error that names no table of the
        feed: it may have been the answer. Set by the epoch, too."""
        self._newest: list[Newest] = []
        """Reported updates that have not landed, ascending; the last item is always the newest report."""
        self.requests: list[Subscribe] = []
        """Packets to send. The sender clears the list."""
        self.landed: Position | None = None
        """Newest position that landed on this connection."""
        self.duplicates = 0
        """Number of packets that had landed before, or that a snapshot or a newer schema supersedes."""
        self.refused: SourceError | None = None
        """The source's final error for the table; None while it serves the table."""

    @property
    def deadline(self) -> float:
        """Latest time for the next call of `due`."""
        order = self._order.deadline
        due = (self._schema_by, self._part_by, self._idle_by, self._retry_at, _NEVER if order is None else order)
        return _NEVER if self.refused else min(due)

    def subscribe(self, now: float) -> list[Frame]:
        """Subscribe from the position on; return the frames to land. A snapshot under way is replaced by another."""
        self._order.abandon_snapshot(now)
        position = self._order.position
        request = (
            Subscribe(self._stream, -1) if position is None else Subscribe(self._stream, position.seq, position.epoch)
        )
        self.requests = [request]
        self._schema_by = now + doubled(self._options.subscribe_wait, self._vain)
        self._idle_by = now + self._options.resubscribe_idle
        self._part_by = self._retry_at = _NEVER
        self.hint = None
        is_known = self._has_asked and self._vain > min(_NAMED)
        self._has_asked = position is None
        asked = mark("snapshot asked", stream=self._stream)._replace(source_position=_NO_POSITION)
        return [asked] if position is None and not is_known else []

    def due(self, now: float) -> list[Frame]:
        """Return the frames to land because of the time. Safe to call early. Raises as `take` if a gap stays."""
        if self.refused:
            return []
        is_vain = min(self._schema_by, self._part_by) <= now
        self._vain += is_vain
        late = is_vain or min(self._idle_by, self._retry_at) <= now
        warnings = [self._asked_in_vain()] if is_vain and self._vain in _NAMED else []
        asked = self.subscribe(now) if late else []
        return [*asked, *warnings, *self._perform(self._order.elapsed(now), now)]

    def _asked_in_vain(self) -> Frame:
        """Return a warning. Status shows it as long as no other mark of the stream lands behind it."""
        details: dict[str, object] = {"times": self._vain}
        reasons = [] if self.hint is None else [self.hint]
        known = None if self._schema is None else self._schema.version
        if self._awaited > (_NO_VERSION if known is None else known):
            details |= {"version": self._awaited, "newest": known}
            reasons.insert(0, f"rows of version {self._awaited} wait for a schema, {_newest_of(known)}")
        if reasons:
            details["reason"] = "; ".join(reasons)
        return mark("asked in vain", stream=self._stream, level="warning", **details)

    def postpone(self, seconds: float) -> None:
        """Wait so many seconds longer for all packets."""
        self._schema_by += seconds
        self._part_by += seconds
        self._idle_by += seconds
        self._order.postpone(seconds)

    def take(self, heading: Heading, packet: MessageReceived, now: float) -> list[Frame]:
        """Take a schema, a part of a snapshot, or a change; return the frames to land.

        Raises:
            RemoteProtocolError: The source's order cannot be restored.
        """
        if self.refused:
            return []
        if heading.name == "schema":
            return self._take_schema(packet, now)
        if self._schema is None or (heading.version or 0) > self._schema.version:
            return self._take_early(heading, packet, now)
        return self._take_rows(heading, packet, now)

    def take_error(self, error: SourceError, now: float) -> list[Frame]:
        """Take an error of the source. Unless it is final, the table is asked for again after a wait.

        A refused table takes no more: nothing is asked for, and its refusal stays its newest mark.
        """
        if self.refused:
            return []
        details = {"code": error.code, "text": error.text}
        if error.is_final:
            self.refused = error
            return [mark("source error", stream=self._stream, level="warning", **details)]
        wait = self._backoff.next_wait()
        self._schema_by, self._retry_at = _NEVER, now + wait
        return [mark("source error", stream=self._stream, level="warning", next_in=round(wait, 3), **details)]

    def take_newest(self, newest: Newest, now: float) -> list[Frame]:
        """Take the source's report of its newest update; return the frames to land."""
        earlier = [each for each in self._not_landed() if each.position < newest.position]
        if len(earlier) > _MOST_REPORTS:
            del earlier[1::2]
        self._newest = [*earlier, newest]
        return self._begin_anew(now) if self._is_behind(newest.position) else []

    def lag(self, clock: float) -> dict[str, float] | None:
        """Return the table's lag behind the source's report, by measure: that of what landed last.

        None before the first report and the first landing, and while the source's epoch differs from that of what
        landed.

        Args:
            clock: Seconds since 1970.
        """
        position = self._last_landed.get(self._stream)
        if position is None or not self._newest or self._newest[-1].position.epoch != position.epoch:
            return None
        missing = self._not_landed()
        lag: dict[str, float] = {
            "updates_behind": max(0, self._newest[-1].position.seq - position.seq),
            "updates_held": self._order.held + len(self._early),
            "packets_repeated": self.duplicates,
        }
        if not missing:
            return {**lag, "seconds_behind": 0}
        since = missing[0].ts
        return lag if since is None else {**lag, "seconds_behind": round(max(0.0, clock - since / 1e6), 1)}

    def _not_landed(self) -> list[Newest]:
        position = self._last_landed.get(self._stream)
        return [each for each in self._newest if position is None or each.position > position]

    def _is_behind(self, newest: Position) -> bool:
        """Return whether the source has lost updates that landed on earlier connections, as its newest one shows.

        It reuses their numbers, so new updates would count as repeated ones. A source that has caught up does not show.
        """
        resumed, landed = self._resumed, self.landed
        if resumed is None or self.refused or (landed is not None and landed.epoch != resumed.epoch):
            return False  # packets of an epoch that is over are just late
        return newest.epoch == resumed.epoch and newest.seq < resumed.seq

    def _begin_anew(self, now: float) -> list[Frame]:
        """Ask a source that is behind for a snapshot; return the frames to land. Once on a connection."""
        behind = mark("source behind", stream=self._stream, level="warning", landed=str(self._resumed))
        self._order, self._resumed = self._new_order(None), None
        self._last_landed.pop(self._stream, None)  # the source is behind it
        return [behind, *self.subscribe(now)]

    def _new_order(self, position: Position | None) -> TableOrder[MessageReceived]:
        options = self._options
        return TableOrder(
            self._stream,
            position,
            wait=options.reorder_wait,
            max_held=options.reorder_packets,
            max_bytes=options.reorder_bytes,
        )

    def _take_schema(self, packet: MessageReceived, now: float) -> list[Frame]:
        """Land a new schema. Ask for a snapshot if older rows, or one under way, may not fit it."""
        try:
            schema = read_packet(packet.body)
        except WireError as error:
            self.hint = str(error)
            return [bad_input("bad frame", packet.raw, error, stream=self._stream, level="warning")]
        assert isinstance(schema, Schema)
        self._schema_by = _NEVER
        self._backoff.reset()
        if self._order.position is None:
            self._part_by = now + doubled(self._options.snapshot_wait, self._vain)
        else:
            self._count_anew(schema.version if self._schema is None else max(schema.version, self._schema.version))
        if self._schema is not None and (schema == self._schema or schema.version < self._schema.version):
            return self._take_waiting(now)
        self._schema = schema
        frames = [Frame(packet.raw, Kind.CONTROL, Boundary.NONE, self._stream)]
        before = self._schemas.get(self._stream, schema)
        if self._order.has_snapshot or (self._order.position is not None and _outgrows(schema, before)):
            self._order = self._new_order(None)
            frames += self.subscribe(now)
        frames += self._take_waiting(now)
        self._schemas[self._stream] = schema  # now: if one that waited ends the connection, the schema does not land
        return frames

    def _count_anew(self, version: int) -> None:
        """End the row of subscriptions in vain, unless rows wait for a schema of a greater version."""
        if version >= self._awaited:
            self._vain = 0

    def _take_waiting(self, now: float) -> list[Frame]:
        early, self._early, self._early_bytes = self._early, [], 0
        return [frame for heading, packet in early for frame in self.take(heading, packet, now)]

    def _take_early(self, heading: Heading, packet: MessageReceived, now: float) -> list[Frame]:
        """Hold a packet until its schema comes. Without room it is given up, and the source sends it again."""
        options, size = self._options, len(packet.raw)
        self._awaited = max(self._awaited, heading.version or 0)
        self._schema_by = min(self._schema_by, now + doubled(options.subscribe_wait, self._vain))
        if len(self._early) >= options.reorder_packets or self._early_bytes + size > options.reorder_bytes:
            return [_given_up(self._stream, heading)]
        self._early.append((heading, packet))
        self._early_bytes += size
        return []

    def _take_rows(self, heading: Heading, packet: MessageReceived, now: float) -> list[Frame]:
        assert heading.position is not None
        assert self._schema is not None
        position, order = heading.position, self._order
        if heading.id is not None and heading.version is not None and heading.version < self._schema.version:
            self.duplicates += 1
            return []
        if self._is_behind(position):  # shown by a change that is older than those asked for
            return self._begin_anew(now)
        self._idle_by = now + self._options.resubscribe_idle
        if heading.id is None:
            return self._perform(order.change(position, packet, len(packet.raw), now), now)
        part, is_last = heading.part, heading.is_last
        actions = order.snapshot_part(position, heading.id, packet, now, part=part, is_last=is_last)
        is_awaited = order.has_snapshot or order.position is None
        self._part_by = now + self._options.snapshot_wait if is_awaited else _NEVER
        return self._perform(actions, now, Kind.SNAPSHOT)

    def _perform(self, actions: Iterable[Action[MessageReceived]], now: float, kind: Kind = Kind.DATA) -> list[Frame]:
        """Return the frames of actions. ``kind`` is that of the first frame; changes follow a snapshot."""
        frames: list[Frame] = []
        for action in actions:
            match action:
                case Land(packet, boundary, position):
                    self._count_anew(_NO_VERSION if self._schema is None else self._schema.version)
                    at = None if position is None else str(position)
                    frames.append(Frame(packet.raw, kind, _BOUNDARIES[boundary], self._stream, at))
                    kind = Kind.DATA
                    if position is not None:
                        self.landed = self._last_landed[self._stream] = position
                case Duplicate(packet):
                    self.duplicates += 1
                    frames += self._older_epoch(packet)
                case GivenUp(packet):
                    frames.append(_given_up(self._stream, None))
                case Gap(epoch, first, last):
                    gap = {"epoch": epoch, "first": first, "last": last}
                    frames.append(mark("gap", stream=self._stream, level="warning", **gap))
                case NewerEpoch(epoch, landed):
                    if not self._is_newer:
                        newer = {"epoch": epoch, "landed": landed}
                        frames.append(mark("newer epoch", stream=self._stream, level="warning", **newer))
                    self._is_newer = True
                case Ask():
                    frames += self.subscribe(now)
        return frames

    def _older_epoch(self, packet: MessageReceived) -> list[Frame]:
        """Return a mark, once, if the source's epoch is older than that of the landed position: nothing would land."""
        found, landed = read_heading(packet.raw, packet.body_at, packet.types).position, self._order.position
        if self._is_older or found is None or landed is None or found.epoch >= landed.epoch:
            return []
        self._is_older = True
        return [mark("older epoch", stream=self._stream, level="warning", epoch=found.epoch, landed=landed.epoch)]


def _newest_of(version: int | None) -> str:
    return "and none came" if version is None else f"and the newest has version {version}"


def _given_up(stream: str, heading: Heading | None) -> Frame:
    at = None if heading is None else str(heading.position)
    return mark("given up", stream=stream, source_position=at)


def resumed_position(positions: Mapping[str, str], stream: str) -> Position | None:
    """Return the last landed position of a stream; None without one, or if a snapshot was asked for after it.

    Raises:
        InvalidValue: The position is another connector's.
    """
    found = positions.get(stream, _NO_POSITION)
    return None if found == _NO_POSITION else Position.parse(found)


def landed_positions(positions: Mapping[str, str]) -> dict[str, Position]:
    """Return the last landed positions of the streams that have one."""
    found: dict[str, Position] = {}
    for stream in positions:
        with suppress(WireError):  # bronze may have frames of another connector
            if (position := resumed_position(positions, stream)) is not None:
                found[stream] = position
    return found


def landed_schemas(controls: Mapping[str, bytes], *, limit: int) -> dict[str, Schema]:
    """Return the newest landed schema of each stream.

    Args:
        controls: `connectors.frames.Resume.stream_controls`.
        limit: Most bytes of a packet.
    """
    found: dict[str, Schema] = {}
    for stream, body in controls.items():
        with suppress(WireError):  # bronze may have frames of another connector
            packet = read_packet(read_frame(body, limit=limit))
            if isinstance(packet, Schema):
                found[stream] = packet
    return found


def _outgrows(schema: Schema, before: Schema) -> bool:
    """Return whether rows of an earlier schema may not fit: a column is new, a type changed, or keys differ.

    They also may not fit if versions between the two never came: a column of both may have been dropped and made anew.
    """
    is_next = schema.version in (before.version, before.version + 1)
    return not is_next or schema.keys != before.keys or not schema.columns.items() <= before.columns.items()
