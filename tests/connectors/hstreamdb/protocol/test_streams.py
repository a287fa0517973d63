"""Names of streams, and the shard of a key."""

from __future__ import annotations

from typing import Any

import pytest

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.hstreamdb.protocol.messages.streams import Shard
from silverfold.connectors.hstreamdb.protocol.streams import (
    KeyRange,
    even_ranges,
    find_shard,
    key_hash,
    key_ranges,
    name_problem,
)
from tests.support.hstreamdb.vectors import vectors

HOLE = vectors("shard_lookup_no_match")


def ranges_of(count: int) -> list[KeyRange]:
    shards = [
        Shard(shard_id=i, start_hash_range_key=str(start), end_hash_range_key=str(end))
        for i, (start, end) in enumerate(even_ranges(count))
    ]
    return key_ranges(reversed(shards))


@pytest.mark.parametrize("vector", vectors("name"))
def test_names_are_checked_as_servers_do(vector: dict[str, Any]) -> None:
    problem = name_problem(vector["name"])
    assert (problem and problem[0]) == vector["error"]


@pytest.mark.parametrize("vector", vectors("key_ranges"))
def test_new_streams_have_even_ranges(vector: dict[str, Any]) -> None:
    assert [[str(start), str(end)] for start, end in even_ranges(vector["shards"])] == vector["ranges"]


@pytest.mark.parametrize("vector", vectors("shard_hash"))
def test_a_key_belongs_to_one_shard(vector: dict[str, Any]) -> None:
    assert str(key_hash(vector["key"])) == vector["hash"]
    found = {count: find_shard(ranges_of(int(count)), key_hash(vector["key"])) for count in vector["shard"]}
    assert found == vector["shard"]


@pytest.mark.parametrize("vector", vectors("shard_lookup_edges"))
def test_both_ends_of_a_range_are_inclusive(vector: dict[str, Any]) -> None:
    assert find_shard(ranges_of(vector["shards"]), int(vector["hash"])) == vector["shard"]


def test_a_hash_in_no_range_is_an_error() -> None:
    shards = [Shard(start_hash_range_key=start, end_hash_range_key=end) for start, end in HOLE["ranges"]]
    with pytest.raises(RemoteProtocolError, match="no_shard"):
        find_shard(key_ranges(shards), int(HOLE["hash"]))
    with pytest.raises(RemoteProtocolError, match="no_shard"):
        find_shard([], 0)


@pytest.mark.parametrize("text", ["", "-1", "0x10", "٣", "9" * 40])
def test_an_end_that_is_no_decimal_number_is_an_error(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="bad_range"):
        key_ranges([Shard(start_hash_range_key="0", end_hash_range_key=text)])
