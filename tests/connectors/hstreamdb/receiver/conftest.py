"""What tests of the receiver share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at a subscription come as fast as feeds with ``quick_looks`` say: a second is the least otherwise."""
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.progress._GAP_SECONDS", 0.05)


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at a scripted source follow each other at once."""
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.progress._GAP_SECONDS", 0.005)
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.gaps._READ_SECONDS", 0.05)
