"""Reads the values of one group from the wire into plain arrays, before they become Arrow.

Fixed-width values are one strided view of the message. Values of varying width need their places first: one tight loop
per group finds them, and if anything does not fit, a slow walk over the same bytes says exactly what.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from conf.errors import InvalidValue
from connectors.deephaven.groups import OpenMessage, Text
from connectors.deephaven.layouts import Blocks, Longs, gathered
from connectors.deephaven.nested import find_nested
from connectors.deephaven.roles import Values
from connectors.deephaven.types import ColumnType, Shape
from connectors.wire.sbe.walk import Dimensions

Mask: TypeAlias = npt.NDArray[np.bool_]

WIDEST_SCALE = 2**31
"""Java's BigDecimal has a 32-bit scale."""


@dataclass(frozen=True)
class Fixed:
    """Fixed-width values in the native type, nulls as Deephaven's sentinel. Chars are code units."""

    type: ColumnType
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Texts:
    """Places of variable-length values in a message. What stands at a null is not to be looked at."""

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
        """Tell whether a magnitude has a needless first byte read big-endian, but not read little-endian."""
        spans = zip(self.magnitudes.starts.tolist(), self.magnitudes.ends.tolist(), strict=True)
        texts = (self.magnitudes.body[start:end] for start, end in spans if end - start > 1)
        return any(_is_wasteful(text[0], text[1]) and not _is_wasteful(text[-1], text[-2]) for text in texts)

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
    """Arrays and sets: how many elements each has, 0 for null, and all elements in order."""

    type: ColumnType
    counts: Longs
    nulls: Mask
    elements: Fixed | Texts

    def __len__(self) -> int:
        return len(self.counts)


Raw: TypeAlias = Fixed | Texts | Decimals | Lists


def read_values(opened: OpenMessage, values: Values, at: int) -> tuple[Raw, int]:
    """Return the values of the group at ``at``, and where it ends.

    Raises:
        TruncatedMessage, InvalidValue: The bytes are not what the schema says.
    """
    shape = values.type.shape
    if shape is Shape.FIXED:
        blocks, end = values.entries.blocks(opened, at)
        return _fixed(values, blocks), end
    found = values.entries.open(opened, at)
    if values.elements is not None:
        return _read_lists(opened, values, values.elements, found)
    blocks, places, end = _text_places(opened, values, found)
    texts = _texts(values, blocks, places)
    if shape is Shape.STRING:
        return texts, end
    assert values.scale is not None
    return Decimals(texts, _scales(blocks.read(values.scale), texts.nulls, blocks.place)), end


def _fixed(values: Values, blocks: Blocks) -> Fixed:
    assert values.value is not None
    assert values.type.dtype is not None
    raw = blocks.read(values.value)
    if values.booleans is not None:
        return Fixed(values.type, _booleans(raw, values.booleans, blocks.place))
    with np.errstate(over="ignore"):  # a number too large becomes infinite, which the check finds
        native = raw.astype(values.type.dtype)
    if native.dtype.itemsize < raw.dtype.itemsize or native.dtype.kind != raw.dtype.kind:
        _check_cast(values, raw, native, blocks.place)
    return Fixed(values.type, native)


def _check_cast(values: Values, raw: npt.NDArray[Any], native: npt.NDArray[Any], at: int) -> None:
    """The schema's type is another than the column's: every value must have survived the change."""
    lost = (native != raw) & ~((native != native) & (raw != raw))  # noqa: PLR0124  NaN is the one value unlike itself
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


def _texts(values: Values, blocks: Blocks, places: Longs) -> Texts:
    assert values.text is not None
    assert values.is_null is not None
    text = values.text
    nulls = blocks.flags(values.is_null)
    lengths = gathered(np.frombuffer(blocks.body, np.uint8), text.length, places).astype(np.int64)
    most = text.found.length.maximum
    if lengths.max(initial=0) > most:
        detail = f"{text.name} has {lengths.max()} bytes, {most} are allowed"
        raise InvalidValue(detail, offset=blocks.place, reason="length-max")
    starts = places + text.found.data_offset
    return Texts(values.type, blocks.body, text, starts, starts + lengths, nulls)


def _text_places(opened: OpenMessage, values: Values, found: Dimensions) -> tuple[Blocks, Longs, int]:
    """Where the data of each entry start."""
    assert values.text is not None
    block, text = found.block_length, values.text
    ends = _run(opened.body, found, text) if values.alone and opened.version >= text.found.since_version else None
    if ends is None:
        walked = values.entries.walk(opened, found, text.name)
        starts, places, end = np.array(walked.starts, np.int64), np.array(walked.places, np.int64), walked.end
    else:
        bounds = np.append(np.int64(found.start), ends)
        starts, places, end = bounds[:-1], bounds[:-1] + block, int(bounds[-1])
    return Blocks(opened.body, opened.version, block, found.entries, found.start, found.start, starts), places, end


def _run(body: bytes, found: Dimensions, text: Text) -> Longs | None:
    """Where each entry of a block and one data ends; None when they do not fit."""
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


def _is_wasteful(first: int, second: int) -> bool:
    """Tell whether the most significant byte says no more than the sign of the next one does."""
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
    assert nested.places is not None
    places = nested.places[np.repeat(~nulls, nested.counts)]
    return Lists(values.type, counts, nulls, _texts(elements, blocks, places)), nested.end
