"""Encodes values row by row, so that messages can be split between any two rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue, SourceRefused
from silverfold.connectors.deephaven.protocol.layouts import Longs, Number, write_blocks
from silverfold.connectors.deephaven.protocol.messages import ErrorCode
from silverfold.connectors.deephaven.protocol.roles import Values
from silverfold.connectors.deephaven.protocol.types import Shape


@dataclass(frozen=True)
class FixedRows:
    """Rows of equal width."""

    octets: bytes
    width: int
    ends: Longs

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def longest(self) -> int:
        """Length of the longest row in bytes."""
        return self.width

    def between(self, begin: int, end: int) -> bytes:
        """Return rows ``begin`` up to, but excluding, ``end``."""
        return self.octets[begin * self.width : end * self.width]


@dataclass(frozen=True)
class VariableRows:
    """Rows of varying width."""

    rows: list[bytes]
    ends: Longs

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def longest(self) -> int:
        """Length of the longest row in bytes."""
        return max(map(len, self.rows), default=0)

    def between(self, begin: int, end: int) -> bytes:
        """Return rows ``begin`` up to, but excluding, ``end``."""
        return b"".join(self.rows[begin:end])


RowData: TypeAlias = FixedRows | VariableRows
"""Encoded rows; ``ends`` are their cumulative lengths in bytes."""


def row_data(role: Values, values: npt.NDArray[Any] | Sequence[Any]) -> RowData:
    """Encode values as entries of the group of values.

    Raises:
        SourceRefused: ``OBJECT_OVERFLOW``: a text or array is longer than the schema allows.
        InvalidValue: A value is outside its type, or outside the type that the schema declares.
    """
    if role.type.shape is Shape.FIXED and role.simple:
        width = role.entries.group.block_length
        return FixedRows(_fixed(role, values), width, width * np.arange(1, len(values) + 1))
    rows = _rows(role, values)
    return VariableRows(rows, np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows))))


def _rows(role: Values, values: Iterable[Any]) -> list[bytes]:
    try:
        match role.type.shape:
            case Shape.FIXED:
                return _fixed_rows(role, values)
            case Shape.STRING:
                return _strings(role, values)
            case Shape.DECIMAL:
                return [_decimal(role, value) for value in values]
            case _:
                return _lists(role, values)
    except InvalidValue as error:
        if error.reason in {"length-max", "count-range"}:
            raise SourceRefused(code=ErrorCode.OBJECT_OVERFLOW, text=error.detail) from error
        raise


def _fixed(role: Values, values: Iterable[Any]) -> bytes:
    """Return fixed-width values as contiguous blocks."""
    assert role.value is not None
    native = role.type.native(values)
    if role.booleans is not None:
        false, true, null = role.booleans
        raw = np.where(native == 1, true, np.where(native == 0, false, null)).astype(role.value.dtype)
    else:
        raw = _as_wire_type(role.value, native)
    width = role.entries.group.block_length
    if width == raw.dtype.itemsize:
        return raw.tobytes()
    return write_blocks(width, (role.value, raw))


def _as_wire_type(found: Number, native: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):  # a number too large becomes infinite, hence unequal
        raw = native.astype(found.dtype)
    if raw.dtype.newbyteorder("=") == native.dtype:
        return raw
    lost = (raw != native) & (native == native)  # noqa: PLR0124  only NaN differs from itself
    if lost.any():
        raise InvalidValue(f"{found.name} cannot hold {native[lost][0]}", reason="value-range")
    return raw


def _fixed_rows(role: Values, values: Iterable[Any]) -> list[bytes]:
    """Return fixed values for a schema whose entries have other parts too."""
    blocks, width, parts = _fixed(role, values), role.entries.group.block_length, role.entries.tail.write({})
    return [blocks[at : at + width] + parts for at in range(0, len(blocks), width)]


def _block(role: Values, *, null: bool, scale: int = 0) -> bytes:
    assert role.is_null is not None
    block = bytearray(role.entries.group.block_length)
    flag = role.is_null
    struct.pack_into(flag.number.dtype, block, flag.number.offset, flag.true if null else flag.false)
    if role.scale is not None:
        try:
            struct.pack_into(role.scale.dtype, block, role.scale.offset, scale)
        except struct.error as error:
            raise InvalidValue(f"scale {scale}", reason="scale") from error
    return bytes(block)


def _strings(role: Values, values: Iterable[str | None]) -> list[bytes]:
    assert role.text is not None
    text, tail = role.text, role.entries.tail
    some, null = _block(role, null=False), _block(role, null=True) + tail.write({})
    if not role.simple:
        return [null if v is None else some + tail.write({text.name: text.write(text.encode(v))}) for v in values]
    return [null if v is None else some + text.write(text.encode(v)) for v in values]


def _decimal(role: Values, value: Decimal | None) -> bytes:
    assert role.text is not None
    tail = role.entries.tail
    if value is None:
        return _block(role, null=True) + tail.write({})
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidValue(f"{value} is no decimal number", reason="decimal")
    magnitude = int(Decimal((sign, digits, 0)))
    size = (magnitude if magnitude >= 0 else ~magnitude).bit_length() // 8 + 1  # minimal, like Java's BigInteger
    octets = magnitude.to_bytes(size, "big", signed=True)
    return _block(role, null=False, scale=-exponent) + tail.write({role.text.name: role.text.write(octets)})


def _lists(role: Values, values: Iterable[Any]) -> list[bytes]:
    assert role.elements is not None
    nested, tail = role.elements.entries, role.entries.tail
    rows = [None if value is None else _as_sequence(value) for value in values]
    elements = row_data(role.elements, _flatten(role.elements, [row for row in rows if row is not None]))
    some, null = _block(role, null=False), _block(role, null=True) + tail.write({})
    written, at = [], 0
    for row in rows:
        if row is None:
            written.append(null)
            continue
        group = nested.announce(len(row)) + elements.between(at, at + len(row))
        written.append(some + (group if role.simple else tail.write({nested.name: group})))
        at += len(row)
    return written


def _as_sequence(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value if isinstance(value, list | tuple | np.ndarray) else list(value)


def _flatten(role: Values, rows: list[Any]) -> Any:
    if rows and all(isinstance(row, np.ndarray) and row.dtype == role.type.dtype for row in rows):
        return np.concatenate(rows)
    return [element for row in rows for element in row]
