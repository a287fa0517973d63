"""Surveys a cut by its change rows, for decoders that do not fold: one pass, before anything is written."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from conf.errors import NullKey
from connectors.base import Survey
from transforms.changes import UPDATE, complete, struct_type


def survey_changes(changes: DataFrame) -> Survey:
    """Return what is to be known of a cut: rows with ``error`` or a NULL in the key, moves, partial updates.

    Runs one Spark job, which decodes every frame and collects one line.
    """
    listed = complete(changes)
    keys = struct_type(listed, "key").names
    wrong, good = _wrong(listed), F.col("error").isNull()
    bad = F.min(F.when(wrong.isNotNull(), F.struct("frame_seq", wrong.alias("error"))))
    line = listed.agg(
        F.count_if(good).alias("changes"),
        F.count_if(good & F.col("old_key").isNotNull()).alias("moves"),
        F.count_if(good & (F.col("op") == UPDATE) & F.col("present").isNotNull()).alias("partial"),
        F.min("sequence").alias("first_sequence"),
        F.struct(*(_bounds(name).alias(name) for name in keys)).alias("bounds"),
        bad.alias("bad"),
    ).first()
    assert line is not None
    found = line.bad and line.bad.error
    return Survey(
        bad_position=line.bad and line.bad.frame_seq,
        bad_class=found and found.error_class,
        bad_reason=found and found.reason,
        changes=line.changes,
        bounds={name: tuple(ends) for name, ends in zip(keys, line.bounds, strict=True) if None not in ends},
        wide_ranges=0,
        notes={},
        moves=line.moves,
        partial=line.partial,
        first_sequence=line.first_sequence,
    )


def _wrong(changes: DataFrame) -> Column:
    """Return the row's error; one that a key is NULL where the decoder did not see it."""
    key = struct_type(changes, "key")
    nulls = [F.col("key").isNull(), *(F.col("key").getField(name).isNull() for name in key.names)]
    null_key = F.struct(F.lit(NullKey.error_class).alias("error_class"), F.lit("a key is NULL").alias("reason"))
    return F.coalesce(F.col("error"), F.when(reduce(or_, nulls), null_key))


def _bounds(name: str) -> Column:
    key, old_key = (F.col(side).getField(name) for side in ("key", "old_key"))
    return F.struct(F.min(F.least(key, old_key)), F.max(F.greatest(key, old_key)))
