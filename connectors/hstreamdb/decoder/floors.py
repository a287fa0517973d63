"""Committed floors: the batches up to which a source has recorded everything as acknowledged, so as landed.

A record at or below a floor that lands after it is in bronze already. Nothing new comes from below a floor, so the
tombstones of deletes up to it can go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from silverfold.connectors.frames import ControlFrame


class Floor(NamedTuple):
    """A floor of one shard, which holds for frames after a position."""

    frame_seq: int
    batch_id: int
    """Everything up to this batch has landed before; 0 for nothing."""


@dataclass(frozen=True)
class Floors:
    """Floors by shard, each ascending by position. Small and picklable.

    A subscription that was created anew sends all again: its floors start from 0.
    """

    by_shard: Mapping[int, tuple[Floor, ...]] = field(default_factory=dict)

    def before(self, shard_id: int, position: int) -> int:
        """Return the batch of a shard up to which nothing new comes from a position on; 0 for none."""
        floors = self.by_shard.get(shard_id, ())
        at = bisect_left(floors, position, key=lambda floor: floor.frame_seq)
        return floors[at - 1].batch_id if at else 0


def read_floors(control: Sequence[ControlFrame], since: int = 0) -> Floors:
    """Return the floors needed for frames from a position on.

    Args:
        control: The receiver's own control frames, ascending. Each has all floors of its subscription: of those before
            the position only the last one is read.
        since: The position.
    """
    by_shard: dict[int, list[Floor]] = {}
    created: str | None = None
    for frame in control[max(bisect_left(control, since, key=lambda frame: frame.frame_seq) - 1, 0) :]:
        found = _read(frame.body)
        if found.created != created:
            created = found.created
            for floors in by_shard.values():
                _add(floors, Floor(frame.frame_seq, 0))
        for shard_id, batch_id in found.offsets.items():
            floors = by_shard.setdefault(int(shard_id), [])
            if not floors or int(batch_id) > floors[-1].batch_id:
                _add(floors, Floor(frame.frame_seq, int(batch_id)))
    return Floors({shard_id: tuple(floors) for shard_id, floors in by_shard.items()})


def _add(floors: list[Floor], floor: Floor) -> None:
    if floors and floors[-1].frame_seq == floor.frame_seq:
        floors.pop()
    floors.append(floor)


class _Content(msgspec.Struct):
    """What a control frame says of floors."""

    created: str
    offsets: dict[str, str]


_read: Final = msgspec.json.Decoder(_Content).decode
