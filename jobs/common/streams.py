"""Output streams of a command that tolerate a missing reader."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast


class Unfailing:
    """A stream that drops output on errors, so that a full disk or a closed pipe does not end a receiver."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, ignoring errors."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, ignoring errors."""
        with suppress(OSError):
            self._stream.flush()


def open_streams() -> None:
    """Ensure that stdout and stderr exist, and that writing to stderr never fails."""
    if sys.stdout is None:  # closed before the process started
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process runs
    if not isinstance(sys.stderr, Unfailing):
        stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above
        sys.stderr = cast(TextIO, Unfailing(stderr))
