"""Fetches the official clients of SQLite Cloud, each from its registry, and runs their scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "sqlitecloud"
_FETCHED_WITHIN = 300
_DONE_WITHIN = 400


class Missing(Exception):
    """A client cannot be had here. Says why."""


class OfficialClient:
    """One client, installed.

    Args:
        command: What runs it, or its scripts.
        folder: Where.
        script: The one that `run` runs, unless told otherwise; None if the command names all.
    """

    def __init__(self, command: Sequence[str | Path], folder: Path, script: str | None = None) -> None:
        self._command, self._folder, self._script = command, folder, script

    def run(self, *arguments: str, script: str | None = None) -> Any:
        """Return what a script saw, whose last argument is a server's address."""
        chosen = script or self._script
        done = subprocess.run(
            [*self._command, *([HERE / chosen] if chosen else ()), *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_DONE_WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout.splitlines()[-1])  # a client may log before


def python_client(folder: Path) -> OfficialClient:
    """Return the Python client, in a folder of its own. Raises Missing."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fetch([*install, "--target", folder / "packages", "--requirement", HERE / "requirements.txt"], folder)
    return OfficialClient(["env", f"PYTHONPATH={folder / 'packages'}", sys.executable], folder, "client.py")


def javascript_client(folder: Path) -> OfficialClient:
    """Return the JavaScript client. Raises Missing."""
    if absent := [program for program in ("node", "npm") if shutil.which(program) is None]:
        raise Missing(f"the official JavaScript client needs {', '.join(absent)}")
    shutil.copy(HERE / "package.json", folder)
    fetch(["npm", "install", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return OfficialClient(["node"], folder, "client.js")


def python_tests(folder: Path) -> Path:
    """Return the folder of the vendor's own tests of the Python client, which come with its source. Raises Missing."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = ["--requirement", HERE / "requirements.txt"]
    fetch([*pip, "install", "--target", folder / "packages", *wanted, "python-dotenv"], folder)
    fetch([*pip, "download", "--no-deps", "--no-binary", ":all:", *wanted], folder)
    (source,) = folder.glob("sqlitecloud-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return folder / source.name.removesuffix(".tar.gz")


def fetch(command: Sequence[str | Path], folder: Path, **environment: str) -> None:
    """Run a command that fetches a client. Raises Missing.

    Args:
        environment: Variables beside those there are.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_FETCHED_WITHIN,
            check=False,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} takes too long: is its registry within reach?") from None
    if done.returncode:
        raise Missing(f"{command[0]} fails: {(done.stderr or done.stdout).strip()[-300:]}")
