"""Peers that nobody here wrote, started once for all tests; a peer that is not there is a reason to skip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.official import OfficialTool, class_path, missing


@pytest.fixture(scope="session")
def official_tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfficialTool]:
    """Return the official SBE tool, fetched by Maven."""
    if programs := missing():
        pytest.skip(f"the official SBE tool needs {programs}")
    with OfficialTool(class_path(tmp_path_factory.mktemp("official"))) as tool:
        yield tool
