"""What tests of pipelines share."""

from __future__ import annotations

import pytest

BY_NIGHT = pytest.param(1, marks=pytest.mark.nightly, id="a row at a time")


@pytest.fixture(params=[pytest.param(None, id="at once"), BY_NIGHT])
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify as usual, and a row at a time: what is found does not depend on how many rows are looked at together.

    By day only tests that ask for it verify both ways.
    """
    if request.param is not None:
        monkeypatch.setattr("silverfold.pipelines.verifying.verify.ROWS_AT_ONCE", request.param)
        monkeypatch.setattr("silverfold.pipelines.storage.silver_rows._SAMPLED", 1)
