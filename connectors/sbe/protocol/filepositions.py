"""Positions to resume reading a file: the offset of a packet, and the number of its messages already read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class FilePosition(NamedTuple):
    """A position in a file after a message. Later positions compare greater."""

    offset: int = 0
    """Offset of the first byte to read: the message's end or, if packets have a header, the start of its packet."""
    passed: int = 0
    """Number of messages from there on that were already read."""

    def __str__(self) -> str:
        return f"{self.offset}+{self.passed}" if self.passed else str(self.offset)


BEGINNING: Final = FilePosition()


def furthest(positions: Iterable[str]) -> FilePosition:
    """Return the last of the given positions, in text form; the beginning if there is none."""
    return max(map(_parsed, positions), default=BEGINNING)


def _parsed(text: str) -> FilePosition:
    offset, _, passed = text.partition("+")
    return FilePosition(int(offset), int(passed or 0))
