"""Names of streams, and their shards: MD5 of a partition key as a number of 128 bits, in the closed range of one shard.

The ranges' ends are decimal texts. The digest is one big-endian number, for all clients and the server.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.hstreamdb.protocol.messages.streams import Shard

LAST_KEY: Final = (1 << 128) - 1
MAX_NAME: Final = 255
_DECIMAL: Final = re.compile("[0-9]{1,39}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """The hashes that a shard owns, both ends inclusive."""

    start: int
    end: int
    shard_id: int


def name_problem(name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a stream or subscription, as a word and a sentence; None if nothing.

    The first character is a letter of any script; the others may also be digits, ``-`` and ``_``.
    """
    if not 1 <= len(name) <= MAX_NAME:
        return "length", f"The length of a name must be between 1 and {MAX_NAME}"
    if not name[0].isalpha():
        return "first_character", "The first character of a name must be a letter"
    if not all(each.isalnum() or each in "-_" for each in name):
        return "character", "Characters of a name must be letters, digits, '-' and '_'"
    return None


def key_hash(key: str) -> int:
    """Return the hash of a partition key; of "" too, which is a key like any other."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest())


def even_ranges(count: int) -> list[tuple[int, int]]:
    """Return the ranges of a new stream's shards; the last has the remainder."""
    width = LAST_KEY // count
    return [(i * width, LAST_KEY if i == count - 1 else (i + 1) * width - 1) for i in range(count)]


def key_ranges(shards: Iterable[Shard]) -> list[KeyRange]:
    """Return the ranges of listed shards, by their start. Raises RemoteProtocolError for ends that are no numbers."""
    return sorted(
        KeyRange(_decimal(each.start_hash_range_key), _decimal(each.end_hash_range_key), each.shard_id)
        for each in shards
    )


def find_shard(ranges: list[KeyRange], hashed: int) -> int:
    """Return the id of the shard that owns a hash.

    Args:
        ranges: Sorted by their start.

    Raises:
        RemoteProtocolError: No shard owns it (``no_shard``).
    """
    at = bisect_right(ranges, hashed, key=lambda each: each.start) - 1
    if at < 0 or hashed > ranges[at].end:
        raise RemoteProtocolError(f"none of {len(ranges)} shards has the key {hashed}", reason="no_shard")
    return ranges[at].shard_id


def _decimal(text: str) -> int:
    if not _DECIMAL.fullmatch(text):
        raise RemoteProtocolError(f"a shard's range ends at {text!r}, which is no number", reason="bad_range")
    return int(text)
