"""Tells the table of most notifications from how they begin, and keeps them until there is time to read them whole.

Landing does not wait for that: what a table's snapshot does not know, or what cannot be decoded, is found a moment
later. So many bytes may wait; what comes then is read before it lands, which is slower, and passes nothing over.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from connectors.sqlitecloud.attempts import TableAttempts

MOST_BYTES: Final = 16 << 20
"""Bytes of text that may wait."""

_BEGINS: Final = re.compile(
    rb'\{"sender":(?:"[^"\\]*"|0),"channel":"([^"\\]+)",(?:"channel_type"|"type"(?!.*"channel_type")):"TABLE",',
    re.DOTALL,
)


def named_table(text: bytes) -> bytes | None:
    """Return the name, in UTF-8, of the table that a text is of; None where its beginning does not tell.

    Of each member the first counts, and the newer name before the older, as in `payload.read_notification`.
    """
    found = _BEGINS.match(text)
    return found[1] if found else None


class Landed(NamedTuple):
    """A notification that has landed and was not read."""

    table: TableAttempts
    attempt: int
    """`TableAttempts.attempt` when it landed."""
    text: bytes


class Unchecked:
    """Notifications that wait to be read whole, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Landed] = deque()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether what comes must be read at once."""
        return self._bytes >= MOST_BYTES

    def add(self, table: TableAttempts, text: bytes) -> None:
        """Let a notification wait that has landed."""
        self._waiting.append(Landed(table, table.attempt, text))
        self._bytes += len(text)

    def take(self, count: int) -> list[Landed]:
        """Take so many out, the oldest first; fewer where there are no more."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._bytes -= sum(len(landed.text) for landed in taken)
        return taken
