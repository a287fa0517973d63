"""Every case of the table: its findings, all of them, and the verdict in both directions and both profiles."""

from __future__ import annotations

import pytest

from silverfold.connectors.wire.sbe.compare.findings import Profile
from silverfold.connectors.wire.sbe.compare.schemas import compare
from tests.support.sbe.evolution import Case, cases

pytestmark = pytest.mark.xdist_group("pairs of SBE schemas")  # loaded once for all that look at them

PROFILES: tuple[Profile, ...] = ("classic", "counted")
CASES = cases()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_gives_its_findings_and_its_verdict(case: Case, profile: Profile):
    old, new = case.schemas(profile)

    found = compare(old, new, profile=profile, framed=case.framed)

    assert sorted(finding.rule for finding in found.findings) == case.rules
    assert (found.verdict("backward"), found.verdict("forward")) == case.severities(profile)
