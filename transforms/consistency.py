"""Counts changes that are inconsistent with existing rows: updates and deletes of no row, inserts over a row.

Each change has a one-letter code::

    i  insert      u  update      d  delete
    I  U  D        the same, not checked: rows of a snapshot, and changes that landed while it was taken
    x  y  z        already known to be inconsistent: an update of no row, an insert over a row, a delete of no row

Whether a change is consistent follows from its key's last preceding code that begins or ends a row. If there is none,
it follows from whether a row existed at the key before the cut. So the counts do not depend on where cuts end. The
exception is a source with an order of its own: a change that arrives after one that follows it is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE

OP_HISTORY = "said"
"""Column of folded change rows: counts of their key's inconsistent changes, a struct of `_COUNTS`."""

UPDATES_WITHOUT_ROW, INSERTS_OVER_ROW, DELETES_OF_NOTHING = (
    "updates_without_row",
    "inserts_over_row",
    "deletes_of_nothing",
)

OF_NOTHING = {UPDATE: "x", INSERT: "y", DELETE: "z"}
"""Code of an inconsistent change, by its ``op``."""


def op_code(*, snapshot_end: int | None = None) -> Column:
    """Return a change row's code.

    Args:
        snapshot_end: Position up to which changes overlay a snapshot that may already contain them; not checked.
    """
    judged = F.lit(True) if snapshot_end is None else F.col("frame_seq") > snapshot_end
    op = F.col("op")
    code = F.when(op == INSERT, F.lit("i")).when(op == UPDATE, F.lit("u")).when(op == DELETE, F.lit("d"))
    return F.when(op == SNAPSHOT, F.lit("I")).when(judged, code).otherwise(F.upper(code))


def is_judged(op_code: Column) -> Column:
    """Return whether a code is that of a change to be checked."""
    return F.lower(op_code) == op_code


_COUNTS = ("x", "y", "z", "x_if_none", "y_if_stood", "z_if_none")
"""Updates of no row, inserts over a row, deletes of no row: first the certain ones, then those that depend on whether a
row existed before the cut."""

_BEGINS, _ENDS = ("i", "I"), ("d", "D")


def last_op_code(op_code: Column, order: Sequence[Column], *, upsert: bool) -> Column:
    """Return the key's last code before a change row that begins or ends a row; NULL if there is none.

    Args:
        op_code: A change row's code.
        order: Columns that order the change rows of a key.
        upsert: An update begins a row where there is none.
    """
    is_update = F.lower(op_code) == "u"
    resets = F.when(is_update, F.lit("I")).otherwise(op_code) if upsert else F.when(~is_update, op_code)
    before = Window.partitionBy("key").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    return F.last(resets, ignorenulls=True).over(before)


def count_inconsistent(op_code: Column, last: Column, *, upsert: bool) -> Column:
    """Aggregate the counts of a key's inconsistent changes.

    Args:
        op_code: A change row's code; NULL for one that is not to be counted.
        last: As `last_op_code` returns it.
        upsert: As for `last_op_code`: an update is then always consistent.
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


def parse_counts(op_codes: Column) -> Column:
    """Return the same counts for a key whose changes are already checked.

    Args:
        op_codes: One code for each inconsistent change.
    """
    found = (F.regexp_count(op_codes, F.lit(each)).cast("long") for each in _COUNTS[:3])
    return F.struct(
        *(count.alias(name) for name, count in zip(_COUNTS[:3], found, strict=True)),
        *(F.lit(0).cast("long").alias(name) for name in _COUNTS[3:]),
    )


def unexplained(history: Column, existed: Column) -> dict[str, Column]:
    """Return, by name, the counts of a key's inconsistent changes.

    Args:
        history: The key's `OP_HISTORY`.
        existed: Whether a row existed at the key before the cut.
    """
    return {
        UPDATES_WITHOUT_ROW: history["x"] + F.when(existed, 0).otherwise(history["x_if_none"]),
        INSERTS_OVER_ROW: history["y"] + F.when(existed, history["y_if_stood"]).otherwise(0),
        DELETES_OF_NOTHING: history["z"] + F.when(existed, 0).otherwise(history["z_if_none"]),
    }
