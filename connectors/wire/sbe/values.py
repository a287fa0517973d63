"""Decoded values that are more than a number or a text, and what is found beside them or instead of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conf.errors import WireError


class SetValue:
    """A set: the integer as it was on the wire, and the names of its bits.

    Bits without a name are kept in ``raw``, so a set is written again as it was read. Equal when ``raw`` is.
    """

    __slots__ = ("_choices", "raw")

    def __init__(self, raw: int, choices: Mapping[int, str]) -> None:
        self.raw = raw
        self._choices = choices

    @property
    def names(self) -> list[str]:
        """The names of the set bits, sorted."""
        return sorted(name for bit, name in self._choices.items() if self.raw >> bit & 1)

    @property
    def unknown(self) -> int:
        """The set bits that have no name, as an integer."""
        return self.raw & ~sum(1 << bit for bit in self._choices)

    def __contains__(self, name: object) -> bool:
        return any(choice == name and self.raw >> bit & 1 for bit, choice in self._choices.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SetValue) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"SetValue({self.raw:#x}, {self.names})"


class Finding(NamedTuple):
    """Something odd about a message that could be decoded all the same."""

    reason: str
    """``trailing-bytes``, ``short-block``, ``template-newer-than-version`` or ``value-newer-than-version``."""
    element: str
    """Where, such as ``Quote.legs.marks``."""
    detail: str
    offset: int | None = None


class Fault(Exception):
    """A WireError in the making: each level it passes adds its name in front."""

    def __init__(self, error: type[WireError], reason: str, detail: str, offset: int) -> None:
        self.error, self.reason, self.detail, self.offset = error, reason, detail, offset
        self.path: list[str] = []
        super().__init__(detail)

    def wire_error(self, message: str, *, placed: bool = True) -> WireError:
        """Return the error, its element named from ``message`` down; without an offset unless ``placed``."""
        element = ".".join([message, *reversed(self.path)])
        return self.error(self.detail, offset=self.offset if placed else None, reason=self.reason, element=element)
