"""Tells the table of most notifications from how they begin, and keeps them until there is time to read them whole.

Landing does not wait for that: what a table's snapshot does not know, or what cannot be decoded, is found a moment
later. So many bytes may wait; what comes then is read before it lands, which is slower, and passes nothing over.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from connectors.sqlitecloud.attempts import TableAttempts

MOST_BYTES: Final = 16 << 20
"""Bytes of text that may wait."""

_BEGINS: Final = re.compile(
    rb'\{"sender":(?:"[^"\\]*"|0),"channel":"([^"\\]+)",(?:"channel_type"|"type"(?!.*"channel_type")):"TABLE",',
    re.DOTALL,
)


named_table: Final = _BEGINS.match
"""Returns a match whose group 1 is the name, in UTF-8, of the table that a text is of; None where its beginning does
not tell. Of each member the first counts, and the newer name before the older, as in `payload.read_notification`."""


Unread: TypeAlias = tuple[TableAttempts, int, bytes]
"""A table, its `TableAttempts.attempt` when the notification landed, and the notification's text."""


class DeferredChecks:
    """Notifications that wait to be read whole, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Unread] = deque()
        self._bytes = 0

    @property
    def room(self) -> int:
        """Bytes that may be added. Without any, what comes must be read at once."""
        return MOST_BYTES - self._bytes

    def add(self, landed: Sequence[Unread]) -> None:
        """Let notifications wait that have landed."""
        self._waiting.extend(landed)
        self._bytes += _size(landed)

    def take(self, count: int) -> list[Unread]:
        """Take so many out, the oldest first; fewer where there are no more."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._bytes -= _size(taken)
        return taken


def _size(unread: Iterable[Unread]) -> int:
    return sum([len(text) for _, _, text in unread])
