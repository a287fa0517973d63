"""What tests of the receiver share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at a subscription come as fast as feeds with ``quick_looks`` say: a second is the least otherwise."""
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.progress._GAP_SECONDS", 0.05)
