"""What tests of pipelines share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[None, 1], ids=["at once", "a row at a time"])
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify as usual, and a row at a time: what is found does not depend on how many rows are looked at together."""
    if request.param is not None:
        monkeypatch.setattr("silverfold.pipelines.verifying.verify.ROWS_AT_ONCE", request.param)
        monkeypatch.setattr("silverfold.pipelines.verifying.silver_rows._SAMPLED", 1)
