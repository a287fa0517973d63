"""The frames that become of requests, without sockets.

Each body becomes a data frame of its stream, unaltered, also where its table is none of the feed's. Before the first
that names a column, a control frame tells it. A body that does not say where it belongs becomes a mark:

===============  =====================================================================================
mark             details
===============  =====================================================================================
bad body         ``reason``, ``length``, and all of it as ``body``, base64
unknown table    ``table``, its stream: once, of one that is no table of the feed's
refused          ``status``, ``reason``, ``count``: requests since it was told last. The first at once, then
                 at most once a minute each: whoever knows no secret cannot fill bronze
===============  =====================================================================================
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from conf.errors import InvalidValue
from connectors.base import Boundary, Frame, Kind, mark
from connectors.sqlitecloud_webhooks.columns import MOST_COLUMNS, telling
from connectors.sqlitecloud_webhooks.messages import addressed, column_names, parse_body
from connectors.sqlitecloud_webhooks.protocol import Refusal

MOST_STREAMS: Final = 10_000
"""Of how many streams it is known which columns were told. One more, and all are told again."""

_QUIET: Final = 60.0


class Landing:
    """What one receiver lands, in all its epochs. A new one tells again what was told before: that changes nothing.

    Args:
        streams: Those of the feed's tables.
    """

    def __init__(self, streams: Collection[str]) -> None:
        self._streams = frozenset(streams)
        self._told: dict[str, dict[str, None]] = {}
        self._unknown: set[str] = set()
        self._refused: Counter[Refusal] = Counter()
        self._refused_at: dict[Refusal, float] = {}

    def frames(self, body: bytes) -> list[Frame]:
        """Return the frames of one request's body, to be landed together."""
        try:
            members = parse_body(body)
            stream = addressed(members).stream
        except InvalidValue as error:
            kept = b64encode(body).decode("ascii")
            return [mark("bad body", level="warning", reason=str(error), length=len(body), body=kept)]
        try:
            names = column_names(members)
        except InvalidValue:
            names = ()  # the decoder says so, where the table is one of the feed's
        return [
            *self._unknown_table(stream),
            *self._new_columns(stream, names),
            Frame(body, Kind.DATA, Boundary.WHOLE, stream),
        ]

    def refused(self, refusal: Refusal, now: float) -> list[Frame]:
        """Return the mark of a refused request, and of those like it before; nothing when it is not to be told yet.

        Args:
            now: Seconds, from any moment on.
        """
        if not refusal.is_final:
            return []
        self._refused[refusal] += 1
        if now - self._refused_at.get(refusal, -_QUIET) < _QUIET:
            return []
        self._refused_at[refusal] = now
        return [self._mark_of(refusal)]

    def end(self) -> list[Frame]:
        """Return the marks of refused requests that were not told yet."""
        return [self._mark_of(refusal) for refusal in list(self._refused)]

    def _mark_of(self, refusal: Refusal) -> Frame:
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
        if stream not in self._told and len(self._told) >= MOST_STREAMS:
            self._told.clear()
        told = self._told.setdefault(stream, {})
        new = [name for name in names if name not in told]
        if new and len(told) + len(new) <= MOST_COLUMNS:
            told.update(dict.fromkeys(new))
            yield telling(stream, new)
