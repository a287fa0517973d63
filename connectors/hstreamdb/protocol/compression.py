"""Compression of batches. The size of the output is bounded. Known defects of official producers are accepted."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Final

import pyarrow as pa

from silverfold.conf.errors import InvalidValue, OversizedMessage
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType

_GZIP: Final = 31
"""zlib's window bits for the format of gzip."""
_CODECS: Final = {CompressionType.GZIP: "gzip", CompressionType.ZSTD: "zstd"}

bad_compression: Final = partial(InvalidValue, reason="bad_compression")


def compress(expanded: bytes, kind: int) -> bytes:
    """Return one closed gzip member, or one zstd frame with its content size, which servers need to read it again."""
    if kind == CompressionType.NONE:
        return expanded
    compressed: bytes = pa.Codec(_CODECS[CompressionType(kind)]).compress(expanded, asbytes=True)
    return compressed


def decompress(payload: bytes, kind: int, *, limit: int) -> bytes:
    """Return the bytes of a batch.

    Args:
        limit: Most bytes to return.

    Raises:
        InvalidValue: The kind is unknown (``unknown_compression``), or the bytes are wrong (``bad_compression``).
        OversizedMessage: There are more bytes than ``limit``. No more than that were made.
    """
    match kind:
        case CompressionType.NONE:
            expanded = payload
        case CompressionType.GZIP:
            expanded = _gunzip(payload, limit)
        case CompressionType.ZSTD:
            expanded = _unzstd(payload, limit)
        case _:
            raise InvalidValue(f"compression {kind} is none of 0, 1, 2", reason="unknown_compression")
    if len(expanded) > limit:
        raise OversizedMessage(f"a batch has more than {limit} bytes", reason="oversized")
    return expanded


def _gunzip(payload: bytes, limit: int) -> bytes:
    """Return at most ``limit + 1`` bytes. A stream that stops early is accepted: the Go client never closes it."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        expanded = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise bad_compression(str(error)) from error
    if inflater.unused_data:
        raise bad_compression("bytes follow the gzip member")
    return expanded


def _unzstd(payload: bytes, limit: int) -> bytes:
    """Return at most ``limit + 1`` bytes. The content size may be missing; libzstd bounds the window."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(payload), "zstd") as stream:
            expanded: bytes = stream.read(limit + 1)
    except OSError as error:
        raise bad_compression(str(error)) from error
    return expanded
