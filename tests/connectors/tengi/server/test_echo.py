"""The seed's echo pair in its Python form, over each transport."""

from __future__ import annotations

import asyncio

import pytest

from silverfold.connectors.tengi.client import Client, ClientTransports, ConfigurationBuilder, Connection
from silverfold.connectors.tengi.protocol import Message, Packet
from silverfold.connectors.tengi.server import Server, ServerTransports
from tests.support.tengi.pairs import TRANSPORTS, port_of, run


def on_server_connect(connection: Connection) -> None:
    connection.add_message_listener(on_server_message)


async def on_server_message(connection: Connection, message: Message) -> None:
    name = message.body.get_value("name")
    await connection.write_object(Packet("response").set_value("value", f"Hello World {name}"))


@pytest.mark.parametrize("transport", [ClientTransports(each) for each in TRANSPORTS])
def test_the_seeds_example_runs_over_each_transport(transport: ClientTransports) -> None:
    greetings: list[str] = []
    greeted = asyncio.Event()

    async def on_connect(connection: Connection) -> None:
        connection.add_message_listener(on_message)
        await connection.write_object(Packet("request").set_value("name", "Steven"))

    def on_message(_connection: Connection, message: Message) -> None:
        greetings.append(message.body.get_value("value"))
        greeted.set()

    async def work() -> None:
        transports = ServerTransports.TCP, ServerTransports.WEBSOCKET, ServerTransports.HTTP
        server = Server.create(ConfigurationBuilder().add_transport(*transports, port=0).build())
        await server.start(on_server_connect)
        client = Client.create(ConfigurationBuilder().add_transport(transport, port=port_of(server)).build())
        connection = await client.connect("127.0.0.1", on_connect)
        await greeted.wait()
        assert connection.transport == transport
        await client.stop()
        await server.stop()

    run(work())
    assert greetings == ["Hello World Steven"]
