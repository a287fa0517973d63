"""Index of the existing row keys and of the slots of their values: sorted numpy arrays, no Python object per row.

Row keys are unique, non-negative int64. A removed key stays in place as a dead entry until a quarter of the entries are
dead, so that removals do not move the rest. Keys beyond the largest are appended to spare capacity. Both cost in
proportion to the keys given, not the keys held; only keys that fall between others move the entries above them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Longs: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NOWHERE = -1
"""Slot of a key that is not held."""

_SPARE = 1024


class RowIndex:
    """Maps row keys to slots, which are numbers from 0 chosen by the caller."""

    def __init__(self) -> None:
        self._keys: Longs = np.empty(_SPARE, np.int64)
        self._slots: Longs = np.empty(_SPARE, np.int64)
        self._entries = 0
        self._dead = 0

    def __len__(self) -> int:
        return self._entries - self._dead

    def keys(self) -> Longs:
        """Return the held keys, ascending, as a copy."""
        return self._live()[0]

    def slots(self) -> Longs:
        """Return the slots of all held keys, in the order of `keys`, as a copy."""
        return self._live()[1]

    def find(self, keys: Longs) -> Longs:
        """Return each key's slot, `NOWHERE` where it is not held."""
        at = np.searchsorted(self._keys[: self._entries], keys)
        found = self._matches(at, keys)
        slots = np.full(len(keys), NOWHERE, np.int64)
        slots[found] = self._slots[at[found]]
        return slots

    def between(self, first: int, last: int) -> Longs:
        """Return the held keys from ``first`` to ``last``, both inclusive, ascending."""
        held = self._keys[: self._entries]
        begin, end = np.searchsorted(held, first, "left"), np.searchsorted(held, last, "right")
        within: Longs = held[begin:end][self._slots[begin:end] != NOWHERE]
        return within

    def insert(self, keys: Longs, slots: Longs) -> None:
        """Insert ``keys``, which must be ascending, unique and not held."""
        if not len(keys):
            return
        at = np.searchsorted(self._keys[: self._entries], keys)
        revived = self._matches(at, keys)
        self._slots[at[revived]] = slots[revived]
        self._dead -= int(np.count_nonzero(revived))
        if not revived.all():
            self._insert_new(keys[~revived], slots[~revived], at[~revived])

    def remove(self, keys: Longs) -> None:
        """Remove ``keys``. Each must be held."""
        at = np.searchsorted(self._keys[: self._entries], keys)
        self._slots[at] = NOWHERE
        self._dead += len(keys)
        if self._dead > _SPARE and self._dead * 4 > self._entries:
            live_keys, live_slots = self._live()
            self._keys, self._slots = live_keys, live_slots
            self._entries, self._dead = len(live_keys), 0

    def _matches(self, at: npt.NDArray[np.intp], keys: Longs) -> Mask:
        if not self._entries:
            return np.zeros(len(keys), np.bool_)
        found: Mask = self._keys[np.minimum(at, self._entries - 1)] == keys
        return found

    def _live(self) -> tuple[Longs, Longs]:
        keys, slots = self._keys[: self._entries], self._slots[: self._entries]
        live = slots != NOWHERE
        return keys[live], slots[live]

    def _insert_new(self, keys: Longs, slots: Longs, at: npt.NDArray[np.intp]) -> None:
        end = self._entries + len(keys)
        if at[0] == self._entries:
            self._reserve(end)
            self._keys[self._entries : end] = keys
            self._slots[self._entries : end] = slots
        else:
            self._keys = np.insert(self._keys[: self._entries], at, keys)
            self._slots = np.insert(self._slots[: self._entries], at, slots)
        self._entries = end

    def _reserve(self, entries: int) -> None:
        if entries > len(self._keys):
            spare = np.empty(max(entries, 2 * len(self._keys)) - self._entries, np.int64)
            self._keys = np.concatenate([self._keys[: self._entries], spare])
            self._slots = np.concatenate([self._slots[: self._entries], spare])


def ranges(keys: Longs) -> Longs:
    """Return the runs of consecutive keys, shape (n, 2), both ends inclusive. ``keys`` must be ascending and unique."""
    if not len(keys):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(keys) != 1)
    return np.column_stack([keys[np.concatenate([[0], breaks + 1])], keys[np.concatenate([breaks, [len(keys) - 1]])]])
