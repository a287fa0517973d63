"""Boundary values of every column type, and their decoded form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from silverfold.connectors.deephaven.protocol.columns.encode import encode_column
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.types import TYPES

INF = math.inf
FLOAT_MAX = 3.4028234663852886e38
DOUBLE_MAX = 1.7976931348623157e308

FIXED: dict[str, list[Any]] = {
    "Byte": [None, -127, -1, 0, 127],
    "Boolean": [None, True, False],
    "Char": [None, "A", "\0", "é", "日", "\uffff", "\ufffd"],
    "Short": [None, -32767, -1, 0, 32767],
    "Int": [None, -2147483647, -1, 0, 2147483647],
    "Long": [None, -9223372036854775807, -1, 0, 9223372036854775807],
    "Float": [None, "NaN", INF, -INF, FLOAT_MAX, 1.401298464324817e-45, 0.0],
    "Double": [None, "NaN", INF, -INF, DOUBLE_MAX, 5e-324, 0.0],
    "DateTime": [None, -9223372036854775807, 0, 1503668245123456789, 9223372036854775807],
}
"""Python values; ``"NaN"`` represents NaN, which equals nothing."""

CASES: dict[str, list[Any]] = (
    FIXED
    | {
        "String": [None, "", "a", "é", "日本", "\U0001d11e", "a\0b", "x" * 200],
        "Decimal": [None, "0", "-123.45", "1.2E+4", "0.000", "9" * 38, "-" + "7" * 60, "1E-300"],
        "StringSet": [None, [], ["a"], ["a", "b", "日本"]],
        "StringArray": [None, [], [None], ["a", None, "", "日本"]],
    }
    | {f"{name}Array": [None, [], [None], values, list(reversed(values))] for name, values in FIXED.items()}
)
"""By type, values in decoded form."""


def written(name: str) -> list[Any]:
    """Return the cases of a type in the form that is encoded."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return {*value} if name == "StringSet" else [one(element) for element in value]
        if name == "Decimal" and value is not None:
            return Decimal(value)
        return math.nan if value == "NaN" and name.removesuffix("Array") in {"Float", "Double"} else value

    return [one(value) for value in CASES[name]]


def readable(values: Iterable[Any]) -> list[Any]:
    """Return decoded values with ``"NaN"`` for NaN, so that they can be compared."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(element) for element in value]
        return "NaN" if isinstance(value, float) and math.isnan(value) else value

    return [one(value) for value in values]


def pairs(*ranges: tuple[int, int]) -> Longs:
    """Return row ranges in the codec's form."""
    return np.array(ranges, np.int64).reshape(-1, 2)


def encoded(
    roles: Roles,
    name: str,
    values: Any,
    *ranges: tuple[int, int],
    modified: bool = False,
    limit: int = 65536,
) -> list[bytes]:
    """Encode a column of subscription 7, column 3; by default one range from row 0."""
    return list(
        encode_column(
            roles,
            TYPES[name],
            values,
            subscription_id=7,
            column_id=3,
            modified=modified,
            ranges=pairs(*(ranges or ((0, len(values) - 1),))),
            limit=limit,
        )
    )
