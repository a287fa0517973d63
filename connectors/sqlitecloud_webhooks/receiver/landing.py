"""Conversion of requests into frames, without sockets.

Each body becomes a data frame of its stream, unaltered, even if its table is not configured in the feed. A control
frame announces each new column before the first body that names it. A body without a recognizable stream becomes a
mark:

===============  =====================================================================================
mark             details
===============  =====================================================================================
bad body         ``reason``, ``length``, and the complete body as ``body``, base64
unknown table    ``table``, its stream: once for each table that is not in the feed
refused          ``status``, ``reason``, ``count``: requests since the last such mark. The first at once, then
                 at most once a minute each: clients without the secret cannot fill bronze
===============  =====================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.sqlitecloud_webhooks.protocol.gate import Refusal
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import MOST_COLUMNS, announcement
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import column_names, parse_body, source_table

MOST_STREAMS: Final = 10_000
"""Maximum streams whose announced columns are remembered. Beyond it, all are announced again."""

_QUIET: Final = 60.0


class Landing:
    """The frames of one receiver, in all its epochs. A new instance repeats earlier announcements, which is harmless.

    Args:
        streams: The streams of the feed's tables.
    """

    def __init__(self, streams: Collection[str]) -> None:
        self._streams = frozenset(streams)
        self._announced: dict[str, dict[str, None]] = {}
        self._unknown: set[str] = set()
        self._refused: Counter[Refusal] = Counter()
        self._refused_at: dict[Refusal, float] = {}

    def frames(self, body: bytes) -> list[Frame]:
        """Return the frames of one request's body, to be landed together."""
        try:
            members = parse_body(body)
            stream = source_table(members).stream
        except InvalidValue as error:
            complete = len(body)  # nobody has it but us once it is accepted, and max_body_bytes is its bound
            return [bad_input("bad body", body, most=complete, level="warning", reason=str(error), length=complete)]
        try:
            names = column_names(members)
        except InvalidValue:
            names = ()  # the decoder reports it if the table is one of the feed's
        return [
            *self._unknown_table(stream),
            *self._new_columns(stream, names),
            Frame(body, Kind.DATA, Boundary.WHOLE, stream),
        ]

    def refused(self, refusal: Refusal, now: float) -> list[Frame]:
        """Return the mark of a refused request and earlier ones like it; nothing if the next mark is not due yet.

        Args:
            now: Seconds, of any origin.
        """
        if not refusal.is_final:
            return []
        self._refused[refusal] += 1
        if now - self._refused_at.get(refusal, -_QUIET) < _QUIET:
            return []
        self._refused_at[refusal] = now
        return [self._refused_mark(refusal)]

    def end(self) -> list[Frame]:
        """Return the pending marks of refused requests."""
        return [self._refused_mark(refusal) for refusal in list(self._refused)]

    def _refused_mark(self, refusal: Refusal) -> Frame:
        return mark(
            "refused",
            level="warning",
            status=int(refusal.status),
            reason=refusal.reason,
            count=self._refused.pop(refusal),
        )

    def _unknown_table(self, stream: str) -> Iterator[Frame]:
        if stream not in self._streams and stream not in self._unknown and len(self._unknown) < MOST_STREAMS:
            self._unknown.add(stream)
            yield mark("unknown table", level="warning", table=stream)

    def _new_columns(self, stream: str, names: tuple[str, ...]) -> Iterator[Frame]:
        if stream not in self._announced and len(self._announced) >= MOST_STREAMS:
            self._announced.clear()
        announced = self._announced.setdefault(stream, {})
        new = [name for name in names if name not in announced]
        if new and len(announced) + len(new) <= MOST_COLUMNS:
            announced.update(dict.fromkeys(new))
            yield announcement(stream, new)
