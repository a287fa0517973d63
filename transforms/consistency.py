"""Counts the changes that what stands does not explain: updates and deletes of nothing, inserts over a row.

A change is a letter::

    i  insert      u  update      d  delete
    I  U  D        the same, not judged: rows of a snapshot, and changes that landed while it was taken
    x  y  z        found unexplained already: an update of nothing, an insert over a row, a delete of nothing

Whether a change is explained is told by the last letter of its key before it that begins or ends a row; where there is
none, by whether a row stood there before the cut. So what is counted does not depend on where cuts end, but where a
source has an order of its own: a change that comes later than one that follows it is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE

OP_HISTORY = "said"
"""Column of folded change rows: how many of their key's changes nothing explains, a struct of `_COUNTS`."""

UPDATES_WITHOUT_ROW, INSERTS_OVER_ROW, DELETES_OF_NOTHING = (
    "updates_without_row",
    "inserts_over_row",
    "deletes_of_nothing",
)

OF_NOTHING = {UPDATE: "x", INSERT: "y", DELETE: "z"}
"""Letter of an unexplained change, by its ``op``."""


def op_code(*, snapshot_end: int | None = None) -> Column:
    """Return a change row's letter.

    Args:
        snapshot_end: Position up to which changes overlay a snapshot, which may have them already: they are not judged.
    """
    judged = F.lit(True) if snapshot_end is None else F.col("frame_seq") > snapshot_end
    op = F.col("op")
    plain = F.when(op == INSERT, F.lit("i")).when(op == UPDATE, F.lit("u")).when(op == DELETE, F.lit("d"))
    return F.when(op == SNAPSHOT, F.lit("I")).when(judged, plain).otherwise(F.upper(plain))


def is_judged(letters: Column) -> Column:
    """Tell whether a letter is that of a change to be explained."""
    return F.lower(letters) == letters


_COUNTS = ("x", "y", "z", "x_if_none", "y_if_stood", "z_if_none")
"""Updates of nothing, inserts over a row, deletes of nothing: first those that are, then those that hang on whether a
row stood there before the cut."""

_BEGINS, _ENDS = ("i", "I"), ("d", "D")


def last_letter(op_code: Column, order: Sequence[Column], *, upsert: bool) -> Column:
    """Return the last letter of its ``key`` before a change row that begins or ends a row; NULL where there is none.

    Args:
        op_code: A change row's letter.
        order: What change rows of a key are ordered by.
        upsert: An update begins a row where there is none.
    """
    is_update = F.lower(op_code) == "u"
    resets = F.when(is_update, F.lit("I")).otherwise(op_code) if upsert else F.when(~is_update, op_code)
    before = Window.partitionBy("key").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    return F.last(resets, ignorenulls=True).over(before)


def said(op_code: Column, last: Column, *, upsert: bool) -> Column:
    """Aggregate how many of a key's changes nothing explains.

    Args:
        op_code: A change row's letter; NULL for one that is not to be told.
        last: As `last_letter` returns it.
        upsert: As there: an update is right then.
    """
    updates, inserts, deletes = ((op_code == each) & F.lit(each != "u" or not upsert) for each in "uid")
    counts = (
        updates & last.isin(*_ENDS),
        inserts & last.isin(*_BEGINS),
        deletes & last.isin(*_ENDS),
        updates & last.isNull(),
        inserts & last.isNull(),
        deletes & last.isNull(),
    )
    return F.struct(*(F.count_if(count).alias(name) for name, count in zip(_COUNTS, counts, strict=True)))


def said_already(word: Column) -> Column:
    """Return the same of a key whose changes were judged already: a letter for each that nothing explains."""
    found = (F.regexp_count(word, F.lit(each)).cast("long") for each in _COUNTS[:3])
    return F.struct(
        *(count.alias(name) for name, count in zip(_COUNTS[:3], found, strict=True)),
        *(F.lit(0).cast("long").alias(name) for name in _COUNTS[3:]),
    )


def unexplained(told: Column, stood: Column) -> dict[str, Column]:
    """Return, by name, how many of a key's changes nothing explains.

    Args:
        told: The key's `OP_HISTORY`.
        stood: Whether a row stood there before the cut.
    """
    return {
        UPDATES_WITHOUT_ROW: told["x"] + F.when(stood, 0).otherwise(told["x_if_none"]),
        INSERTS_OVER_ROW: told["y"] + F.when(stood, told["y_if_stood"]).otherwise(0),
        DELETES_OF_NOTHING: told["z"] + F.when(stood, 0).otherwise(told["z_if_none"]),
    }
