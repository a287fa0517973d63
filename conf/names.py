"""Column names: those reserved by Spark and Delta, and Spark's case-insensitive comparison."""

from __future__ import annotations

TAKEN = frozenset(
    {
        "__delta_internal_is_row_deleted",
        "_file_name_",
        "_metadata",
        "_row_dropped_",
        "_row_id_",
        "_source_row_present_",
        "_target_row_present_",
        "_tmp_metadata_row_index",
        "deletionvectorid",
    }
)
"""Case-folded names of Spark's and Delta's internal columns: a table with such a column cannot be merged into."""


def caseless(name: str) -> str:
    """Return a case-folded name: names that Spark considers the same are equal.

    Each letter is upper-cased, then lower-cased, as in Java's ``equalsIgnoreCase``: a long s is an s, and a dotted
    capital I an i. Letters that would become several by that are only lower-cased.
    """
    return name.lower() if name.isascii() else "".join(map(_caseless_letter, name))


def _caseless_letter(letter: str) -> str:
    capital = letter.upper()
    return (capital if len(capital) == 1 else letter).lower()[0]
