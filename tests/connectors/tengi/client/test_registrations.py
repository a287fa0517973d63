"""Adding and removing listeners, also while an event is delivered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from silverfold.connectors.tengi.client import Connection, ConnectionListener, Registration
from silverfold.connectors.tengi.protocol import Message
from tests.connectors.tengi.client.test_connection import echo
from tests.support.tengi.pairs import Inbox, connected, run, serving


class Noting(ConnectionListener):
    """Notes its name and the event."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def on_message(self, connection: Connection, message: Message) -> None:
        self.notes.append(f"{self.name} {message.body}")

    def on_closed(self, connection: Connection) -> None:
        self.notes.append(f"{self.name} closed")


@dataclass
class Counting(ConnectionListener):
    """A listener that equals another one with the same count."""

    count: int = 0

    def on_message(self, connection: Connection, message: Message) -> None:
        self.count += 1

    def __call__(self, connection: Connection, message: Message) -> None:
        self.count += 1


async def echo_twice_and_leave(connection: Connection) -> None:
    inbox = Inbox(connection)
    for number in range(2):
        await connection.write_object(number)
        await inbox.get()
    await connection.disconnect()
    await connection.wait_closed()


def test_a_listener_that_another_one_removes_is_not_called_any_more() -> None:
    notes: list[str] = []
    removed: list[Registration] = []

    class RemovingAtTheEnd(ConnectionListener):
        def on_closed(self, connection: Connection) -> None:
            notes.append("closed")
            removed[-1].remove()

    async def remove(_connection: Connection, message: Message) -> None:
        notes.append(f"removing {message.body}")
        await asyncio.sleep(0)
        for each in removed[:2]:
            each.remove()

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_message_listener(remove)
            removed.append(connection.add_message_listener(lambda _, message: notes.append(f"removed {message.body}")))
            removed.append(connection.add_connection_listener(Noting("removed", notes)))
            connection.add_connection_listener(RemovingAtTheEnd())
            removed.append(connection.add_connection_listener(Noting("last", notes)))
            await echo_twice_and_leave(connection)

    run(work())
    assert notes == ["removing 0", "last 0", "removing 1", "last 1", "closed"]


def test_a_listener_that_is_added_during_a_message_gets_the_next_one() -> None:
    notes: list[str] = []

    def add(connection: Connection, message: Message) -> None:
        if message.body == 0:
            connection.add_message_listener(lambda _, message: notes.append(f"function {message.body}"))
            connection.add_connection_listener(Noting("object", notes))

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_message_listener(add)
            await echo_twice_and_leave(connection)

    run(work())
    assert notes == ["function 1", "object 1", "object closed"]


def test_a_registration_removes_its_own_listener_and_none_that_is_equal() -> None:
    async def count(connection: Connection, add: Any) -> tuple[int, int]:
        first, second = Counting(), Counting()
        registrations = [add(first), add(second)]
        inbox = Inbox(connection)
        registrations[1].remove()
        registrations[1].remove()
        for number in range(2):
            await connection.write_object(number)
            await inbox.get()
        assert (await connection.request("the second message is delivered")).body
        registrations[0].remove()
        await connection.write_object(2)
        await inbox.get()
        return first.count, second.count

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            assert await count(connection, connection.add_message_listener) == (2, 0)
            assert await count(connection, connection.add_connection_listener) == (2, 0)

    run(work())


def test_a_listener_that_is_added_twice_is_removed_once_at_a_time() -> None:
    counting = Counting()

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            registrations = [connection.add_message_listener(counting) for _ in range(2)]
            inbox = Inbox(connection)
            for number, expected in enumerate([2, 3, 3]):
                await connection.write_object(number)
                await inbox.get()
                assert counting.count == expected
                if registrations:
                    registrations.pop().remove()

    run(work())
