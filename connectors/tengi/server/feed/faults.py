"""Packets of a source that are lost, repeated, reordered, or end their connection: what a receiver must survive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from silverfold.connectors.tengi.server.feed.tables import Outgoing

_MOST_HELD: Final = 16
"""Packets that may be late at one time."""


@dataclass(frozen=True)
class FeedFaults:
    """How often each packet meets a fault: 0 is never, 1 always.

    Args:
        lose: It is not sent.
        repeat: It is sent twice.
        reorder: It is sent after later ones.
        drop_parts: It is not sent if it is a part of a snapshot.
        close: The connection ends before it.
    """

    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    drop_parts: float = 0.0
    close: float = 0.0


class FaultyLink:
    """The packets of one connection, on their way to it."""

    def __init__(self, faults: FeedFaults, chance: Random) -> None:
        self._faults, self._chance = faults, chance
        self._late: list[Outgoing] = []

    def closes(self) -> bool:
        """Return whether the connection is to end before the next packet."""
        return self._meets(self._faults.close)

    def send(self, packet: Outgoing) -> Iterator[Outgoing]:
        """Yield the packets to send in place of one, in order."""
        is_lost = self._meets(self._faults.lose)
        if is_lost or (packet.name == "snapshot" and self._meets(self._faults.drop_parts)):
            return
        copies = 2 if self._meets(self._faults.repeat) else 1
        for _ in range(copies):
            if len(self._late) < _MOST_HELD and self._meets(self._faults.reorder):
                self._late.append(packet)
            else:
                yield packet
                while self._late and self._chance.random() < 0.5:
                    yield self._late.pop(self._chance.randrange(len(self._late)))

    def flush(self) -> Iterator[Outgoing]:
        """Yield the packets that are late; nothing else follows for now."""
        while self._late:
            yield self._late.pop(self._chance.randrange(len(self._late)))

    def _meets(self, rate: float) -> bool:
        return rate > 0 and self._chance.random() < rate
