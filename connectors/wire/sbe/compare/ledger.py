"""Collects findings while two schemas are walked, and sorts them.

An encoding is compared once for every field that uses it: equal findings are merged, with the list of fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from silverfold.connectors.wire.sbe.compare.findings import Finding, Profile
from silverfold.connectors.wire.sbe.compare.rules import RULES
from silverfold.connectors.wire.sbe.schema.model import Schema


class Location(NamedTuple):
    """Location of a finding."""

    path: str
    order: tuple[int, ...]
    """Sort key: the enclosing level first, then members in their order."""
    message: str | None = None
    user: str | None = None
    """The field through which an encoding was reached; None outside of encodings."""

    @property
    def name(self) -> str:
        """The element's own name."""
        return self.path.rpartition(".")[2]

    def at(self, name: str, *order: int) -> Location:
        """Return the location of a part."""
        return self._replace(path=f"{self.path}.{name}", order=(*self.order, *order))

    def with_order(self, *order: int) -> Location:
        """Return this location with the sort key of a list of its parts."""
        return self._replace(order=(*self.order, *order))

    def encoding(self, label: str) -> Location:
        """Return the location of an encoding that this element uses."""
        return self._replace(path=label, user=self.user or self.path)


SCHEMA_LOCATION = Location("schema", (0,))


@dataclass
class Ledger:
    """Findings so far, and the parameters of the comparison.

    Args:
        framed: The framing determines where messages end.
    """

    old: Schema
    new: Schema
    profile: Profile
    framed: bool

    def __post_init__(self) -> None:
        self._found: list[tuple[Location, Finding]] = []

    def add(self, row: str, location: Location, *, old: object = None, new: object = None, **details: object) -> None:
        """Add a finding under one row of the rules.

        Args:
            old: Description of the element in the old schema, None for none; likewise ``new``.
            details: Further values for the row's sentence, besides the name, both descriptions and the old version.
        """
        rule = RULES[row]
        backward, forward = rule.severity(self.profile)
        sentence = rule.sees.format(name=location.name, old=old, new=new, version=self.old.version, **details)
        finding = Finding(
            rule=row.partition("/")[0],
            title=rule.title,
            kind=rule.kind,
            backward=backward,
            forward=forward,
            path=location.path,
            old=None if old is None else str(old),
            new=None if new is None else str(new),
            sentence=sentence,
            message=location.message,
            used_by=() if location.user is None else (location.user,),
            touches_wire=rule.touches_wire,
        )
        self._found.append((location, finding))

    def is_versioned(self, since: int) -> bool:
        """Return whether a new element's sinceVersion shows that older messages lack it."""
        return self.old.version < since

    def fork(self) -> Ledger:
        """Return an empty ledger for the same comparison."""
        return Ledger(self.old, self.new, self.profile, self.framed)

    def merge(self, other: Ledger) -> None:
        """Add all findings of another ledger."""
        self._found += other._found

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, by location, then by rule; merged where reached through several fields."""
        joined: dict[tuple[object, ...], Finding] = {}
        in_order = sorted(self._found, key=lambda found: (found[0].order, found[1].number))
        for index, (_, finding) in enumerate(in_order):
            key = (finding.title, finding.path, finding.old, finding.new, None if finding.used_by else index)
            first = joined.setdefault(key, finding)
            users = tuple(dict.fromkeys((*first.used_by, *finding.used_by)))
            joined[key] = replace(first, used_by=users)
        return tuple(joined.values())
