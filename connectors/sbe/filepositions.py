"""Where reading of a file goes on: a byte at which a packet begins, and how many of its messages were read before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class FilePosition(NamedTuple):
    """A place in a file behind a message. Later ones are greater."""

    offset: int = 0
    """Of the first byte to read: behind the message; or, where packets have a header, where its packet begins."""
    passed: int = 0
    """How many messages from there on were read before."""

    def __str__(self) -> str:
        return f"{self.offset}+{self.passed}" if self.passed else str(self.offset)


BEGINNING: Final = FilePosition()


def furthest(places: Iterable[str]) -> FilePosition:
    """Return the last of some places, as they are written; the beginning when there is none."""
    return max(map(_parsed, places), default=BEGINNING)


def _parsed(text: str) -> FilePosition:
    offset, _, passed = text.partition("+")
    return FilePosition(int(offset), int(passed or 0))
