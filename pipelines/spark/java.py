"""The Java that Spark runs on: found and checked before the start, its output withheld during it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from silverfold.conf.errors import SparkUnavailable

SUPPORTED = (17, 21)
"""Major versions that both Spark 4.2 and its Arrow run on."""

_CHATTER = re.compile(r"Deleted \d+ files? and director|Found \d+ files? ")
"""Delta's output for a VACUUM, which does not name the table."""

_INSTALL = "Install Java 17 or 21 and set JAVA_HOME to it, or put its java first on the PATH."


def check_java(environ: Mapping[str, str]) -> str:
    """Check that the Java that Spark will run is supported; return its version output.

    Raises:
        SparkUnavailable: There is no Java, it does not run, or its version is not in `SUPPORTED`.
    """
    java = _find_java(environ)
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - the very program Spark would run
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"{java} does not run: {error}. {_INSTALL}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if found is None:
        raise SparkUnavailable(f"{java} does not tell its version. {_INSTALL}")
    if int(found[1]) not in SUPPORTED:
        raise SparkUnavailable(f"{java} is Java {found[1]}, which Spark 4.2 does not run on. {_INSTALL}")
    return shown.stderr + shown.stdout


def _find_java(environ: Mapping[str, str]) -> str:
    """Return the java that Spark's own start script finds: JAVA_HOME, then the PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise SparkUnavailable(f"JAVA_HOME is {home}, but there is no {java}. {_INSTALL}")
        return str(java)
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is None:
        raise SparkUnavailable(f"Spark needs Java, and there is no java on the PATH. {_INSTALL}")
    return on_path


class JvmOutput:
    """Output of a JVM: buffered while it starts, then passed on to our stderr."""

    def __init__(self) -> None:
        self._buffered: deque[str] = deque(maxlen=2_000)
        self._passing_on = threading.Event()
        self._reader: threading.Thread | None = None

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yield a file descriptor for the JVM to write to. The JVM keeps its copy after the block."""
        read_end, write_end = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="jvm-output", daemon=True)
        self._reader.start()
        try:
            yield write_end
        finally:
            os.close(write_end)

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not self._passing_on.is_set():
                    self._buffered.append(line)
                elif not _CHATTER.match(line):
                    sys.stderr.write(line)

    def text(self) -> str:
        """Return the output so far; all of it once the JVM has ended."""
        if self._reader is not None:
            self._reader.join(timeout=2)
        return "".join(self._buffered)

    def pass_on(self) -> None:
        """Discard the buffered output and pass on later lines."""
        self._passing_on.set()
        self._buffered.clear()
