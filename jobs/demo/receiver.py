"""Runs the demo's receiver as users do: in a process of its own, stopped by SIGTERM, with a log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE = 30.0
_LAST_LINES = 5


class ReceiverProcess:
    """A running receiver. As a context manager it leaves no process behind.

    Args:
        arguments: Arguments between ``silverfold`` and ``receive``.
        feed: Name of the feed.
        log: File for the receiver's output.
        longest: Seconds after which the receiver ends by itself, in case nothing stops it.
        environ: Environment of the process.
    """

    def __init__(
        self, arguments: Iterable[str], feed: str, log: Path, *, longest: float, environ: Mapping[str, str]
    ) -> None:
        self._log = log
        # -P: a folder named like ours in the user's current directory must not shadow it.
        command = [sys.executable, "-P", "-m", "silverfold.jobs.receive", *arguments, feed, "--for", str(longest)]
        with log.open("wb") as out:
            # A session of its own: Ctrl-C in the terminal reaches only the demo, which then stops the receiver.
            self._process = subprocess.Popen(  # noqa: S603 - our own module, our own arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environ,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def stop(self) -> int | None:
        """Terminate the receiver; return its exit code, or None if it did not end in time."""
        self._process.terminate()
        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        """Return the last lines of the log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_code is None and self.stop() is None:
            self._process.kill()
            self._process.wait()
