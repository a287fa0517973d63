"""A server for asyncio, with the seed's API. An echo server::

from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.server import ConfigurationBuilder, Server, ServerTransports

def on_connect(connection):
    connection.add_message_listener(on_message)

async def on_message(connection, message):
    name = message.body.get_value("name")
    await connection.write_object(Packet("response").set_value("value", f"Hello World {name}"))

async def serve():
    transports = ServerTransports.TCP, ServerTransports.WEBSOCKET, ServerTransports.HTTP
    async with Server.create(ConfigurationBuilder().add_transport(*transports).build()) as server:
        await server.start(on_connect)
        await asyncio.Event().wait()
"""

from silverfold.connectors.tengi.server.broadcaster import Broadcaster
from silverfold.connectors.tengi.server.server import Server
from silverfold.connectors.tengi.transports.configuration import Configuration, ConfigurationBuilder, Faults
from silverfold.connectors.tengi.transports.connection import Connection, ConnectionListener, Registration
from silverfold.connectors.tengi.transports.names import ServerTransports, UnsupportedTransport

__all__ = [
    "Broadcaster",
    "Configuration",
    "ConfigurationBuilder",
    "Connection",
    "ConnectionListener",
    "Faults",
    "Registration",
    "Server",
    "ServerTransports",
    "UnsupportedTransport",
]
