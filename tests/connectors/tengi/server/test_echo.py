"""The seed's echo pair in its Python form, over each transport."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from silverfold.connectors.tengi import server
from silverfold.connectors.tengi.client import Client, ClientTransports, ConfigurationBuilder, Connection
from silverfold.connectors.tengi.protocol import Message, Packet
from silverfold.connectors.tengi.server import Server, ServerTransports
from tests.support.tengi.pairs import TRANSPORTS, port_of, run


def test_the_echo_server_of_the_page_has_under_20_lines_and_answers() -> None:
    page = Path(server.__file__ or "").parents[1] / "PROTOCOL.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in example.splitlines() if line]) < 20
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    names: dict[str, Any] = {}
    exec(example.replace("asyncio.run(main())", "").replace("*transports)", f"*transports, port={port})"), names)

    async def work() -> str:
        task = asyncio.create_task(names["main"]())
        await asyncio.sleep(0)
        async with Client.create(ConfigurationBuilder().add_transport("tcp", port=port).build()) as client:
            connection = await client.connect("127.0.0.1")
            answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            connection.add_message_listener(lambda _, message: answered.set_result(message.body.get_value("value")))
            await connection.write_object(Packet("request").set_value("name", "Steven"))
            answer = await answered
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return answer

    assert run(work()) == "Hello World Steven"


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
        echo = Server.create(ConfigurationBuilder().add_transport(*transports, port=0).build())
        await echo.start(on_server_connect)
        client = Client.create(ConfigurationBuilder().add_transport(transport, port=port_of(echo)).build())
        connection = await client.connect("127.0.0.1", on_connect)
        await greeted.wait()
        assert connection.transport == transport
        await client.stop()
        await echo.stop()

    run(work())
    assert greetings == ["Hello World Steven"]
