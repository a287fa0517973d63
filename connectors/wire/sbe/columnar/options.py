"""What may be chosen when messages become columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from connectors.wire.sbe.text import TextMode
from connectors.wire.sbe.walk import MAX_EMPTY_ENTRIES

VERSION, BLOCK_LENGTH = "#version", "#blockLength"
"""Columns of ``shapes``: the acting version, and the bytes of the block on the wire. No element can be called so."""


@dataclass(frozen=True)
class ColumnOptions:
    """How columns look and which messages are refused. The defaults read what `decode` reads, all values exact."""

    types: Literal["arrow", "spark"] = "arrow"
    """``arrow`` keeps the width and sign of each primitive. ``spark`` has only types that Spark has too: unsigned
    integers one width up, uint64 as decimal(20, 0), timestamps in microseconds."""
    text: TextMode = "strict"
    """What becomes of bytes that are not text in their charset: an error of the message; replacement characters; or,
    with ``bytes``, no text at all: text columns are binary and hold the bytes, char arrays up to their first NUL."""
    sets: Literal["names", "integer"] = "names"
    """A set as the sorted list of its names, which leaves out bits that have none, or as its integer."""
    decimals: bool = False
    """A composite of a mantissa and a constant exponent (of 0 or less) is one decimal number, not a struct."""
    timestamps: bool = False
    """A time whose unit the schema knows is a timestamp in UTC, not a number or a struct: an integer field of semantic
    type UTCTimestamp, or such a composite with a constant unit. One that no timestamp can hold is an error of its
    message: of Spark's before the year 1 or after 9999, of Arrow's beyond 64 bits."""
    strict: bool = False
    """Bytes behind the end of a message that is not newer than the schema are an error."""
    shapes: bool = False
    """The root and each entry have two columns more, `VERSION` and `BLOCK_LENGTH`: what tells absent from null."""
    max_empty_entries: int = MAX_EMPTY_ENTRIES
    """Most group entries that take no bytes at all to read from one message."""
