"""Sessions that are there already: a notebook's, or a platform's. They stay as they are, and are checked before use.

A build sets options on sessions of its own: those that write values exactly, and those that carry a table's position
into its commit. For MERGE, Delta takes a position from the session alone; only appends and overwrites have options of
their own for it. A build also caches rows. Databricks serverless compute forbids both: it raises CONFIG_NOT_AVAILABLE
for all options but a few, and refuses ``persist`` (Databricks, "Serverless compute limitations"). Checked at the start,
this costs one line; found by the first cut, it would be an error of that cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession, is_remote

from silverfold.conf.errors import SparkUnavailable
from silverfold.pipelines.spark.jars import fitting_delta
from silverfold.transforms.merge import POSITION_OPTIONS

_PROBE: Final = "OPTIMIZE delta.`/silverfold/no/table`"
"""A statement that only Delta's SQL extension can parse; there is no such table, so that nothing is done."""

_WITHOUT_DELTA: Final = ("PARSE_SYNTAX_ERROR", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG")
"""Its error without the extension, which there is not without Delta's JARs, and without Delta's catalog.

Any other error is of a session that has all, or of a platform that has them under other names.
"""

_ADVICE: Final = (
    "a build caches rows, and sets options that carry a table's position into its commit, which serverless compute "
    "allows for neither. Run on a job cluster in dedicated access mode, as jobs/databricks does"
)


def active_session() -> SparkSession | None:
    """Return the session that is active in this thread or is the process's default; None if there is none."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # Databricks has started Spark, even where no session is active yet
        return SparkSession.builder.getOrCreate() if "DATABRICKS_RUNTIME_VERSION" in os.environ else None


def check_delta(session: SparkSession) -> None:
    """Check that a session has Delta's JARs, SQL extension and catalog. Runs no job.

    Raises:
        SparkUnavailable: It lacks one of them. The message says how to start one that has all.
    """
    try:
        session.sql(_PROBE)
    except PySparkException as error:
        if error.getCondition() not in _WITHOUT_DELTA:
            return
        lacking, otherwise = "the running Spark session", ", or stop it, and silverfold starts one"
        if is_remote():
            lacking, otherwise = "the Spark Connect server", ""
        raise SparkUnavailable(
            f"{lacking} lacks Delta: start it with "
            f"spark.jars.packages = {fitting_delta(session.version)}, "
            "spark.sql.extensions = io.delta.sql.DeltaSparkSessionExtension and "
            f"spark.sql.catalog.spark_catalog = org.apache.spark.sql.delta.catalog.DeltaCatalog{otherwise}"
        ) from error


def set_option(session: SparkSession, name: str, value: str) -> None:
    """Set an option of a running session. The value, which may be a secret, is in no message.

    Raises:
        SparkUnavailable: The session refuses the option.
    """
    with refusal(f"the option {name}"):
        session.conf.set(name, value)


def check_session(session: SparkSession) -> None:
    """Check that commits of a session can carry positions, and that it caches rows. Runs no Spark job.

    Args:
        session: One of our own: the options of `POSITION_OPTIONS` are unset afterwards.

    Raises:
        SparkUnavailable: It refuses. The message says what, why that is needed, and what to use instead.
    """
    for name in POSITION_OPTIONS:
        set_option(session, name, "0")
        session.conf.unset(name)
    with refusal("persist"):
        session.range(1).persist().unpersist()


@contextmanager
def refusal(what: str) -> Iterator[None]:
    """Raise SparkUnavailable for what a session refuses, or its client does not know, inside the block."""
    try:
        yield
    except (PySparkException, Py4JError, AttributeError) as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        reason = f" ({condition})" if condition else ""
        raise SparkUnavailable(f"this Spark refuses {what}{reason}: {_ADVICE}") from None


@contextmanager
def leaving_active(session: SparkSession | None) -> Iterator[None]:
    """Make a session, if there is one, the active one again after the block.

    Creating a DataFrame in another session makes that the active one; so this does, for lack of a public setter.
    """
    try:
        yield
    finally:
        if session is not None and not is_remote():  # there, nothing activates a session
            with suppress(Py4JError, OSError, AttributeError):  # it has ended
                session.createDataFrame([], "nothing int")
