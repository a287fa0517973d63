"""Runs commands as processes of their own, which are killed at random moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import pytest

from silverfold.jobs import cli
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table

PATIENCE: Final = 300.0
A_JVM_OF_ITS_OWN: Final = '{ "spark.master" = "local[2]", "spark.driver.memory" = "1g" }'
FEED: Final = "shop"
"""The feed of `FeedProcesses`."""


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


class FeedProcesses(Processes, ABC):
    """Processes that receive and build a feed, and the source that they have it from.

    Args:
        folder: Empty; the source's files may be put there too.
    """

    TABLES: ClassVar[Sequence[str]] = ("orders",)

    def __init__(self, folder: Path, rng: Random) -> None:
        super().__init__(folder, rng)
        self.settings = folder / "feeds" / f"{FEED}.toml"
        self.places = Places(self.warehouse)
        self.bronze = self.places.bronze(FEED)

    @abstractmethod
    def progress(self) -> Any:
        """Return how much has landed; it grows."""

    @abstractmethod
    def come_to_rest(self) -> None:
        """Let the changes end, and the receiver once it has landed them all."""

    def receive_as(self, settings: str) -> None:
        """Write the feed's settings, and receive it."""
        self.settings.parent.mkdir()
        self.settings.write_text(settings)
        self.receive()

    def receive(self) -> None:
        """Receive the feed; return once something has landed anew."""
        before = self.progress()
        self.start("receive", *self.conf, FEED)
        self.until(lambda: self.progress() > before)

    def build(self) -> None:
        """Build in a JVM of its own whatever lands; return once there is a table."""
        self.start("build", *self.conf, FEED, "--follow", SILVERFOLD__SPARK=A_JVM_OF_ITS_OWN)
        self.until(lambda: any(open_table(self.places.silver(FEED, name)) for name in self.TABLES))

    def await_quiet(self) -> None:
        """Wait until ``simulate`` says that its changes have ended."""
        output = self.running["simulate"].stdout
        assert output is not None
        while not output.readline().startswith("quiet after"):
            assert self.running["simulate"].poll() is None

    def survive(self, *victims: str, follows: bool = False) -> None:
        """Kill and start again each victim, in any order, then come to rest and build all that landed.

        Args:
            victims: Commands, each with a method of its name that starts it.
            follows: Build all the while, also where no build is among the victims; it is killed in the end.
        """
        order = list(victims)
        self.rng.shuffle(order)
        follows = follows or "build" in order
        if follows:
            self.build()
        for victim in order:
            self.kill(victim)
            getattr(self, victim)()
        self.come_to_rest()
        if follows:
            self.kill("build")
        assert self.run("build", FEED) == 0
