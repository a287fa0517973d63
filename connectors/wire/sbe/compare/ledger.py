"""Collects findings while two schemas are walked, and puts them in order.

An encoding is met once for every field that uses it: findings that say the same are joined, with the list of fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from connectors.wire.sbe.compare.findings import Finding, Profile
from connectors.wire.sbe.compare.rules import RULES
from connectors.wire.sbe.model import Schema


class Location(NamedTuple):
    """Where a finding belongs."""

    path: str
    place: tuple[int, ...]
    """Orders findings: the level above first, then members as they stand."""
    message: str | None = None
    user: str | None = None
    """The field through which an encoding was met; None outside of encodings."""

    @property
    def name(self) -> str:
        """The element's own name."""
        return self.path.rpartition(".")[2]

    def at(self, name: str, *place: int) -> Location:
        """Return the spot of a part."""
        return self._replace(path=f"{self.path}.{name}", place=(*self.place, *place))

    def among(self, *place: int) -> Location:
        """Return this spot as that of a list of its parts."""
        return self._replace(place=(*self.place, *place))

    def encoding(self, label: str) -> Location:
        """Return the spot of an encoding that the element here uses."""
        return self._replace(path=label, user=self.user or self.path)


WHOLE = Location("schema", (0,))


@dataclass
class Ledger:
    """Findings so far, and what every rule needs to know of the comparison.

    Args:
        framed: Where messages end is known from outside.
    """

    old: Schema
    new: Schema
    profile: Profile
    framed: bool

    def __post_init__(self) -> None:
        self._found: list[tuple[Location, Finding]] = []

    def add(self, row: str, spot: Location, *, old: object = None, new: object = None, **said: object) -> None:
        """Note a finding under one row of the rules.

        Args:
            old: What the old schema has there, None for nothing; likewise ``new``.
            said: What the row's sentence asks for beside the name, both values and the old version.
        """
        rule = RULES[row]
        backward, forward = rule.severity(self.profile)
        sentence = rule.sees.format(name=spot.name, old=old, new=new, version=self.old.version, **said)
        finding = Finding(
            rule=row.partition("/")[0],
            title=rule.title,
            kind=rule.kind,
            backward=backward,
            forward=forward,
            path=spot.path,
            old=None if old is None else str(old),
            new=None if new is None else str(new),
            sentence=sentence,
            message=spot.message,
            used_by=() if spot.user is None else (spot.user,),
            touches_wire=rule.touches_wire,
        )
        self._found.append((spot, finding))

    def is_proper(self, since: int) -> bool:
        """Tell whether a new element has a sinceVersion by which older messages can be told to lack it."""
        return self.old.version < since

    def apart(self) -> Ledger:
        """Return an empty ledger for the same comparison."""
        return Ledger(self.old, self.new, self.profile, self.framed)

    def take(self, other: Ledger) -> None:
        """Add all that another ledger found."""
        self._found += other._found

    def findings(self) -> tuple[Finding, ...]:
        """Return what was found: by place, then by rule; what was met through several fields once."""
        joined: dict[tuple[object, ...], Finding] = {}
        in_order = sorted(self._found, key=lambda found: (found[0].place, found[1].number))
        for index, (_, finding) in enumerate(in_order):
            key = (finding.title, finding.path, finding.old, finding.new, None if finding.used_by else index)
            first = joined.setdefault(key, finding)
            users = tuple(dict.fromkeys((*first.used_by, *finding.used_by)))
            joined[key] = replace(first, used_by=users)
        return tuple(joined.values())
