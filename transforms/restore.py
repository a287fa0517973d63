"""Restores a Delta table to an earlier version, in one commit that writes no rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

from transforms.merge import USER_METADATA
from transforms.spark_errors import named_errors
from transforms.sql import path_table


def restore(session: SparkSession, path: str, version: int, *, metadata: str) -> None:
    """Restore the table at a path or URL to a version. Positions in its log are unchanged. Runs Spark jobs.

    Args:
        session: Not shared with other writers.
        metadata: Text for the commit's ``userMetadata``.

    Raises:
        ApplyError: Spark or Delta refused, for example if files of that version were removed. Nothing was committed.
    """
    session.conf.set(USER_METADATA, metadata)
    try:
        with named_errors(path):
            session.sql(f"RESTORE TABLE {path_table(path)} TO VERSION AS OF {version:d}").collect()
    finally:
        session.conf.unset(USER_METADATA)
