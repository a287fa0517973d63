"""Committed floors: the batches up to which a source has recorded everything as acknowledged, so as landed.

A record at or below a floor that lands after it is in bronze already. Nothing new comes from below a floor, so the
tombstones of deletes up to it can go.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

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

    def since(self, position: int) -> Floors:
        """Return the floors needed for frames from a position on."""
        needed = {
            shard_id: floors[max(bisect_left(floors, position, key=lambda floor: floor.frame_seq) - 1, 0) :]
            for shard_id, floors in self.by_shard.items()
        }
        return Floors(needed)


def read_floors(control: Iterable[ControlFrame]) -> Floors:
    """Return the floors in control frames, which are the receiver's own."""
    by_shard: dict[int, list[Floor]] = {}
    created: str | None = None
    for frame in control:
        found = json.loads(frame.body)
        if found["created"] != created:
            created = found["created"]
            for floors in by_shard.values():
                _add(floors, Floor(frame.frame_seq, 0))
        for shard_id, batch_id in found["offsets"].items():
            floors = by_shard.setdefault(int(shard_id), [])
            if not floors or int(batch_id) > floors[-1].batch_id:
                _add(floors, Floor(frame.frame_seq, int(batch_id)))
    return Floors({shard_id: tuple(floors) for shard_id, floors in by_shard.items()})


def _add(floors: list[Floor], floor: Floor) -> None:
    if floors and floors[-1].frame_seq == floor.frame_seq:
        floors.pop()
    floors.append(floor)
