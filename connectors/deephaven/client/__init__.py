"""A client with a thread that reads, its listeners and the table they keep."""

from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.listener import Listener
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode

__all__ = ["Listener", "SubscribeMode", "TableClient", "TableListener"]
