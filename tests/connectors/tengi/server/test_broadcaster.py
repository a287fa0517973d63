"""One message to many connections."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from silverfold.conf.errors import InvalidValue, OversizedMessage
from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.server import Broadcaster
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving
from tests.support.tengi.raw_peer import HANDSHAKE, raw


def test_a_message_reaches_every_member_over_any_transport() -> None:
    broadcaster = Broadcaster()

    async def work() -> None:
        async with serving(broadcaster.add) as server, AsyncExitStack() as stack:
            members = [await stack.enter_async_context(connected(server, each)) for each in (*TRANSPORTS, *TRANSPORTS)]
            inboxes = [Inbox(each) for each in members]
            while len(broadcaster.members) < 6:
                await asyncio.sleep(0.01)
            packets = [Packet("news", {"number": number}) for number in range(20)]
            ids = [broadcaster.send(each).id for each in packets]
            assert len(set(ids)) == 20
            for inbox in inboxes:
                assert await inbox.take(20) == packets

    run(work())


def test_a_slow_member_is_dropped_and_the_others_get_all() -> None:
    broadcaster = Broadcaster()

    async def work() -> None:
        async with serving(broadcaster.add, queue_bytes=2 << 20) as server, AsyncExitStack() as stack:
            quick = await stack.enter_async_context(connected(server, "tcp"))
            slow = await stack.enter_async_context(raw(port_of(server)))
            await slow.send(b"TeNgI" + HANDSHAKE)
            while len(broadcaster.members) < 2:
                await asyncio.sleep(0.01)
            inbox = Inbox(quick)
            sent = 0
            while len(broadcaster.members) == 2:
                broadcaster.send(bytes([sent % 256]) * 100_000)
                sent += 1
                assert (await inbox.get())[0] == sent % 256 - 1 if sent % 256 else 255
                assert sent < 1000
            assert [each.id for each in broadcaster.members] == [quick.id]
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)

    run(work())


def test_a_message_beyond_a_limit_is_refused_and_costs_no_member() -> None:
    broadcaster = Broadcaster()

    async def work() -> None:
        async with serving(broadcaster.add, max_packet=1000) as server, connected(server, "tcp") as member:
            inbox = Inbox(member)
            while not broadcaster.members:
                await asyncio.sleep(0.01)
            with pytest.raises(OversizedMessage):
                broadcaster.send(bytes(2000))
            broadcaster.send("small")
            assert await inbox.get() == "small"

    run(work())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_member_that_is_disconnected_still_gets_what_was_queued_for_it(transport: str) -> None:
    broadcaster = Broadcaster()

    async def work() -> None:
        async with serving(broadcaster.add) as server, connected(server, transport) as member:
            inbox = Inbox(member)
            while not broadcaster.members:
                await asyncio.sleep(0.01)
            (connection,) = broadcaster.members
            for number in range(100):
                await connection.write_object(bytes([number]) * 80_000)
            leaving = asyncio.create_task(connection.disconnect())
            await asyncio.sleep(0)
            broadcaster.send("too late")
            assert broadcaster.members == []
            assert [each[0] for each in await inbox.take(100)] == list(range(100))
            await leaving

    run(work())


def test_members_leave_with_their_connection_or_by_name() -> None:
    broadcaster = Broadcaster()

    async def work() -> None:
        async with serving(broadcaster.add) as server:
            async with connected(server, "tcp"), connected(server, "tcp") as second:
                inbox = Inbox(second)
                while len(broadcaster.members) < 2:
                    await asyncio.sleep(0.01)
                first_member, _ = broadcaster.members
                broadcaster.remove(first_member)
                broadcaster.remove(first_member)
                broadcaster.send("to one")
                assert await inbox.get() == "to one"
                with pytest.raises(InvalidValue):
                    broadcaster.send(None)
            while broadcaster.members:
                await asyncio.sleep(0.01)
            broadcaster.send("to nobody")

    run(work())
