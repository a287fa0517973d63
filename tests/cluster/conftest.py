"""Deployments for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deployment import deployed
from tests.cluster.market import Market


@pytest.fixture
def market(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Market]:
    """Return a feed for the deployment that the test names."""
    with deployed(request.param, tmp_path) as feed:
        yield feed
