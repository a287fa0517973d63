"""The result of comparing two schemas: findings with a severity for each direction, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal, TypeAlias

Profile: TypeAlias = Literal["classic", "counted"]
"""Whether messages carry the numbers of their groups and data."""

Direction: TypeAlias = Literal["backward", "forward"]
"""Backward: a new reader, old messages. Forward: an old reader, new messages."""

_REMOVED = frozenset({"R12", "R25", "R45", "R55", "R69", "R83", "R90"})
"""Rules that are broken only by removing something."""


class Severity(IntEnum):
    """Severity of a finding in one direction."""

    NONE = 0
    INFORMATION = 1
    WARNING = 2
    BREAKING = 3


class Kind(StrEnum):
    """Effect of a finding on a reader."""

    MISREAD = "L"
    """Bytes are misinterpreted, or not found."""
    MEANING = "M"
    """Bytes are read correctly but have another meaning."""
    RULE = "R"
    """A reader that respects versions and block lengths is correct; others may fail."""
    NONE = "-"


@dataclass(frozen=True)
class Finding:
    """One difference between two schemas, under the most specific rule."""

    rule: str
    """Such as ``R24``."""
    title: str
    """Short title of the rule."""
    kind: Kind
    backward: Severity
    forward: Severity
    path: str
    """Path of the element, such as ``Order.legs.ratio``; ``Side.Buy`` in an encoding; ``schema`` for the schema."""
    old: str | None
    """Description of the element in the old schema; None if it has none."""
    new: str | None
    sentence: str
    """What an old or a new reader would see."""
    message: str | None = None
    """Newest name of the element's message; None for the schema. For an encoding, the first message that uses it."""
    used_by: tuple[str, ...] = ()
    """For an encoding: the fields that use it."""
    touches_wire: bool = field(default=True, repr=False)
    """The bytes or their meaning differ, not only the documentation."""

    def severity(self, direction: Direction) -> Severity:
        """Return the severity in one direction."""
        return self.backward if direction == "backward" else self.forward

    @property
    def worst(self) -> Severity:
        """Severity in the worse direction."""
        return max(self.backward, self.forward)

    @property
    def number(self) -> int:
        """The rule's number."""
        return int(self.rule[1:])

    def messages(self) -> tuple[str, ...]:
        """Return the names of all affected messages, each at least once; none for the schema as a whole."""
        if self.used_by:
            return tuple(user.partition(".")[0] for user in self.used_by)
        return () if self.message is None else (self.message,)


def values_text(finding: Finding) -> str:
    """Return the old and new values for display; empty if there are none."""
    if finding.old is not None and finding.new is not None:
        return f"{finding.old} → {finding.new}"
    if finding.old is not None:
        return f"was: {finding.old}"
    return "" if finding.new is None else f"now: {finding.new}"


@dataclass(frozen=True)
class Comparison:
    """All differences between two schemas, ordered by message id, location in the message, and rule."""

    profile: Profile
    framed: bool
    """The framing determines where messages end."""
    findings: tuple[Finding, ...]
    version: int
    """Version of the new schema."""

    def verdict(self, direction: Direction) -> Severity:
        """Return the worst severity in one direction."""
        return max((finding.severity(direction) for finding in self.findings), default=Severity.NONE)

    def breaks(self, *directions: Direction) -> bool:
        """Return whether any of the directions is breaking."""
        return any(self.verdict(direction) is Severity.BREAKING for direction in directions)

    def advice(self, *directions: Direction) -> Mapping[str, str]:
        """Return advice for each message with a finding that breaks one of the directions, by name."""
        broken: dict[str, set[str]] = {}
        for finding in self.findings:
            if any(finding.severity(direction) is Severity.BREAKING for direction in directions):
                for name in finding.messages():
                    broken.setdefault(name, set()).add(finding.rule)
        return {
            name: f"{_advice_text(rules)}, deprecated from version {self.version}." for name, rules in broken.items()
        }


def _advice_text(rules: set[str]) -> str:
    if rules <= _REMOVED:
        return "Keep what was removed"
    if rules == {"R13"}:
        return "Keep the old template id beside the new one"
    return "Give the changed layout a new template id, and keep the old one as it was"
