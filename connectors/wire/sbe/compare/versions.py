"""Compares when elements were added and deprecated: sinceVersion and deprecated (SBE 1.0, chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from silverfold.connectors.wire.sbe.compare.layouts import wire_fields
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.schema.model import Body, Data, Field, Group


class ElementVersions(NamedTuple):
    """Versions of an element."""

    since: int
    """Effective sinceVersion."""
    deprecated: int | None

    @property
    def is_contradictory(self) -> bool:
        """The element is deprecated before it exists."""
        return self.deprecated is not None and self.deprecated < self.since


def compare_versions(
    ledger: Ledger, location: Location, old: ElementVersions, new: ElementVersions, *, value: bool = False
) -> None:
    """Compare the versions of an element that both schemas have.

    Args:
        value: The element is an enum value or a set choice: those are decoded by name in any version.
    """
    if new.since > ledger.old.version and new.since > old.since and not value:
        ledger.add("R100", location, old=f"since {old.since}", new=f"since {new.since}")
    elif new.since != old.since:
        ledger.add("R101", location, old=f"since {old.since}", new=f"since {new.since}")
    compare_deprecation(ledger, location, old, new)


def compare_deprecation(ledger: Ledger, location: Location, old: ElementVersions, new: ElementVersions) -> None:
    """Compare the versions since which an element of both schemas is deprecated."""
    if old.deprecated is None and new.deprecated is not None:
        ledger.add("R103", location, new=_deprecation(new))
    elif old.deprecated != new.deprecated:
        ledger.add("R104", location, old=_deprecation(old), new=_deprecation(new))
    if old != new:
        check_new_versions(ledger, location, new)


def _deprecation(versions: ElementVersions) -> str | None:
    return None if versions.deprecated is None else f"deprecated {versions.deprecated}"


def check_new_versions(ledger: Ledger, location: Location, new: ElementVersions) -> None:
    """Report a new element that is deprecated before it exists."""
    if new.is_contradictory:
        ledger.add("R105", location, new=f"since {new.since}, deprecated {new.deprecated}")


def compare_order(ledger: Ledger, location: Location, old: Body | None, new: Body) -> None:
    """Report members of a body that are newer than the next member, unless they already were in the old schema."""
    lists = zip(_lists(new), ((), (), ()) if old is None else _lists(old), strict=True)
    for kind, (members, old_members) in enumerate(lists):
        known = _descents(old_members)
        for index, pair in sorted(_descents(members).items(), key=lambda item: item[1]):
            if index not in known:
                position, since, next_name, next_since = pair
                member = members[position]
                position = member.offset if isinstance(member, Field) else position
                text = f"since {since}, before {next_name} since {next_since}"
                ledger.add("R102", location.at(member.name, kind, position), new=text)


def check_new_body(ledger: Ledger, location: Location, body: Body) -> None:
    """Check the versions inside a new message or group."""
    compare_order(ledger, location, None, body)
    lists: tuple[Sequence[Field | Group | Data], ...] = (body.fields, body.groups, body.data)
    for kind, members in enumerate(lists):
        for index, member in enumerate(members):
            at = location.at(member.name, kind, member.offset if isinstance(member, Field) else index)
            check_new_versions(ledger, at, ElementVersions(member.since_version, member.deprecated))
            if isinstance(member, Group):
                check_new_body(ledger, at, member)


def _lists(body: Body) -> tuple[Sequence[Field | Group | Data], ...]:
    return wire_fields(body.fields), body.groups, body.data


def _descents(members: Sequence[Field | Group | Data]) -> dict[tuple[str, str], tuple[int, int, str, int]]:
    """Return adjacent members where the first is newer: its index and version, then the other's name and version."""
    pairs = enumerate(pairwise(members))
    return {
        (first.name, second.name): (index, first.since_version, second.name, second.since_version)
        for index, (first, second) in pairs
        if first.since_version > second.since_version
    }
