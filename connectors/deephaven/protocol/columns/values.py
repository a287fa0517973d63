"""Reads the values of one group from the wire into raw arrays, before they are converted to Arrow.

Fixed-width values are one strided view of the message. Values of varying width must be located first: one tight loop
per group finds their offsets, 8 times as fast as part by part (0.15 for 1.2 µs a string). If anything does not fit, a
slow walk over the same bytes reports exactly what.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.columns.nested import find_nested
from silverfold.connectors.deephaven.protocol.groups import OpenMessage, Text
from silverfold.connectors.deephaven.protocol.layouts import Blocks, Longs, gather_field
from silverfold.connectors.deephaven.protocol.roles import Values
from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape
from silverfold.connectors.wire.sbe.codec.walk import Dimensions

Mask: TypeAlias = npt.NDArray[np.bool_]

WIDEST_SCALE = 2**31
"""Limit of scales: Java's BigDecimal has a 32-bit scale."""


@dataclass(frozen=True)
class Fixed:
    """Fixed-width values in the native type; nulls are Deephaven's sentinel. Chars are code units."""

    type: ColumnType
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Texts:
    """Offsets of variable-length values in a message. The bytes of a null are to be ignored."""

    type: ColumnType
    body: bytes
    text: Text
    starts: Longs
    ends: Longs
    nulls: Mask

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Decimals:
    """Magnitudes and scales: value = magnitude times 10^-scale."""

    magnitudes: Texts
    scales: Longs

    def __len__(self) -> int:
        return len(self.scales)

    def look_little_endian(self) -> bool:
        """Return whether some magnitude has a redundant first byte when read big-endian, but not little-endian."""
        spans = zip(self.magnitudes.starts.tolist(), self.magnitudes.ends.tolist(), strict=True)
        texts = (self.magnitudes.body[start:end] for start, end in spans if end - start > 1)
        return any(_is_redundant(text[0], text[1]) and not _is_redundant(text[-1], text[-2]) for text in texts)

    def unscaled(self) -> list[int | None]:
        """Return the magnitudes as integers, None for null.

        Raises:
            InvalidValue: ``empty-magnitude``: a value without a byte.
        """
        body, nulls = self.magnitudes.body, self.magnitudes.nulls.tolist()
        spans = zip(self.magnitudes.starts.tolist(), self.magnitudes.ends.tolist(), nulls, strict=True)
        return [None if null else _magnitude(body, start, end) for start, end, null in spans]


@dataclass(frozen=True)
class Lists:
    """Arrays and sets: the number of elements of each, 0 for null, and all elements in order."""

    type: ColumnType
    counts: Longs
    nulls: Mask
    elements: Fixed | Texts

    def __len__(self) -> int:
        return len(self.counts)


Raw: TypeAlias = Fixed | Texts | Decimals | Lists


def read_values(opened: OpenMessage, values: Values, at: int) -> tuple[Raw, int]:
    """Return the values of the group at ``at``, and its end offset.

    Raises:
        TruncatedMessage, InvalidValue: The bytes do not match the schema.
    """
    shape = values.type.shape
    if shape is Shape.FIXED:
        blocks, end = values.entries.blocks(opened, at)
        return _fixed(values, blocks), end
    found = values.entries.open(opened, at)
    if values.elements is not None:
        return _read_lists(opened, values, values.elements, found)
    blocks, offsets, end = _locate_texts(opened, values, found)
    texts = _texts(values, blocks, offsets)
    if shape is Shape.STRING:
        return texts, end
    assert values.scale is not None
    return Decimals(texts, _scales(blocks.read(values.scale), texts.nulls, blocks.error_offset)), end


def _fixed(values: Values, blocks: Blocks) -> Fixed:
    assert values.value is not None
    assert values.type.dtype is not None
    raw = blocks.read(values.value)
    if values.booleans is not None:
        return Fixed(values.type, _booleans(raw, values.booleans, blocks.error_offset))
    with np.errstate(over="ignore"):  # a number too large becomes infinite, which the check detects
        native = raw.astype(values.type.dtype)
    if native.dtype.itemsize < raw.dtype.itemsize or native.dtype.kind != raw.dtype.kind:
        _check_cast(values, raw, native, blocks.error_offset)
    return Fixed(values.type, native)


