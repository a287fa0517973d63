"""Names of columns: which are taken, and how Spark compares them, to whom letter case says nothing."""

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
"""Names, folded, that Spark and Delta have for columns of their own: no table with such a one can be merged into."""


def folded(name: str) -> str:
    """Return a name so that names which Spark takes for one are equal.

    Each letter is compared by its capital's small letter, as Java's ``equalsIgnoreCase`` has it: a long s is an s, and
    a dotted capital I an i. Letters that become several by that stay as they are.
    """
    return name.lower() if name.isascii() else "".join(map(_folded, name))


def _folded(letter: str) -> str:
    capital = letter.upper()
    return (capital if len(capital) == 1 else letter).lower()[0]
