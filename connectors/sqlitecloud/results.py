"""Writes the answers to SQL: whole results, or in chunks as long as rows come, and what was written.

A result is never held as a whole unless it is short: a batch of rows is taken while the one before is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conf.errors import SourceRefused
from connectors.sqlitecloud.encode import encode_array, encode_chunk, encode_rowset
from connectors.sqlitecloud.error_codes import INTERNAL
from connectors.sqlitecloud.messages import Column, Rowset, RowsetChunk, Value
from connectors.sqlitecloud.rowsets import CHUNKS_END
from connectors.sqlitecloud.transactions import Rows, Written

_LONGEST_WHOLE: Final = 64 << 20
"""Bytes: no client takes a longer frame, whatever MAXROWSET says."""
_OTHER_CELL: Final = 12
"""Bytes, about, of a cell that is neither text nor blob."""


@dataclass(frozen=True)
class ClientKeys:
    """What a client has set for its session. 0 is off, everywhere."""

    compression: int = 0
    maxrows: int = 0
    """Rows per chunk."""
    maxrowset: int = 0
    """Bytes of a result that is not in chunks."""
    zerotext: int = 0
    noblob: int = 0
    """Blobs are NULL."""
    maxdata: int = 0
    """Texts and blobs of more bytes are NULL."""
    nonlinearizable: int = 0


def rows_frames(result: Rows, keys: ClientKeys, *, chunk_bytes: int, version: int = 2) -> Iterator[bytes]:
    """Give the frames of a result: one, or chunks and their end.

    Args:
        chunk_bytes: A result that is longer, about, comes in chunks.

    Raises:
        SourceRefused: The result is larger than the client's MAXROWSET. Nothing was given then.
    """
    most_bytes = min(keys.maxrowset, _LONGEST_WHOLE) if keys.maxrowset and not keys.maxrows else chunk_bytes
    batches = _batches(_thinned(result.rows, keys), keys.maxrows, most_bytes)
    first, second = next(batches, []), next(batches, None)
    written = {"zero_terminated": bool(keys.zerotext), "compressed": bool(keys.compression)}
    if second is None:
        whole = encode_rowset(Rowset(result.columns, first, version), **written)
        if keys.maxrowset and len(whole) > keys.maxrowset:
            raise _too_big(keys)
        yield whole
        return
    if keys.maxrowset and not keys.maxrows:
        raise _too_big(keys)
    chunk = RowsetChunk(1, version, result.columns, len(result.columns), first)
    yield encode_chunk(chunk, **written)
    while second is not None:
        chunk = replace(chunk, index=chunk.index + 1, columns=None, rows=second)
        yield encode_chunk(chunk, **written)
        second = next(batches, None)
    yield CHUNKS_END


def table_frame(names: Sequence[str], rows: Sequence[Sequence[Value]], keys: ClientKeys) -> bytes:
    """Return the frame of a short result of the server's own."""
    rowset = Rowset(tuple(Column(name) for name in names), [tuple(row) for row in rows])
    return encode_rowset(rowset, zero_terminated=bool(keys.zerotext), compressed=bool(keys.compression))


def written_frame(written: Written) -> bytes:
    """Return the answer to a statement without a result: six integers."""
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


def _thinned(rows: Iterator[tuple[Value, ...]], keys: ClientKeys) -> Iterator[tuple[Value, ...]]:
    if not keys.noblob and not keys.maxdata:
        return rows
    return (tuple(None if _left_out(cell, keys) else cell for cell in row) for row in rows)


def _left_out(cell: Value, keys: ClientKeys) -> bool:
    if isinstance(cell, bytes) and keys.noblob:
        return True
    return bool(keys.maxdata) and isinstance(cell, str | bytes) and len(cell) > keys.maxdata


def _too_big(keys: ClientKeys) -> SourceRefused:
    return SourceRefused(code=INTERNAL, text=f"RowSet too big to be sent (limit set to {keys.maxrowset} bytes).")
