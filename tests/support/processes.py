"""Runs commands as processes of their own, which are killed at random moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from silverfold.jobs import cli

PATIENCE: Final = 300.0


class Processes:
    """Processes by name, with one folder of settings and one warehouse.

    Args:
        folder: Of the settings; the warehouse is ``lake`` inside it.
    """

    def __init__(self, folder: Path, rng: Random) -> None:
        self.rng, self.warehouse = rng, str(folder / "lake")
        self.environ = {**os.environ, "PYTHONUNBUFFERED": "1", "SILVERFOLD__WAREHOUSE": self.warehouse}
        self.conf, self.log = ("--conf", str(folder)), folder / "log"
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str, is_read: bool = False, **environ: str) -> subprocess.Popen[str]:
        """Run a command, a group of processes of its own.

        Args:
            name: The command; it runs once at a time.
            is_read: The caller reads its output.
        """
        with self.log.open("a") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", f"silverfold.jobs.{name}", *arguments],
                env=self.environ | environ,
                stdout=subprocess.PIPE if is_read else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self.running[name]

    def kill(self, name: str) -> None:
        """Kill a process, and what it has started, at a moment nobody knows."""
        time.sleep(self.rng.uniform(0.0, 0.7))
        process = self.running.pop(name)
        assert process.poll() is None, self.log.read_text()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def stop(self, name: str) -> None:
        """Ask a process to end, which it must do without an error."""
        process = self.running.pop(name)
        process.terminate()
        assert process.wait(PATIENCE) == 0, self.log.read_text()

    def until(self, met: Callable[..., object], *given: object) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + PATIENCE
        while not met(*given):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def run(self, *job: str) -> int | str | None:
        """Run a command to its end, in the tests' session; return its exit code."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SILVERFOLD__WAREHOUSE", self.warehouse)
            with pytest.raises(SystemExit) as left:
                cli.main([*self.conf, *job])
        return left.value.code

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        self.running.clear()
