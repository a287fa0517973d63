"""What a comparison of two schemas gives: findings with a severity for each direction, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal, TypeAlias

Profile: TypeAlias = Literal["classic", "counted"]
"""Whether messages say how many groups and data they have."""

Direction: TypeAlias = Literal["backward", "forward"]
"""Backward: a new reader, old messages. Forward: an old reader, new messages."""

_REMOVED = frozenset({"R12", "R25", "R45", "R55", "R69", "R83", "R90"})
"""Rules that are broken by nothing but removing something."""


class Severity(IntEnum):
    """How bad a finding is in one direction."""

    NONE = 0
    INFORMATION = 1
    WARNING = 2
    BREAKING = 3


class Kind(StrEnum):
    """What goes wrong for a reader."""

    MISREAD = "L"
    """Bytes are taken for something else, or are not found."""
    MEANING = "M"
    """Bytes are read right and mean something else."""
    RULE = "R"
    """A reader that minds versions and block lengths is right; others may fail."""
    NONE = "-"


@dataclass(frozen=True)
class Finding:
    """One difference between two schemas, under the rule that describes it best."""

    rule: str
    """Such as ``R24``."""
    title: str
    """The rule in a few words."""
    kind: Kind
    backward: Severity
    forward: Severity
    path: str
    """The element, such as ``Order.legs.ratio``; ``Side.Buy`` in an encoding; ``schema`` for the whole."""
    old: str | None
    """What the old schema has there; None when it has nothing."""
    new: str | None
    sentence: str
    """What an old or a new reader would see."""
    message: str | None = None
    """The message it belongs to, by its newest name; None for the schema. The first one that uses an encoding."""
    used_by: tuple[str, ...] = ()
    """For an encoding: the fields that use it."""
    touches_wire: bool = field(default=True, repr=False)
    """The bytes or their meaning differ, not only what is said about them."""

    def severity(self, direction: Direction) -> Severity:
        """Return how bad it is in one direction."""
        return self.backward if direction == "backward" else self.forward

    @property
    def worst(self) -> Severity:
        """The severity of the worse direction."""
        return max(self.backward, self.forward)

    @property
    def number(self) -> int:
        """The rule's number."""
        return int(self.rule[1:])

    def messages(self) -> tuple[str, ...]:
        """Return the names of all messages it concerns, each at least once; none for the schema as a whole."""
        if self.used_by:
            return tuple(user.partition(".")[0] for user in self.used_by)
        return () if self.message is None else (self.message,)


def values_text(finding: Finding) -> str:
    """Return what the schemas have there, for people; empty when neither has anything."""
    if finding.old is not None and finding.new is not None:
        return f"{finding.old} → {finding.new}"
    if finding.old is not None:
        return f"was: {finding.old}"
    return "" if finding.new is None else f"now: {finding.new}"


@dataclass(frozen=True)
class Comparison:
    """All that differs between two schemas, by message id, place in the message, and rule."""

    profile: Profile
    framed: bool
    """Where messages end is known from outside."""
    findings: tuple[Finding, ...]
    version: int
    """Of the new schema."""

    def verdict(self, direction: Direction) -> Severity:
        """Return the worst severity in one direction."""
        return max((finding.severity(direction) for finding in self.findings), default=Severity.NONE)

    def breaks(self, *directions: Direction) -> bool:
        """Tell whether any of the directions is breaking."""
        return any(self.verdict(direction) is Severity.BREAKING for direction in directions)

    def advice(self, *directions: Direction) -> Mapping[str, str]:
        """Return what to do instead, for each message with a finding that breaks one of the directions, by name."""
        broken: dict[str, set[str]] = {}
        for finding in self.findings:
            if any(finding.severity(direction) is Severity.BREAKING for direction in directions):
                for name in finding.messages():
                    broken.setdefault(name, set()).add(finding.rule)
        return {name: f"{_instead(rules)}, deprecated from version {self.version}." for name, rules in broken.items()}


def _instead(rules: set[str]) -> str:
    if rules <= _REMOVED:
        return "Keep what was removed"
    if rules == {"R13"}:
        return "Keep the old template id beside the new one"
    return "Give the changed layout a new template id, and keep the old one as it was"