def _check_cast(values: Values, raw: npt.NDArray[Any], native: npt.NDArray[Any], at: int) -> None:
    """Check that every value survived the conversion from the schema's type to the column's."""
    lost = (native != raw) & ~((native != native) & (raw != raw))  # noqa: PLR0124  only NaN differs from itself
    if native.dtype.kind == "i" and raw.dtype.kind == "u":
        lost |= native < 0
    if lost.any():
        detail = f"{values.type.name} cannot hold {raw[lost][0]}"
        raise InvalidValue(detail, offset=at, reason="value-range")


def _booleans(raw: npt.NDArray[Any], codes: tuple[int, int, int], at: int) -> npt.NDArray[np.int8]:
    false, true, null = codes
    native = np.full(len(raw), -1, np.int8)
    native[raw == false] = 0
    native[raw == true] = 1
    known = (native >= 0) | (raw == np.array(null).astype(raw.dtype))
    if not known.all():
        raise InvalidValue(f"a boolean is {raw[~known][0]}", offset=at, reason="boolean")
    return native


def _texts(values: Values, blocks: Blocks, offsets: Longs) -> Texts:
    assert values.text is not None
    assert values.is_null is not None
    text = values.text
    nulls = blocks.flags(values.is_null)
    lengths = gather_field(np.frombuffer(blocks.body, np.uint8), text.length, offsets).astype(np.int64)
    most = text.found.length.maximum
    if lengths.max(initial=0) > most:
        detail = f"{text.name} has {lengths.max()} bytes, {most} are allowed"
        raise InvalidValue(detail, offset=blocks.error_offset, reason="length-max")
    starts = offsets + text.found.data_offset
    return Texts(values.type, blocks.body, text, starts, starts + lengths, nulls)


def _locate_texts(opened: OpenMessage, values: Values, found: Dimensions) -> tuple[Blocks, Longs, int]:
    """Return the blocks of the entries, the start of each entry's data, and the end offset."""
    assert values.text is not None
    block, text = found.block_length, values.text
    ends = (
        _locate_ends(opened.body, found, text) if values.simple and opened.version >= text.found.since_version else None
    )
    if ends is None:
        walked = values.entries.walk(opened, found, text.name)
        starts, offsets, end = np.array(walked.starts, np.int64), np.array(walked.offsets, np.int64), walked.end
    else:
        bounds = np.append(np.int64(found.start), ends)
        starts, offsets, end = bounds[:-1], bounds[:-1] + block, int(bounds[-1])
    return Blocks(opened.body, opened.version, block, found.entries, found.start, found.start, starts), offsets, end


def _locate_ends(body: bytes, found: Dimensions, text: Text) -> Longs | None:
    """Return the end of each entry of a block and one data; None when they do not fit."""
    read = struct.Struct(text.format).unpack_from
    to_length = found.block_length + text.found.length.offset
    overhead = found.block_length + text.found.data_offset
    at, ends = found.start, []
    try:
        for _ in range(found.entries):
            at += read(body, at + to_length)[0] + overhead
            ends.append(at)
    except struct.error:
        return None
    return None if at > len(body) else np.array(ends, np.int64)


def _scales(raw: npt.NDArray[Any], nulls: Mask, at: int) -> Longs:
    scales: Longs = raw.astype(np.int64)
    wrong = ~nulls & ((scales < -WIDEST_SCALE) | (scales >= WIDEST_SCALE))
    if wrong.any():
        raise InvalidValue(f"scale is {raw[wrong][0]}", offset=at, reason="scale")
    return scales


def _is_redundant(first: int, second: int) -> bool:
    """Return whether the most significant byte only repeats the sign of the next one."""
    return first == (0xFF if second >= 0x80 else 0x00)


def _magnitude(body: bytes, start: int, end: int) -> int:
    if start == end:
        raise InvalidValue("a decimal without a byte", offset=start, reason="empty-magnitude")
    return int.from_bytes(body[start:end], "big", signed=True)


def _read_lists(opened: OpenMessage, values: Values, elements: Values, found: Dimensions) -> tuple[Lists, int]:
    assert values.is_null is not None
    nested = find_nested(opened, values, elements, found)
    rows = Blocks(opened.body, opened.version, found.block_length, found.entries, found.start, found.start, nested.rows)
    nulls = rows.flags(values.is_null)
    counts = np.where(nulls, 0, nested.counts)
    blocks = nested.blocks(opened, ~nulls)
    if elements.text is None:
        return Lists(values.type, counts, nulls, _fixed(elements, blocks)), nested.end
    assert nested.offsets is not None
    offsets = nested.offsets[np.repeat(~nulls, nested.counts)]
    return Lists(values.type, counts, nulls, _texts(elements, blocks, offsets)), nested.end
