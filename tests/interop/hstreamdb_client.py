"""Fetches the official Python client of HStreamDB from its registry."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.sqlitecloud_clients import OfficialClient, fetch

HERE = Path(__file__).parent / "hstreamdb"


def python_client(folder: Path, script: Path = HERE / "client.py") -> OfficialClient:
    """Return the client, in a folder of its own, with a script. Raises Missing."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = str(HERE / "build-constraints.txt")
    fetch(
        [*install, "--target", folder / "packages", "--requirement", HERE / "requirements.txt"],
        folder,
        PIP_BUILD_CONSTRAINT=constraints,  # newer pips take this one, older ones the other
        PIP_CONSTRAINT=constraints,
    )
    return OfficialClient(["env", f"PYTHONPATH={folder / 'packages'}", sys.executable, script], folder)
