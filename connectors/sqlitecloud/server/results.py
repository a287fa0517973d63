"""Encoding of replies to SQL: complete results, chunks, and write counts.

A result is never held in full unless it is short: one batch of rows is read while the previous one is being sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.encode import encode_array, encode_chunk, encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset, RowsetChunk, Value
from silverfold.connectors.sqlitecloud.protocol.rowsets import CHUNKS_END
from silverfold.connectors.sqlitecloud.server.error_codes import INTERNAL
from silverfold.connectors.sqlitecloud.server.transactions import Rows, Written

_LONGEST_FRAME: Final = 64 << 20
"""Bytes: no client accepts a longer frame, whatever MAXROWSET says."""
_OTHER_CELL: Final = 12
"""Approximate bytes of a cell that is neither text nor blob."""


@dataclass(frozen=True)
class ClientKeys:
    """The session settings of a client. 0 means off, everywhere."""

    compression: int = 0
    maxrows: int = 0
    """Rows per chunk."""
    maxrowset: int = 0
    """Maximum bytes of an unchunked result."""
    zerotext: int = 0
    noblob: int = 0
    """Send blobs as NULL."""
    maxdata: int = 0
    """Send longer texts and blobs as NULL."""
    nonlinearizable: int = 0


def rows_frames(result: Rows, keys: ClientKeys, *, chunk_bytes: int, version: int = 2) -> Iterator[bytes]:
    """Yield the frames of a result: one, or chunks and their end.

    Args:
        chunk_bytes: Approximate size beyond which a result is chunked.

    Raises:
        SourceRefused: The result exceeds the client's MAXROWSET. Nothing was yielded.
    """
    most_bytes = min(keys.maxrowset, _LONGEST_FRAME) if keys.maxrowset and not keys.maxrows else chunk_bytes
    batches = _batches(_mask_cells(result.rows, keys), keys.maxrows, most_bytes)
    first, second = next(batches, []), next(batches, None)
    encoding = {"zero_terminated": bool(keys.zerotext), "compressed": bool(keys.compression)}
    if second is None:
        frame = encode_rowset(Rowset(result.columns, first, version), **encoding)
        if keys.maxrowset and len(frame) > keys.maxrowset:
            raise _too_big(keys)
        yield frame
        return
    if keys.maxrowset and not keys.maxrows:
        raise _too_big(keys)
    chunk = RowsetChunk(1, version, result.columns, len(result.columns), first)
    yield encode_chunk(chunk, **encoding)
    while second is not None:
        chunk = replace(chunk, index=chunk.index + 1, columns=None, rows=second)
        yield encode_chunk(chunk, **encoding)
        second = next(batches, None)
    yield CHUNKS_END


def table_frame(names: Sequence[str], rows: Sequence[Sequence[Value]], keys: ClientKeys) -> bytes:
    """Return the frame of a short result produced by the server itself."""
    rowset = Rowset(tuple(Column(name) for name in names), [tuple(row) for row in rows])
    return encode_rowset(rowset, zero_terminated=bool(keys.zerotext), compressed=bool(keys.compression))


def written_frame(written: Written) -> bytes:
    """Return the reply to a statement without a result: six integers."""
    return encode_array((10, 0, written.last_rowid, written.changes, written.total_changes, 1))


def _batches(rows: Iterator[tuple[Value, ...]], most_rows: int, most_bytes: int) -> Iterator[list[tuple[Value, ...]]]:
    batch: list[tuple[Value, ...]] = []
    size = 0
    for row in rows:
        length = sum(len(cell) if isinstance(cell, str | bytes) else _OTHER_CELL for cell in row)
        if batch and (len(batch) == most_rows or size + length > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


def _mask_cells(rows: Iterator[tuple[Value, ...]], keys: ClientKeys) -> Iterator[tuple[Value, ...]]:
    if not keys.noblob and not keys.maxdata:
        return rows
    return (tuple(None if _is_masked(cell, keys) else cell for cell in row) for row in rows)


def _is_masked(cell: Value, keys: ClientKeys) -> bool:
    if isinstance(cell, bytes) and keys.noblob:
        return True
    return bool(keys.maxdata) and isinstance(cell, str | bytes) and len(cell) > keys.maxdata


def _too_big(keys: ClientKeys) -> SourceRefused:
    return SourceRefused(code=INTERNAL, text=f"RowSet too big to be sent (limit set to {keys.maxrowset} bytes).")
