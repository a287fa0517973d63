"""Work beside other work goes on until the first piece ends; then the rest has ended too, and errors come out."""

import asyncio

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.tasks import until_first_ends


async def until_cancelled(cleaned):
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        cleaned.append("others")


async def returning():
    await asyncio.sleep(0)


async def raising(error):
    raise error


def test_a_part_that_ends_in_order_ends_the_others_and_waits_for_them():
    cleaned = []
    asyncio.run(until_first_ends(until_cancelled(cleaned), returning(), until_cancelled(cleaned)))
    assert cleaned == ["others", "others"]


def test_an_error_ends_the_others_and_comes_out_as_it_is():
    cleaned = []
    with pytest.raises(SourceUnavailable, match="gone"):
        asyncio.run(until_first_ends(until_cancelled(cleaned), raising(SourceUnavailable("gone"))))
    assert cleaned == ["others"]


def test_of_two_errors_at_once_the_first_named_comes_out_whatever_ended_in_order():
    async def at_once():
        await until_first_ends(asyncio.sleep(0), raising(SourceUnavailable("first")), raising(ZeroDivisionError()))

    for _ in range(10):
        with pytest.raises(SourceUnavailable, match="first"):
            asyncio.run(at_once())


def test_whoever_is_cancelled_ends_all_parts_first():
    cleaned = []

    async def cancelled():
        running = asyncio.create_task(until_first_ends(until_cancelled(cleaned), until_cancelled(cleaned)))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        return running.cancelled()

    assert asyncio.run(cancelled())
    assert cleaned == ["others", "others"]


def test_a_future_that_somebody_sets_is_a_part_as_well():
    async def judged():
        verdict = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(verdict.set_exception, SourceUnavailable("too slow"))
        await until_first_ends(asyncio.Event().wait(), verdict)

    with pytest.raises(SourceUnavailable, match="too slow"):
        asyncio.run(judged())
