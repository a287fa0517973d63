"""What a watch finds in one thread is taken in another, in order, and what ends it is told last."""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.update_queue import UpdateQueue
from silverfold.connectors.verification import ReferenceUpdate

FIRST, SECOND = ReferenceUpdate(True, []), ReferenceUpdate(False, [])


def test_each_update_is_taken_once_and_in_order():
    found = UpdateQueue()
    found.put(FIRST)
    found.put(SECOND)
    assert [found.take(0), found.take(0)] == [[FIRST, SECOND], []]


def test_what_was_found_is_taken_before_the_end_is_told_as_often_as_it_is_asked_for():
    found = UpdateQueue()
    found.put(FIRST)
    found.end(SourceUnavailable("it broke"))
    assert found.take(0) == [FIRST]
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="it broke"):
            found.take(0)


def test_whoever_waits_gets_an_update_as_soon_as_it_is_found():
    found, began = UpdateQueue(), monotonic()
    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(found.take, 30)
        found.put(FIRST)
        assert taking.result() == [FIRST]
    assert monotonic() - began < 20


def test_whoever_waits_is_told_of_the_end_as_soon_as_it_comes():
    found, began = UpdateQueue(), monotonic()
    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(found.take, 30)
        found.end(SourceUnavailable("gone"))
        assert isinstance(taking.exception(), SourceUnavailable)
    assert monotonic() - began < 20
