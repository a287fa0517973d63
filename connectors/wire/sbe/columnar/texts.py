"""Columns of text (char, char arrays, data with a charset) and of bytes (data without one)."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from silverfold.connectors.wire.sbe.columnar.blocks import Blocks
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools, Longs, Octets
from silverfold.connectors.wire.sbe.columnar.numeric import combine, validity
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.model import Array, Data, Scalar
from silverfold.connectors.wire.sbe.schema.text import DEFAULT_CHARSET, codec, fixed_text_reader, text_reader, unit_size

_LIKE_ASCII = frozenset({"ascii", "utf-8", "iso8859-1", "iso8859-15", "cp1252"})
"""Charsets in which bytes below 128 are ASCII."""


class Texts:
    """Decodes bytes to text in one charset.

    Args:
        read: Decodes one value, where bytes are not simply ASCII or UTF-8.
    """

    def __init__(self, charset: str | None, options: ColumnOptions, read: Callable[[bytes], str | bytes]) -> None:
        name = None if charset is None else codec(charset)
        known = "" if name is None else codecs.lookup(name).name
        self._ascii, self._utf8 = known in _LIKE_ASCII, known == "utf-8"
        self._read = read
        as_bytes = charset is None or options.text == "bytes" or (name is None and options.text == "replace")
        self.type = pa.binary() if as_bytes else pa.string()

    def make(self, blocks: Blocks, values: pa.Array) -> pa.Array:
        """Return the text of binary values, one for each block; messages with invalid text are marked as bad."""
        if self.type == pa.binary():
            return values
        if (self._ascii and _is_ascii(values)) or (self._utf8 and _is_utf8(values)):
            return values.view(pa.string())
        return pa.array(list(self._decode_each(blocks, values)), pa.binary()).view(pa.string())

    def _decode_each(self, blocks: Blocks, values: pa.Array) -> Any:
        for row, raw in enumerate(values.to_pylist()):
            try:
                yield None if raw is None else str(self._read(raw)).encode("utf-8", "replace")
            except UnicodeError:
                blocks.reject(np.array([row]))
                yield None


class FixedText:
    """Column of a char or char array, up to its first NUL; NULL if optional and it begins with the null value."""

    def __init__(self, encoding: Scalar | Array, offset: int, options: ColumnOptions, *, optional: bool) -> None:
        charset = encoding.charset or DEFAULT_CHARSET
        self._texts = Texts(charset, options, fixed_text_reader(charset, options.text))
        self.type = self._texts.type
        self._unit = unit_size(charset)
        self._offset, self._width = offset, encoding.size
        null = encoding.element.null if isinstance(encoding, Array) else encoding.null
        self._null = int(null) if optional else None

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        octets = np.ascontiguousarray(blocks.read((np.uint8, (self._width,)), self._offset))
        if self._null is not None:
            null = octets[:, 0] == self._null
            missing = combine(null, missing)
        lengths = _until_nul(octets) if self._unit == 1 else _until_wide_nul(octets, self._unit)
        return self._texts.make(blocks, heads(octets, lengths, missing, has_zeros=self._unit > 1))


class DataValues:
    """Column of one data element of a body: text if it has a charset, else bytes."""

    def __init__(self, data: Data, options: ColumnOptions) -> None:
        read = bytes if data.charset is None else text_reader(data.charset, options.text)
        self._texts = Texts(data.charset, options, read)
        self.type = self._texts.type

    def make(self, blocks: Blocks, starts: Longs, lengths: Longs) -> pa.Array:
        """Return the column. Absent data have a negative length."""
        absent = lengths < 0
        return self._texts.make(blocks, slices(blocks.octets, starts, lengths, absent if absent.any() else None))


def heads(rows: Octets, lengths: Longs | None, missing: Bools | None = None, *, has_zeros: bool = False) -> pa.Array:
    """Return the first bytes of each row as binary values, NULL where missing; without lengths the full rows.

    Args:
        has_zeros: There may be zeros among these bytes, not only behind them.
    """
    count, width = rows.shape
    if missing is not None:
        lengths = np.where(missing, 0, width if lengths is None else lengths)
    if lengths is None:
        bounds = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    else:
        bounds = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=bounds[1:])
        mask = rows != 0
        if has_zeros or np.count_nonzero(mask) != bounds[-1]:  # bytes after a NUL, or in missing rows
            mask = np.arange(width) < lengths[:, None]
        rows = rows[mask]
    buffers = [validity(missing), pa.py_buffer(bounds), pa.py_buffer(rows)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def slices(octets: Octets, starts: Longs, lengths: Longs, missing: Bools | None = None) -> pa.Array:
    """Return slices of the bytes as binary values, NULL where missing. Starts ascend; slices do not overlap.

    The buffer is viewed as alternating slices and gaps; Arrow then takes the slices.
    """
    if missing is not None:
        starts, lengths = starts[~missing], lengths[~missing]
    if len(starts) == 0:
        return pa.nulls(0 if missing is None else len(missing), pa.binary())
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, starts + lengths
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(octets)]
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    if missing is None:
        return pieces.take(pa.array(np.arange(0, len(bounds), 2)))
    indices = np.cumsum(~missing) - 1
    return pieces.take(pa.array(2 * indices, mask=missing))


def _until_nul(rows: Octets) -> Longs | None:
    """Return the length of each row up to its first NUL; None if there is no NUL."""
    others = int(np.count_nonzero(rows))
    if others == rows.size:
        return None
    count, width = rows.shape
    lengths: Longs = np.strings.str_len(rows.view(f"S{width}").reshape(-1))
    if int(lengths.sum()) == others:  # all NULs are trailing
        return lengths
    lengths, before_nul = np.zeros(count, np.int64), np.ones(count, np.bool_)
    for column in rows.T:
        before_nul &= column != 0
        lengths += before_nul
    return lengths


def _until_wide_nul(rows: Octets, unit: int) -> Longs:
    """Return the length of each row up to its first NUL of several bytes; part of a unit at the end counts as text."""
    count, width = rows.shape
    units = width // unit
    ends = np.ones((count, units + 1), np.bool_)
    ends[:, :-1] = ~rows[:, : units * unit].reshape(count, units, unit).any(axis=2)
    first = ends.argmax(axis=1)
    lengths: Longs = np.where(first < units, first * unit, width)
    return lengths


def _content(values: pa.Array) -> Octets:
    offsets, content = values.buffers()[1:]
    bounds = np.frombuffer(offsets, np.int32)
    end = int(bounds[values.offset + len(values)])
    return np.frombuffer(content, np.uint8)[:end] if end else np.empty(0, np.uint8)


def _is_ascii(values: pa.Array) -> bool:
    return int(_content(values).max(initial=0)) < 128


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
