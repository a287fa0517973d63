"""Names in SQL: columns reserved by Spark and Delta, Spark's case-insensitive comparison, and names of schemas."""

from __future__ import annotations

import re

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

CHANGE_FEED = frozenset({"_change_type", "_commit_timestamp", "_commit_version"})
"""Names of the columns that Delta's change data feed adds: a table with such a column cannot have one."""

HISTORY = frozenset({"__start_at", "__end_at"})
"""Case-folded names of the columns that a history adds."""

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_DEFAULT_CATALOG = "spark_catalog"


def caseless(name: str) -> str:
    """Return a case-folded name: names that Spark considers the same are equal.

    Each letter is upper-cased, then lower-cased, as in Java's ``equalsIgnoreCase``: a long s is an s, and a dotted
    capital I an i. Letters that would become several by that are only lower-cased.
    """
    return name.lower() if name.isascii() else "".join(map(_caseless_letter, name))


def _caseless_letter(letter: str) -> str:
    capital = letter.upper()
    return (capital if len(capital) == 1 else letter).lower()[0]


def schema_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a schema's name: its catalog, if named, and the schema.

    A part with dots, spaces or backquotes stands in backquotes, a backquote in it twice, as in SQL.

    Raises:
        ValueError: It has no parts, or more than two. The message says what is allowed.
    """
    parts, at = [], 0
    while (found := _PART.match(name, at)) is not None:
        parts.append(found[2] or found[1].replace("``", "`"))
        at = found.end() + 1
        if name[found.end() : at] != ".":
            break
    if at != len(name) + 1 or len(parts) > 2 or not name.isprintable():
        raise ValueError("schema or catalog.schema, a part with dots or spaces in `backquotes`")
    return tuple(parts)


def caseless_schema(name: str) -> tuple[str, ...]:
    """Return the parts of a schema's name so that two names of one schema are equal. Without a catalog it is Spark's.

    Raises:
        ValueError: As `schema_parts`.
    """
    parts = tuple(map(caseless, schema_parts(name)))
    return parts if len(parts) == 2 else (_DEFAULT_CATALOG, *parts)
