"""Translates errors from Spark jobs into errors of `conf.errors`: those a query raises on purpose, and Spark's own.

A query can only raise text, so texts raised on purpose begin with a marker, which `named_errors` recognises. Values
that Spark quotes in its messages are left out: they may be confidential.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from silverfold.conf.errors import ApplyError, NullKey, Overtaken, StoreUnavailable
from silverfold.conf.files import FULL

NULL_KEY = "SILVERFOLD_NULL_KEY"
"""A row has a NULL in its key."""

_OVERTAKEN = (
    "DELTA_CONCURRENT",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "FIELD_ALREADY_EXISTS",
    "ConcurrentTransactionException",
)
"""Error conditions, or exception names, that Delta reports when another commit came first."""

_FULL = ("No space left on device", "Disk quota exceeded")
"""Messages of a full disk; Spark itself only reports a failed task."""

_UNREADABLE = ("FAILED_READ_FILE", "PATH_NOT_FOUND", "DELTA_STATE_RECOVER_ERROR", "java.io.FileNotFoundException")
"""Error conditions, or exception names, for a damaged or missing file, or a store that does not answer."""

_WAYS_ON = {
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION": (
        "a table with a change data feed, and with a blank or one of ,;{}()= in a column's name, keeps its types: "
        "set change_data_feed to false, build, and set it again"
    )
}
"""What to do about an error condition that Delta does not explain."""

_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED")
"""Error conditions of a cancelled job."""

_WORKER_FAILURE = re.compile(
    r"ModuleNotFoundError: No module named '[\w.]+'"
    r"|ImportError: cannot import name '\w+' from '[\w.]+'"
    r"|Cannot run program \"[^\"]*\""
    r"|Python in worker has different version: [\d.]+ than that in driver: [\d.]+"
    r"|\w+ >= [\w.]+ must be installed; however, (?:it was not found|your version is \w[\w.]*\w)"
)
"""Errors of a worker that cannot start: it lacks our modules, a library or Python, or has another version of it."""

_NO_CAUSE = ("at ", "Suppressed: ")
"""Beginnings of lines of a Java trace that name no cause. Spark 4.0 suppresses where an error was raised first."""

_METASTORE_AWAY = re.compile(r"Could not connect to meta store[^\n]*")
"""Error of Hive's client, four causes below Spark's own, whose condition ``_LEGACY_ERROR_TEMP_3065`` says nothing."""


@contextmanager
def named_errors(table: str) -> Iterator[None]:
    """Translate Spark errors inside the block into the matching ApplyError of the table.

    Raises:
        StoreUnavailable: The disk is full, or a file cannot be read.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        quotes = isinstance(error, AnalysisException)  # it quotes the statement, markers included: nothing has run
        text = "" if quotes else str(error)
        if NULL_KEY in text:
            detail = "a row of the source has a NULL in its key, or in what orders its changes"
            raise NullKey(detail, table=table) from error
        condition = _condition(error)
        if any(full in condition for full in _FULL):
            raise StoreUnavailable(f"{table}: {condition}") from error
        if any(name in condition for name in _UNREADABLE):
            raise StoreUnavailable(f"{table}: {_unreadable(error, condition)}") from error
        if any(name in condition for name in _OVERTAKEN):
            raise Overtaken("another process has written the table meanwhile; try again", table=table) from error
        way_on = "".join(f": {text}" for name, text in _WAYS_ON.items() if name in condition)
        raise ApplyError(f"Spark: {condition}{way_on}", table=table) from error
    except OSError as error:  # data for the JVM goes through a file
        if error.errno not in FULL:
            raise
        where = error.filename or "a temporary folder (TMPDIR, SPARK_LOCAL_DIRS)"
        raise StoreUnavailable(f"{table}: {where}: {error.strerror}") from error


def was_interrupted(error: BaseException) -> bool:
    """Return whether an error was raised while handling an interrupt, as when the interrupt cancels the job."""
    found = error.__context__
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__context__
    return found is not None


def was_cancelled(error: BaseException) -> bool:
    """Return whether an error, or its cause, is that a job was cancelled: an interrupt cancels all of them."""
    return any(name in text for name in _CANCELLED for text in (str(error), str(error.__cause__)))


def _condition(error: PySparkException | Py4JError) -> str:
    worker = _WORKER_FAILURE.search(str(error))
    if worker is not None:
        return f"its workers lack what a job needs: {worker[0]}"
    if (away := _METASTORE_AWAY.search("\n".join(_causes(error)))) is not None:
        return away[0]
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        raised = _raised_in_python(str(error)) if condition == "PYTHON_EXCEPTION" else None
        return condition if raised is None else f"{condition}: {raised}"
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if ("Exception" in line or "Error" in line) and not line.startswith(_NO_CAUSE)]
    return (named[-1].lstrip(": ") if named else type(error).__name__)[:300]


def _causes(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of the Java exceptions that caused an error, as far as PySpark knows them."""
    while (error := getattr(error, "_cause", None)) is not None:
        yield str(error)


def _unreadable(error: PySparkException | Py4JError, condition: str) -> str:
    parameters = (error.getMessageParameters() or {}) if isinstance(error, PySparkException) else {}
    way_on = "if it stays so, the file is damaged or gone: `silverfold verify` says which, and what can be done"
    return f"Spark cannot read {parameters.get('path', 'a file')} ({condition}); {way_on}"


def _raised_in_python(text: str) -> str | None:
    """Return the type of the error below the last traceback in a text, without its message, which may contain data."""
    _, _, below = text.rpartition("Traceback (most recent call last):\n")
    first = next((line for line in below.splitlines() if not line.startswith(" ")), "")
    named = re.match(r"[\w.]+(?=:|$)", first)
    return None if named is None else named[0].rpartition(".")[2]
