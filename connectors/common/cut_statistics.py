"""Statistics of a cut from its change rows, for decoders that do not fold: find the frame at fault."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from conf.errors import NullKey
from connectors.base import CutStatistics
from transforms.changes import complete, struct_type


def statistics_of_changes(changes: DataFrame) -> CutStatistics:
    """Return the number of changes, and the first frame with a row that has an ``error`` or a NULL in its key.

    Folding finds the rest. Runs one Spark job, which decodes every frame and collects one row.
    """
    rows = complete(changes)
    error = _row_error(rows)
    bad = F.min(F.when(error.isNotNull(), F.struct("frame_seq", error.alias("error"))))
    row = rows.agg(F.count_if(F.col("error").isNull()).alias("changes"), bad.alias("bad")).first()
    assert row is not None
    found = row.bad and row.bad.error
    return CutStatistics(
        bad_position=row.bad and row.bad.frame_seq,
        bad_class=found and found.error_class,
        bad_reason=found and found.reason,
        changes=row.changes,
        bounds={},
        wide_ranges=0,
        counters={},
    )


def _row_error(changes: DataFrame) -> Column:
    """Return the row's error, or a null-key error if the decoder did not report one."""
    key = struct_type(changes, "key")
    nulls = [F.col("key").isNull(), *(F.col("key").getField(name).isNull() for name in key.names)]
    null_key = F.struct(F.lit(NullKey.error_class).alias("error_class"), F.lit("a key is NULL").alias("reason"))
    return F.coalesce(F.col("error"), F.when(reduce(or_, nulls), null_key))
