"""Quick recognition of a notification's table, and deferral of full parsing until there is time.

Landing does not wait for parsing: columns unknown to a table's snapshot, and undecodable texts, are found a moment
later. The buffer is bounded. Once it is full, notifications are parsed before they land, which is slower but skips
nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from silverfold.connectors.sqlitecloud.receiver.attempts import TableAttempts

MOST_BYTES: Final = 16 << 20
"""Maximum bytes of deferred text."""

_BEGINS: Final = re.compile(
    rb'\{"sender":(?:"[^"\\]*"|0),"channel":"([^"\\]+)",(?:"channel_type"|"type"(?!.*"channel_type")):"TABLE",',
    re.DOTALL,
)


named_table: Final = _BEGINS.match
"""Match the start of a text; group 1 is the name of its table, in UTF-8. None if the start does not reveal it. The
first member of each name counts, and the newer name before the older, as in `payload.read_notification`."""


Deferred: TypeAlias = tuple[TableAttempts, int, bytes]
"""A table, its `TableAttempts.attempt` when the notification landed, and the notification's text."""


class DeferredChecks:
    """Landed notifications pending a full parse, in order."""

    def __init__(self) -> None:
        self._pending: deque[Deferred] = deque()
        self._bytes = 0

    @property
    def room(self) -> int:
        """Bytes that may still be added. At zero or below, notifications must be parsed at once."""
        return MOST_BYTES - self._bytes

    def add(self, landed: Sequence[Deferred]) -> None:
        """Defer landed notifications."""
        self._pending.extend(landed)
        self._bytes += _size(landed)

    def take(self, count: int) -> list[Deferred]:
        """Remove and return the oldest notifications, at most ``count``."""
        taken = [self._pending.popleft() for _ in range(min(count, len(self._pending)))]
        self._bytes -= _size(taken)
        return taken


def _size(deferred: Iterable[Deferred]) -> int:
    return sum([len(text) for _, _, text in deferred])
