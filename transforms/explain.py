"""Counts the changes that what stands does not explain: updates and deletes of nothing, inserts over a row.

A change is a letter, and what a key's changes say, in their order, is a word::

    i  insert      u  update      d  delete
    I  U  D        the same, not judged: rows of a snapshot, and changes that landed while it was taken
    x  y  z        found unexplained already: an update of nothing, an insert over a row, a delete of nothing

So the word ``iud`` is right where no row stood before, and begins with an insert over a row where one did. What is
counted does not depend on where cuts end.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE

SAID = "said"
"""Column of folded change rows: the word of their key's changes."""

UPDATES_WITHOUT_ROW, INSERTS_OVER_ROW, DELETES_OF_NOTHING = (
    "updates_without_row",
    "inserts_over_row",
    "deletes_of_nothing",
)

OF_NOTHING = {UPDATE: "x", INSERT: "y", DELETE: "z"}
"""Letter of an unexplained change, by its ``op``."""


def letter(*, settled: int | None = None) -> Column:
    """Return a change row's letter.

    Args:
        settled: Position up to which changes overlay a snapshot, which may have them already: they are not judged.
    """
    judged = F.lit(True) if settled is None else F.col("frame_seq") > settled
    op = F.col("op")
    plain = F.when(op == INSERT, F.lit("i")).when(op == UPDATE, F.lit("u")).when(op == DELETE, F.lit("d"))
    return F.when(op == SNAPSHOT, F.lit("I")).when(judged, plain).otherwise(F.upper(plain))


def is_judged(letters: Column) -> Column:
    """Tell whether a letter is that of a change to be explained."""
    return F.lower(letters) == letters


def unexplained(said: Column, stood: Column, *, upsert: bool) -> dict[str, Column]:
    """Return, by name, how many of a key's changes nothing explains.

    Args:
        said: The key's word.
        stood: Whether a row stood there before the cut.
        upsert: An update of a row that is not there begins one, and is right.
    """
    begins = F.concat(F.when(stood, F.lit("I")).otherwise(F.lit("D")), said)
    word = F.translate(begins, "uU", "II") if upsert else begins
    resets = F.translate(word, "uU", "")
    alone = F.regexp_replace(word, "(?<=[iI])[uU]+", "")
    return {
        UPDATES_WITHOUT_ROW: _count(alone, "[ux]"),
        INSERTS_OVER_ROW: _count(resets, "(?<=[iI])i|y"),
        DELETES_OF_NOTHING: _count(resets, "(?<=[dD])d|z"),
    }


def _count(word: Column, pattern: str) -> Column:
    return F.regexp_count(word, F.lit(pattern))
