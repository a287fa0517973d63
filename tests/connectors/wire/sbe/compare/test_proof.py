"""The verdict against a proof that knows no rules: messages written with one schema and read with the other."""

from __future__ import annotations

import pytest

from silverfold.connectors.wire.sbe.compare.findings import Comparison, Direction, Kind, Profile, Severity
from silverfold.connectors.wire.sbe.compare.schemas import compare
from tests.support.sbe.evolution import Case, cases
from tests.support.sbe.proof import Proof, prove

pytestmark = pytest.mark.xdist_group("pairs of SBE schemas")  # loaded once for all that look at them

PROFILES: tuple[Profile, ...] = ("classic", "counted")
NOT_SHOWN: set[tuple[str, Direction]] = {
    # A version that went back hides what has a version from old readers; this schema has nothing that does.
    ("T79", "backward"),
    ("T79", "forward"),
    # So it does not hide anything from new ones.
    ("N20", "backward"),
    # The set stands last in a little-endian block, and what both know of it is in its first byte.
    ("T59", "forward"),
    # No array of bytes that are all null is written: an optional one would be null.
    ("N49", "backward"),
}


def proofs(case: Case, profile: Profile) -> dict[Direction, Proof]:
    old, new = case.schemas(profile)
    back = {after: before for before, after in case.renamed.items()}
    return {"backward": prove(old, new, case.renamed), "forward": prove(new, old, back)}


def misread(found: Comparison, direction: Direction) -> list[str]:
    """Return the rules under which bytes are misread."""
    breaking = (finding for finding in found.findings if finding.severity(direction) is Severity.BREAKING)
    return [finding.rule for finding in breaking if finding.kind is Kind.MISREAD]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_what_breaks_is_seen_in_messages_and_what_does_not_is_read_as_written(case: Case, profile: Profile):
    found = compare(*case.schemas(profile), profile=profile, framed=case.framed)

    for direction, proof in proofs(case, profile).items():
        if not found.breaks(direction):
            assert proof.wrong == [], direction
        if misread(found, direction) and (case.name, direction) not in NOT_SHOWN:
            assert proof.wrong or proof.lost, (direction, misread(found, direction))
