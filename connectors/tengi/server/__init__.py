"""A server for asyncio, with the names of tengi's own Java API; README.md has an echo server."""

from silverfold.connectors.tengi.server.broadcaster import Broadcaster
from silverfold.connectors.tengi.server.server import Server
from silverfold.connectors.tengi.transports.configuration import Configuration, ConfigurationBuilder, Faults
from silverfold.connectors.tengi.transports.connection import Connection
from silverfold.connectors.tengi.transports.listeners import ConnectionListener, Registration
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
