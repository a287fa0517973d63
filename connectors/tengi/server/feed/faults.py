"""Faults that a receiver must survive: packets that are lost, repeated or reordered, and connections that end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from silverfold.connectors.tengi.server.feed.tables import Outgoing

_MOST_HELD: Final = 16
"""Most packets that are late at a time."""


@dataclass(frozen=True)
class FeedFaults:
    """The share of packets that each fault happens to, from 0 to 1.

    Args:
        lose: The packet is not sent.
        repeat: It is sent twice.
        reorder: It is sent after later ones.
        drop_parts: It is not sent; only for parts of snapshots.
        close: The connection ends before it.
    """

    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    drop_parts: float = 0.0
    close: float = 0.0


class FaultyLink:
    """Applies the faults to the packets of one connection."""

    def __init__(self, faults: FeedFaults, chance: Random) -> None:
        self._faults, self._chance = faults, chance
        self._late: list[Outgoing] = []

    def closes(self) -> bool:
        """Return whether the connection must end before the next packet."""
        return self._meets(self._faults.close)

    def send(self, packet: Outgoing) -> Iterator[Outgoing]:
        """Yield the packets to send in place of the given one, in order."""
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
        """Yield the late packets, once no other packet follows for now."""
        while self._late:
            yield self._late.pop(self._chance.randrange(len(self._late)))

    def _meets(self, rate: float) -> bool:
        return rate > 0 and self._chance.random() < rate
