"""Runs a job as its command does, and kills it with SIGKILL at a step of its work, along with the JVM it started.

::

    python -m tests.support.killed MODULE:NAME WHEN FOLDER JOB…

WHEN is ``before`` the step, ``after`` it, ``during`` it (as soon as a data file is created in FOLDER), or ``decoding``
(as soon as a worker has read the first frames passed to the step). Must be started in its own process group.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from silverfold.connectors.common.arrow_rows import InSpark
from silverfold.jobs.cli import main


def kill() -> None:
    """Kill the process group."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def kill_at_a_new_file(folder: Path) -> None:
    """Kill the process group once a new data file appears. Returns immediately."""
    known = set(folder.glob("part-*"))

    def watch() -> None:
        while known.issuperset(folder.glob("part-*")):
            time.sleep(0.001)
        kill()

    threading.Thread(target=watch, daemon=True).start()


def beginning_a_file(frames: DataFrame, folder: Path) -> InSpark:
    """Return the frames; reading them creates a data file."""
    path = str(folder / "part-decoding")

    def begin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(path, "wb"):  # noqa: PTH123 - the function goes to a worker with nothing but what it names
                yield batch

    return InSpark(frames.mapInArrow(begin, frames.schema))


def dying(step: Callable[..., Any], when: str, folder: Path) -> Callable[..., Any]:
    """Return the step, wrapped to kill the process."""

    def die(*args: Any, **kwargs: Any) -> None:
        if when == "before":
            kill()
        if when == "decoding":
            table, frames, *rest = args
            args = (table, beginning_a_file(frames.dataframe(), folder), *rest)
        if when != "after":
            kill_at_a_new_file(folder)
        step(*args, **kwargs)
        assert when == "after", "the step was done before a file was seen"
        kill()

    return die


def patch(step: str, when: str, folder: Path) -> None:
    """Patch the step so that the process dies at it."""
    module, _, name = step.partition(":")
    *owners, last = name.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, last, dying(getattr(owner, last), when, folder))


if __name__ == "__main__":
    patch(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    main(sys.argv[4:])
