"""What a command writes to, where nobody may be there to read it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast


class Unfailing:
    """A stream whose lines are lost where it takes none: a full disk or a reader that is gone ends no receiver."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what the stream takes."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush it, if that can be done."""
        with suppress(OSError):
            self._stream.flush()


def open_streams() -> None:
    """Let there be both of the process's streams, and nothing fail for what it says on stderr."""
    if sys.stdout is None:  # it was closed before the process began
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process runs
    if not isinstance(sys.stderr, Unfailing):
        stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above
        sys.stderr = cast(TextIO, Unfailing(stderr))
