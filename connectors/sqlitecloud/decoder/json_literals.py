"""Parsing of one column's JSON literals in bulk: most by Arrow, the others one by one."""

from __future__ import annotations

import json
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.connectors.sqlitecloud.protocol.landed.values import Column

Mask: TypeAlias = npt.NDArray[np.bool_]

_IN_RANGE: Final = {"bigint": r"^-?[0-9]{1,18}$", "double": r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$"}
"""Numeric literals that are always in range."""

_AS_PYTHON: Final = (
    r"^-?(?:0|[1-9][0-9]*|(?:0|[1-9][0-9]{0,6})\.0|[1-9][0-9]{0,6}\.[0-9]{0,7}[1-9]"
    r"|0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?)$"
)
"""Integers, and reals in Python's format: at most 15 digits, so that no shorter literal denotes the same double."""


def is_bulk_readable(column: Column) -> bool:
    """Return whether `read_literals` supports a column. Key columns only if distinct keys stay distinct."""
    if column.is_mixed or (column.is_key and column.kind == "double"):
        return False
    return column.kind == "string" or column.kind in _IN_RANGE


def read_literals(column: Column, literals: pa.Array) -> tuple[pa.Array, Mask]:
    """Return the parsed values, others null, and a mask of the literals Arrow could not parse.

    Args:
        literals: JSON numbers, strings, ``true``, ``false`` and ``null``; empty for an absent value, which is null.
    """
    values = pc.if_else(pc.is_in(literals, _NONE), None, literals)
    if column.kind in _IN_RANGE:
        try:
            return pc.cast(values, column.arrow), np.zeros(len(values), np.bool_)
        except pa.ArrowInvalid:
            is_read = pc.match_substring_regex(values, _IN_RANGE[column.kind])
            read = pc.cast(pc.if_else(is_read, values, None), column.arrow)
    elif column.kind == "string":
        read, is_read = _texts(column, values)
    else:
        read, is_read = pa.nulls(len(values), column.arrow), pc.is_null(values)
    return read, pc.fill_null(pc.invert(is_read), False).to_numpy(zero_copy_only=False)


def read_all(column: Column, literals: pa.Array) -> tuple[pa.Array, Mask]:
    """Return all values as `Column.array` does, null where one does not fit, and a mask of those."""
    read, unparsed = read_literals(column, literals)
    if not unparsed.any():
        return read, unparsed
    others, wrong = column.array(
        [json.loads(each) for each in literals.filter(pa.array(unparsed)).to_pylist()], sent=True
    )
    failed = np.zeros(len(unparsed), np.bool_)
    failed[np.flatnonzero(unparsed)[list(wrong)]] = True
    return pc.replace_with_mask(read, unparsed, others), failed


def _texts(column: Column, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return unquoted texts, and numbers unchanged, with a mask of the literals parsed."""
    is_text = pc.starts_with(values, '"')
    texts = pc.utf8_slice_codeunits(values, 1, -1)
    is_read = pc.and_(is_text, pc.invert(pc.match_substring(values, "\\")))
    if not column.texts_only and not pc.all(is_text).as_py():
        texts = pc.if_else(is_text, texts, values)
        is_read = pc.or_(is_read, pc.match_substring_regex(values, _AS_PYTHON))
    texts = pc.if_else(is_read, texts, None)
    return pc.ascii_lower(texts) if column.nocase else texts, is_read


_NONE: Final = pa.array(["", "null"])
