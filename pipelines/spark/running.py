"""Sessions that are there already: a notebook's, or a platform's. They stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession, is_remote

from silverfold.conf.errors import SparkUnavailable
from silverfold.pipelines.spark.jars import fitting_delta

_PROBE: Final = "OPTIMIZE delta.`/silverfold/no/table`"
"""A statement that only Delta's SQL extension can parse; there is no such table, so that nothing is done."""

_WITHOUT_DELTA: Final = ("PARSE_SYNTAX_ERROR", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG")
"""Its error without the extension, which there is not without Delta's JARs, and without Delta's catalog.

Any other error is of a session that has all, or of a platform that has them under other names.
"""


def active_session() -> SparkSession | None:
    """Return the session that is active in this thread or is the process's default; None if there is none."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


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
        raise SparkUnavailable(
            "the running Spark session lacks Delta: start it with "
            f"spark.jars.packages = {fitting_delta(session.version)}, "
            "spark.sql.extensions = io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog = org.apache.spark.sql.delta.catalog.DeltaCatalog, "
            "or stop it, and silverfold starts one"
        ) from error


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
