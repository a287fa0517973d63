"""Assignment of shards to consumers: the vectors, and that no shard is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.hstreamdb.server.reading.consumers import Assignment
from tests.support.hstreamdb.vectors import names, vectors


@pytest.mark.parametrize("vector", vectors("assignment"), ids=names("assignment"))
def test_shards_are_assigned_as_documented(vector: dict[str, Any]) -> None:
    assignment = Assignment([int(each) for each in vector["shards"]])
    for step in vector["steps"]:
        match step["do"]:
            case "join":
                assignment.join(step["consumer"])
            case "leave":
                assignment.leave(step["consumer"])
            case "loop":
                assignment.balance()
            case "tick":
                assignment.assign()
        assert {str(shard): name for shard, name in assignment.owners.items()} == step["owners"]
        assert assignment.idle == step["waiting"]


@given(st.lists(st.sampled_from(["a", "b", "c", "balance", "assign"]), max_size=40), st.integers(1, 4))
def test_after_an_assignment_every_shard_has_a_consumer_that_is_there(steps: list[str], shards: int) -> None:
    assignment, there = Assignment(range(shards)), set[str]()
    for step in steps:
        match step:
            case "balance":
                assignment.balance()
            case "assign":
                assignment.assign()
                assert set(assignment.owners) == (set(range(shards)) if there else set())
            case consumer if consumer in there:
                there.remove(consumer)
                assignment.leave(consumer)
            case consumer:
                there.add(consumer)
                assignment.join(consumer)
        assert set(assignment.owners.values()) | set(assignment.idle) == there
        assert not set(assignment.owners.values()) & set(assignment.idle)
