"""Builds Arrow arrays of raw values from whole buffers, without a Python object per value except for decimals.

Nulls are Deephaven's sentinels and flags; the payload of a null value is ignored.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.columns.values import Decimals, Fixed, Lists, Mask, Raw, Texts
from silverfold.connectors.deephaven.protocol.groups import TextErrors
from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape

_SURROGATES = 0xD800
_SURROGATE_BITS = 0xF800
_REPLACEMENT = 0xFFFD
_FEW_TEXTS = 64
"""Below this count, texts decode faster one by one."""
_SHORT_MAGNITUDE = 1 << 4096
"""Integers below this convert to text directly: Python refuses to for more than 4,300 digits."""


def to_arrow(raw: Raw, errors: TextErrors) -> pa.Array:
    """Return values as an array of their type's Arrow type.

    Args:
        errors: How chars that are half of a surrogate pair are handled; texts have their own.

    Raises:
        InvalidValue: ``charset``: text that is not in its charset, or a char that is half of a surrogate pair;
            ``empty-magnitude``: a decimal without a byte.
    """
    match raw:
        case Fixed():
            return _fixed(raw.type, raw.values, errors)
        case Texts():
            return _texts(raw)
        case Decimals():
            return _decimals(raw)
        case Lists():
            return _lists(raw, errors)


def decimal(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled`` times 10^-``scale``, exactly."""
    if -_SHORT_MAGNITUDE < unscaled < _SHORT_MAGNITUDE:
        return Decimal(f"{unscaled}E{-scale}")
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def _fixed(kind: ColumnType, values: npt.NDArray[np.generic], errors: TextErrors) -> pa.Array:
    nulls = values == kind.null
    if kind.name == "Char":
        return _chars(values, nulls, errors)
    buffer = pa.py_buffer(np.packbits(values == 1, bitorder="little") if kind.name == "Boolean" else values)
    return pa.Array.from_buffers(kind.arrow, len(values), [_validity(nulls), buffer])


def _validity(nulls: Mask) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _chars(units: npt.NDArray[np.generic], nulls: Mask, errors: TextErrors) -> pa.Array:
    """Return an array of texts of one UTF-16 code unit each."""
    codes = units.astype(np.int64)
    halves = (codes & _SURROGATE_BITS == _SURROGATES) & ~nulls
    if errors == "strict" and halves.any():
        raise InvalidValue(f"char {codes[halves][0]:#06x} is half of a surrogate pair", reason="charset")
    lengths = np.where(nulls, 0, 1 + (codes >= 0x80) + (codes >= 0x800))
    octets = np.where(halves, _REPLACEMENT, units)[~nulls].astype("<u2").tobytes().decode("utf-16-le").encode()
    buffers = [_validity(nulls), pa.py_buffer(_offsets(lengths)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.string(), len(codes), buffers)


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _texts(raw: Texts) -> pa.Array:
    if raw.text.codec != "utf-8" or len(raw) < _FEW_TEXTS:
        return pa.array(_decode_texts(raw), pa.string())
    try:
        return _as_binary(raw).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(_decode_texts(raw), pa.string())  # names the invalid value, or replaces its invalid bytes


def _as_binary(raw: Texts) -> pa.Array:
    """Return the texts as binary values that share the message's buffer.

    Offsets alternate between starts and ends, so every second piece is a value and the others are the gaps.
    """
    rows = len(raw.starts)
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2], offsets[1::2] = raw.starts, raw.ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw.body)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, buffers)
    values = np.arange(0, 2 * rows, 2)
    return pieces.take(pa.array(values, mask=raw.nulls) if raw.nulls.any() else pa.array(values))


def _decode_texts(raw: Texts) -> list[str | None]:
    spans = zip(raw.starts.tolist(), raw.ends.tolist(), raw.nulls.tolist(), strict=True)
    return [None if null else raw.text.decode(raw.body[start:end], start) for start, end, null in spans]


def _decimals(raw: Decimals) -> pa.Array:
    pairs = zip(raw.unscaled(), raw.scales.tolist(), strict=True)
    return pa.array(
        [None if unscaled is None else str(decimal(unscaled, scale)) for unscaled, scale in pairs], pa.string()
    )


def _lists(raw: Lists, errors: TextErrors) -> pa.Array:
    elements = to_arrow(raw.elements, errors)
    if raw.type.shape is Shape.STRING_SET:
        elements = _sort_within_rows(elements, raw.counts)
    mask = pa.array(raw.nulls) if raw.nulls.any() else None
    return pa.ListArray.from_arrays(pa.array(_offsets(raw.counts)), elements, type=raw.type.arrow, mask=mask)


def _sort_within_rows(elements: pa.Array, counts: npt.NDArray[np.int64]) -> pa.Array:
    """Sort the elements within each row by code point, so that equal sets become equal lists."""
    rows = np.repeat(np.arange(len(counts)), counts)
    table = pa.table({"row": rows, "element": elements})
    order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("element", "ascending")])
    return elements.take(order)
