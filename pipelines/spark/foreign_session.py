"""Checks of a session that somebody else started, before a command uses it.

A build sets options on sessions of its own: those that write values exactly, and those that carry a table's position
into its commit. For MERGE, Delta takes a position from the session alone; only appends and overwrites have options of
their own for it. A build also caches rows. Databricks serverless compute forbids both: it raises CONFIG_NOT_AVAILABLE
for all options but a few, and refuses ``persist`` (Databricks, "Serverless compute limitations"). Checked at the start,
this costs one line; found by the first cut, it would be an error of that cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from silverfold.conf.errors import SparkUnavailable
from silverfold.transforms.merge import POSITION_OPTIONS

_ADVICE: Final = (
    "a build caches rows, and sets options that carry a table's position into its commit, which serverless compute "
    "allows for neither. Run on a job cluster in dedicated access mode, as jobs/databricks does"
)


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
