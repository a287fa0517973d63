"""Runs the official SBE tool: one Java process that is asked about schemas and messages, line by line."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.sbe.official import ROOM

HERE = Path(__file__).parent
DRIVER = HERE / "OfficialTool.java"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


class Verdict(NamedTuple):
    """What the tool's parser says of a schema."""

    accepted: bool
    output: str
    """Its errors and warnings."""


class Printed(NamedTuple):
    """What the tool's decoder makes of a message."""

    values: dict[str, Any]
    consumed: int


def missing() -> str:
    """Return which program the tool cannot be run without, empty when all are there."""
    return ", ".join(program for program in ("java", "mvn") if shutil.which(program) is None)


def class_path(folder: Path) -> str:
    """Return the tool's class path; Maven keeps what it fetches in its own repository."""
    file = folder / "class-path"
    arguments = [f"{_PLUGIN}:build-classpath", f"-Dmdep.outputFile={file}"]
    subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", *arguments], check=True, timeout=300)
    return file.read_text()


class OfficialTool:
    """The tool, running. Use as a context manager."""

    def __init__(self, path: str) -> None:
        opened = ["--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"]  # its buffers ask for it
        self._process = subprocess.Popen(
            ["java", *opened, "-XX:TieredStopAtLevel=1", "-cp", path, DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> OfficialTool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=30)

    def load(self, xml: bytes) -> Verdict:
        """Parse a schema; messages are of the last one that was accepted."""
        answer = self._ask("schema", base64.b64encode(xml).decode())
        return Verdict(answer["accepted"], answer["told"])

    def decode(self, body: bytes) -> Printed:
        """Decode a message; fail the test when the tool cannot."""
        answer = self._ask("message", (body + bytes(ROOM)).hex())
        assert "failed" not in answer, answer["failed"]
        return Printed(json.loads(answer["text"], strict=False), answer["consumed"])

    def _ask(self, request: str, operand: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{request} {operand}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
