"""What is to be known of a folded cut before it is written: one Spark job, which folds, and one line of counts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transforms.changes import struct_type
from transforms.explain import EXPECTS, SAID, never_explained, unexplained
from transforms.fold import CHANGES, COMES_FROM, FIRST_SEQUENCE, MOVES


class Facts(NamedTuple):
    """Bounded facts about a cut's folded changes."""

    unreadable: int
    """Rows that come of frames that cannot be decoded, or have a NULL in their key."""
    changes: int
    moves: int
    """Changes that move a row to another key. The cut must be folded in another way if there are any."""
    partial: int
    """Folded rows that are partial updates."""
    first_sequence: str | None
    """Smallest ``sequence``; None where the source has none."""
    never_explained: int
    """Keys of whose changes some are unexplained whatever stood there before the cut."""
    onto_nothing: Mapping[str, int]
    """By name, how many changes are unexplained because nothing stood before the cut; empty unless that was said."""
    bounds: Mapping[str, tuple[Any, Any]]
    """Smallest and largest value of each key column, of keys moved from too."""


def facts_of(folded: DataFrame, *, upsert: bool, onto_nothing: bool) -> Facts:
    """Return the facts about change rows folded with ``letter`` and ``counts``, and `EXPECTS`. Runs one Spark job.

    Args:
        onto_nothing: No row counts that stood before the cut.
    """
    keys, said = struct_type(folded, "key").names, F.col(SAID)
    counts = unexplained(said, F.lit(False), upsert=upsert) if onto_nothing else {"nothing": F.lit(0)}
    line = folded.agg(
        F.count_if(_is_unreadable(folded)).alias("unreadable"),
        F.coalesce(F.sum(CHANGES), F.lit(0)).alias(CHANGES),
        F.coalesce(F.sum(MOVES), F.lit(0)).alias(MOVES),
        F.count_if(F.col("present").isNotNull()).alias("partial"),
        F.min(FIRST_SEQUENCE).alias(FIRST_SEQUENCE),
        F.count_if(never_explained(said, F.col(EXPECTS), upsert=upsert)).alias("never_explained"),
        F.struct(*(F.sum(count).alias(name) for name, count in counts.items())).alias("onto_nothing"),
        F.struct(*(_bounds(name).alias(name) for name in keys)).alias("bounds"),
    ).first()
    assert line is not None
    found = line.asDict()
    found["onto_nothing"] = {name: count for name, count in line.onto_nothing.asDict().items() if count}
    ends = zip(keys, line.bounds, strict=True)
    found["bounds"] = {name: tuple(both) for name, both in ends if None not in both}
    return Facts(**found)


def _is_unreadable(folded: DataFrame) -> Column:
    nulls = (F.col("key").getField(name).isNull() for name in struct_type(folded, "key").names)
    return reduce(or_, nulls, F.col("error").isNotNull() | F.col("key").isNull())


def _bounds(name: str) -> Column:
    key, left = F.col("key").getField(name), F.col(COMES_FROM).getField(name)
    return F.struct(F.min(F.least(key, left["col1"])), F.max(F.greatest(key, left["col2"])))
