"""Looks whether the workers of a cluster can work, before the first cut needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import SparkSession, is_remote

from conf.errors import ApplyError, SparkUnavailable
from connectors.registry import CONNECTORS, find_connector
from transforms.faults import named_errors

if TYPE_CHECKING:
    import pyarrow as pa

WITHIN: Final = 600.0
"""Seconds for a first task. A cluster may have to start machines for it."""

_A_WORD: Final = 30.0
"""Seconds of silence, at most."""


def await_workers(session: SparkSession, *, within: float = WITHIN) -> None:
    """Run a task that imports what decoders do, where tasks run elsewhere than on this machine.

    A job whose executors never come would wait for ever, without a word.

    Raises:
        SparkUnavailable: No executor came in time, or it lacks Python or a package. The message says which.
    """
    if not is_remote() and re.match(r"local(\[|$)", str(session.sparkContext.master)):
        return
    rows = session.range(1).mapInArrow(_importing, "id bigint")
    with ThreadPoolExecutor(1) as beside:
        task = beside.submit(rows.collect)
        try:
            _awaited(task, within)
        except TimeoutError:
            _cancel(session)
            told = (
                f"no executor has come to work in {within:g} seconds: are there any, and can they reach this machine?"
            )
            raise SparkUnavailable(told) from None


def _awaited(task: Future[Any], within: float) -> None:
    for waited in range(int(within // _A_WORD)):
        try:
            return _done(task, _A_WORD)
        except TimeoutError:
            structlog.get_logger("spark").warning("no executor has come yet", seconds=(waited + 1) * _A_WORD)
    return _done(task, within % _A_WORD)


def _done(task: Future[Any], seconds: float) -> None:
    try:
        with named_errors("a first task"):
            task.result(seconds)
    except ApplyError as error:
        raise SparkUnavailable(f"{error} (conf/README.md says how workers get what they need)") from error


def _cancel(session: SparkSession) -> None:
    if is_remote():
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


def _importing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name in CONNECTORS:
        find_connector(name)
    yield from batches
