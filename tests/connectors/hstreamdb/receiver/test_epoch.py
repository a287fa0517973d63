"""Epochs: what has landed of each shard, and what is missing of it."""

from __future__ import annotations

import pytest

from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, LandedBatches, joined, landed_batches
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from tests.support.hstreamdb.landed import STREAM


def test_what_comes_before_the_first_frame_is_missing_until_it_is_known_where_its_shard_begins() -> None:
    epoch = Epoch(STREAM)
    epoch.frames(b"", [RecordId(7, 6, 0)])
    assert epoch.shards[7].gaps == [(0, 6)]
    epoch.shards[7].begin(3)
    assert epoch.shards[7].gaps == [(3, 6)]
    epoch.shards[7].begin(5)
    assert epoch.shards[7].gaps == []


def test_records_that_came_again_last_are_no_sign_of_another_warehouse() -> None:
    resumed = CONNECTOR.resume_position(["7-9-0", "8-1-0", "7-5-0"])
    assert resumed == "7-9+0-5+5-9,8-1"
    assert CONNECTOR.resume_position([resumed, "8-2-0", "7-6-0"]) == "7-9+0-5+6-9,8-2"
    assert landed_batches([resumed])[8] == LandedBatches(1)


@pytest.mark.parametrize(
    ("positions", "missing"),
    [
        (["7-1-0", "7-2-5", "7-3-0"], ((1, 3),)),  # others acknowledged its first records
        (["7-1-0", "7-2-5", "7-3-0", "7-2-7"], ((1, 3),)),  # again its last ones
        (["7-1-0", "7-2-5", "7-3-0", "7-2-0"], ()),  # then the whole
        (["7-1-0", "7-2-0", "7-2-5"], ()),  # a part that comes again
        (["7-1-0", "7-4-0", "7-3-2"], ((1, 4),)),
        (["7-1-0", "7-4-0", "7-2-0", "7-3-2"], ((2, 4),)),
    ],
)
def test_a_batch_of_which_only_later_records_have_landed_is_missing(
    positions: list[str], missing: tuple[tuple[int, int], ...]
) -> None:
    landed = landed_batches(["7-1-0", *positions])[7]
    assert landed.missing == missing
    assert landed_batches([CONNECTOR.resume_position(["7-1-0", *positions])])[7] == landed


def test_ranges_are_joined_where_no_batch_between_them_has_come() -> None:
    assert joined([(0, 10), (0, 5), (9, 12), (12, 14), (20, 30)]) == [(0, 12), (12, 14), (20, 30)]


def test_what_is_due_of_one_subscription_is_not_due_of_another() -> None:
    overdue = Overdue(shards={7: 1.0}, reported_shards={7}, seen={(7, 1)})
    assert overdue.of_another_subscription() == Overdue(seen={(7, 1)})
