"""Options for decoding messages to columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from silverfold.connectors.wire.sbe.codec.walk import MAX_EMPTY_ENTRIES
from silverfold.connectors.wire.sbe.schema.model import TimeUnit
from silverfold.connectors.wire.sbe.schema.text import TextMode

VERSION, BLOCK_LENGTH = "#version", "#blockLength"
"""Columns added by ``shapes``: acting version, and block length on the wire. No element can have these names."""


@dataclass(frozen=True)
class ColumnOptions:
    """Column types, and which messages are refused. The defaults read what `decode` reads, all values exact."""

    types: Literal["arrow", "spark"] = "arrow"
    """``arrow`` preserves the width and sign of each primitive. ``spark`` uses only types that Spark has too: unsigned
    integers one width up, uint64 as decimal(20, 0), timestamps in microseconds."""
    text: TextMode = "strict"
    """How to treat bytes that are not text in their charset: as an error of the message; with replacement characters;
    or, with ``bytes``, not as text: text columns are binary and contain the bytes, char arrays up to the first NUL."""
    sets: Literal["names", "integer"] = "names"
    """A set as the sorted list of its names, without unnamed bits, or as its integer."""
    decimals: bool = False
    """A composite of a mantissa and a constant exponent (0 or less) becomes one decimal number, not a struct."""
    timestamps: bool = False
    """A time with a unit defined by the schema becomes a timestamp in UTC, not a number or a struct: an integer field
    of semantic type UTCTimestamp, or such a composite with a constant unit. A time that no timestamp can hold is an
    error of its message: for Spark before the year 1 or after 9999, for Arrow beyond 64 bits."""
    time_unit: TimeUnit = "nanosecond"
    """With ``timestamps``: the unit of an integer field without a ``timeUnit``. SBE 1.0 has nanoseconds."""
    strict: bool = False
    """Trailing bytes after a message that is not newer than the schema are an error."""
    shapes: bool = False
    """Adds two columns to the root and to each entry, `VERSION` and `BLOCK_LENGTH`: they tell absent from null."""
    max_empty_entries: int = MAX_EMPTY_ENTRIES
    """Most group entries of no bytes to read from one message."""
