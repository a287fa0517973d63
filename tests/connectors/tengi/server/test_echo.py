"""The echo pair of tengi's README, in Python: over each transport, and as our README prints it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from silverfold.connectors.tengi.client import Client, ClientTransports, ConfigurationBuilder, Connection
from silverfold.connectors.tengi.protocol import Message, Packet
from silverfold.connectors.tengi.server import Server, ServerTransports
from tests.support.polling import PATIENCE
from tests.support.tengi.pairs import TRANSPORTS, port_of, run
from tests.support.tengi.receiving import free_port

README = Path(__file__).parents[4] / "README.md"


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


@pytest.mark.parametrize("transport", ["TCP", "HTTP"])
def test_the_readmes_pair_runs_as_printed(transport: str) -> None:
    page = README.read_text(encoding="utf-8")
    programs = re.findall(
        r"^```\n(import asyncio\nfrom silverfold.connectors.tengi.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    port = free_port()  # the printed default may be in use
    server, client = (each.replace("HTTP)", f"HTTP, port={port})") for each in programs)
    assert server.count("\n") < 20
    client = client.replace("ClientTransports.TCP, ClientTransports.HTTP", f"ClientTransports.{transport}")
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert "listening" in serving.stdout.readline()
            command = [sys.executable, "-c", client]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        finally:
            serving.terminate()
    assert done.returncode == 0, done.stderr
    assert "Hello World Steven" in done.stdout.splitlines()
