"""A stream that was deleted and made anew may have had more than landed."""

from __future__ import annotations

import asyncio

from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import CountingSink, append, cluster, feed, received, resume_of, until


def test_that_its_shards_are_gone_is_a_warning_once_whoever_receives_then() -> None:
    async def run() -> None:
        first, second, third = CountingSink(), CountingSink(), CountingSink()
        async with cluster() as (server, client):
            await append(client, range(3))
            async with received(settings := feed(server.address), first):
                await until(lambda: len(first.values()) == 3)
            await append(client, range(3, 6))
            await client.delete_subscription("feed", force=True)
            await client.delete_stream(STREAM, force=True)
            await client.create_stream(STREAM)
            async with received(settings, second, resume_of(first)):
                await until(lambda: bool(second.marks("expired")))
                await until(lambda: b'"gone"' in second.control[-1])
            async with received(settings, third, resume_of(first, second)):
                await until(lambda: bool(third.marks("progress")))
        assert "does not have these shards any more" in second.marks("expired")[0]["reason"]
        assert len(second.marks("expired")) == 1
        assert third.marks("expired") == []

    asyncio.run(run())
