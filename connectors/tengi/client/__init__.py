"""A client for asyncio, with the names of tengi's own Java API::

configuration = ConfigurationBuilder().add_transport(ClientTransports.TCP, ClientTransports.HTTP).build()
client = Client.create(configuration)
await client.connect("127.0.0.1", on_connect)
...
await client.stop()
"""

from silverfold.connectors.tengi.client.client import Client
from silverfold.connectors.tengi.transports.configuration import Configuration, ConfigurationBuilder
from silverfold.connectors.tengi.transports.connection import Connection
from silverfold.connectors.tengi.transports.listeners import ConnectionListener, Registration
from silverfold.connectors.tengi.transports.names import ClientTransports, UnsupportedTransport

__all__ = [
    "Client",
    "ClientTransports",
    "Configuration",
    "ConfigurationBuilder",
    "Connection",
    "ConnectionListener",
    "Registration",
    "UnsupportedTransport",
]
