"""Runs the official tool's on-the-fly decoder on the measured messages."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.bench.sbe.messages import FOLDER, Kind
from tests.interop.official import class_path, missing

_WARM_UP = 30
"""Warm-up rounds, after which the JVM has compiled everything."""


def official_seconds(kind: Kind, runs: int) -> list[float]:
    """Return the processor seconds per message of several rounds; empty if Java or Maven is missing."""
    if missing():
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "messages"
        file.write_bytes(b"".join(len(body).to_bytes(4, "big") + body for body in kind.messages * 20))
        opened = ["--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"]  # required by its buffers
        reader = [FOLDER / "OfficialReader.java", kind.file, file, str(_WARM_UP + runs)]
        completed = subprocess.run(
            ["java", *opened, "-cp", _class_path(), *reader], check=True, capture_output=True, text=True
        )
    return [float(line) / 1e9 for line in completed.stdout.split()][-runs:]


@cache
def _class_path() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return class_path(Path(folder))
