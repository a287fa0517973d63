"""Parsing of rowsets and their chunks, compressed or not.

Layout after the frame header; in a compressed frame everything after the four numbers is inside the LZ4 block::

    INDEX:VERSION SP ROWS SP COLUMNS SP
    names                                                   in a rowset, and in the first chunk
    declared types, databases, tables, origins,
    not null, primary key, autoincrement                    where the version is 2, each as many as columns
    values, row by row
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from silverfold.conf.errors import InvalidValue, OversizedMessage
from silverfold.connectors.sqlitecloud.protocol.cells import read_count, read_values
from silverfold.connectors.sqlitecloud.protocol.messages import ChunksEnd, Column, Rowset, RowsetChunk, Value

CHUNKS_END: Final = b"/6 0 0 0 "
"""The frame that ends a chunked result; it is never compressed."""

_SHAPE: Final = re.compile(rb"([0-9]{1,19}):([12]) ([0-9]{1,19}) ([0-9]{1,19}) ")
_COMPRESSED: Final = re.compile(rb"([*/])0 (?=[0-9])")
_BAD: Final = "bad_rowset"
_LISTS: Final = 8
"""The number of lists of names and metadata in version 2."""
_MOST_EXPANDED: Final = 255
"""The maximum expansion of an LZ4 block. A larger announced size is false, and rejected before memory is allocated."""

MOST_VALUES: Final = 4_000_000
"""Maximum values per frame: 260 kB compressed may hold 32 million NULLs, which take two gigabytes as Python rows."""


MOST_COLUMNS: Final = 32_767
"""Maximum columns per frame: no SQLite has more (``SQLITE_MAX_COLUMN``), and names take as much memory as values."""


@dataclass(frozen=True, slots=True)
class _Shape:
    at: int
    begins: int
    """Offset of the contents."""
    index: int
    version: int
    rows: int
    width: int


def read_rowset(octets: bytes, body: int) -> Rowset:
    """Parse a complete rowset frame. Raise InvalidValue."""
    return _rowset(octets, _shape(octets, body))


def read_chunk(octets: bytes, body: int) -> RowsetChunk | ChunksEnd:
    """Parse a complete chunk frame, or the end of chunks. Raise InvalidValue."""
    return ChunksEnd() if octets == CHUNKS_END else _chunk(octets, _shape(octets, body))


def read_compressed(octets: bytes, body: int, most: int) -> Rowset | RowsetChunk:
    """Parse a complete compressed frame.

    Args:
        most: Maximum bytes after expansion.

    Raises:
        InvalidValue: ``bad_compression``, or as `read_rowset` with offsets into the expanded bytes.
        OversizedMessage: ``too_large``, ``too_many_values``.
    """
    packed, at = read_count(octets, body, "bad_compression")
    size, at = read_count(octets, at, "bad_compression")
    kind = _COMPRESSED.match(octets, at)
    block = len(octets) - packed
    if kind is None or block < kind.end():
        raise _bad_compression("no rowset header stands before the block", at)
    shape = _shape(octets, kind.end())
    if shape.begins != block:
        raise _bad_compression(f"a block of {packed} bytes does not begin behind the header", shape.begins)
    data = _expand(octets[block:], size, most)
    shape = replace(shape, begins=0)
    return _rowset(data, shape) if kind[1] == b"*" else _chunk(data, shape)


def _expand(block: bytes, size: int, most: int) -> bytes:
    if size > most:
        detail = f"a block is said to expand to {size} bytes, {most} are allowed"
        raise OversizedMessage(detail, offset=0, reason="too_large")
    if not 0 < size <= _MOST_EXPANDED * len(block):
        raise _bad_compression(f"a block of {len(block)} bytes does not expand to {size}", 0)
    import lz4.block  # noqa: PLC0415 - of the connector's extra, which settings do not need

    try:
        data: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise _bad_compression(f"the block cannot be expanded: {error}", 0) from error
    if len(data) != size:
        raise _bad_compression(f"the block expands to {len(data)} bytes, announced are {size}", 0)
    return data


def _bad_compression(detail: str, offset: int) -> InvalidValue:
    return InvalidValue(detail, offset=offset, reason="bad_compression")


def _shape(octets: bytes, at: int) -> _Shape:
    found = _SHAPE.match(octets, at)
    if found is None:
        detail = f"{octets[at : at + 24]!r} is not INDEX:VERSION ROWS COLUMNS with a version 1 or 2"
        raise InvalidValue(detail, offset=at, reason=_BAD)
    shape = _Shape(at, found.end(), *(int(number) for number in found.groups()))
    if shape.width == 0:
        raise InvalidValue("a rowset has at least one column", offset=at, reason=_BAD)
    return shape


def _rowset(octets: bytes, shape: _Shape) -> Rowset:
    if shape.index != 0:
        raise InvalidValue(f"a whole rowset has the index {shape.index}", offset=shape.at, reason=_BAD)
    columns, rows = _contents(octets, shape, named=True)
    return Rowset(columns, rows, shape.version)


def _chunk(octets: bytes, shape: _Shape) -> RowsetChunk:
    if shape.index == 0:
        raise InvalidValue("chunks count from 1", offset=shape.at, reason=_BAD)
    columns, rows = _contents(octets, shape, named=shape.index == 1)
    return RowsetChunk(shape.index, shape.version, columns or None, shape.width, rows)


def _contents(octets: bytes, shape: _Shape, *, named: bool) -> tuple[tuple[Column, ...], list[tuple[Value, ...]]]:
    """Parse columns and rows. Counts are checked against the available bytes and the limits first."""
    width, at = shape.width, shape.begins
    lists = (_LISTS if shape.version == 2 else 1) if named else 0
    if 2 * width * (lists + shape.rows) > len(octets) - at:
        detail = f"{shape.rows} rows of {width} columns cannot be in {len(octets) - at} bytes"
        raise InvalidValue(detail, offset=at, reason=_BAD)
    if width > MOST_COLUMNS or width * shape.rows > MOST_VALUES:
        detail = (
            f"{shape.rows} rows of {width} columns: at most {MOST_COLUMNS} columns and {MOST_VALUES} values may come"
        )
        raise OversizedMessage(detail, offset=at, reason="too_many_values")
    heads, at = read_values(octets, at, width * lists, _BAD)
    columns = tuple(_column(heads[index::width], shape.begins) for index in range(width)) if named else ()
    values, at = read_values(octets, at, width * shape.rows, _BAD)
    if at != len(octets):
        raise InvalidValue(f"{len(octets) - at} bytes follow the last value", offset=at, reason=_BAD)
    return columns, list(zip(*[iter(values)] * width, strict=True))


def _column(parts: list[Value], at: int) -> Column:
    name, declared_type, database, table, origin = [_name(part, at) for part in (*parts[:5], *[None] * 4)][:5]
    if name is None:
        raise InvalidValue("a column has no name", offset=at, reason=_BAD)
    return Column(name, declared_type, database, table, origin, *[_flag(part, at) for part in parts[5:]])


def _name(part: Value, at: int) -> str | None:
    if not isinstance(part, str | None):
        raise InvalidValue("a name of a column is not text", offset=at, reason=_BAD)
    return part


def _flag(part: Value, at: int) -> bool:
    if not isinstance(part, int) or part not in (0, 1):
        raise InvalidValue("a property of a column is not 0 or 1", offset=at, reason=_BAD)
    return part == 1
