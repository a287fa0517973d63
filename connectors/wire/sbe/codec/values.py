"""Set values, and the findings and faults of decoding and encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from silverfold.conf.errors import WireError


class SetValue:
    """A set: the integer as on the wire, and the names of its bits.

    ``raw`` includes bits without a name, so a set is encoded as it was decoded. Equality compares ``raw``.
    """

    __slots__ = ("_choices", "raw")

    def __init__(self, raw: int, choices: Mapping[int, str]) -> None:
        self.raw = raw
        self._choices = choices

    @property
    def names(self) -> list[str]:
        """Names of the set bits, sorted."""
        return sorted(name for bit, name in self._choices.items() if self.raw >> bit & 1)

    @property
    def unknown(self) -> int:
        """Set bits that have no name, as an integer."""
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
    """An oddity of a message that could be decoded nevertheless."""

    reason: str
    """Such as ``trailing-bytes``, ``short-block``, ``unskippable``, ``template-newer-than-version`` or
    ``value-newer-than-version`` from decoding, or a reason of `value_checks.review_values`."""
    element: str
    """Path of the element, such as ``Quote.legs.marks``."""
    detail: str
    offset: int | None = None


class Fault(Exception):
    """A WireError under construction: each level it passes adds its name to the path."""

    def __init__(self, error: type[WireError], reason: str, detail: str, offset: int) -> None:
        self.error, self.reason, self.detail, self.offset = error, reason, detail, offset
        self.path: list[str] = []
        super().__init__(detail)

    def wire_error(self, message: str, *, with_offset: bool = True) -> WireError:
        """Return the error; its element is the path from ``message`` down. It has an offset only if ``with_offset``."""
        element = ".".join([message, *reversed(self.path)])
        return self.error(self.detail, offset=self.offset if with_offset else None, reason=self.reason, element=element)
