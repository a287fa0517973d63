"""The listening address of a feed, and the source database and table of its webhooks."""

from __future__ import annotations

from typing import Final

from silverfold.connectors.common.transport import Address, parse_address
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookFeed
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import SourceTable

LOOPBACK: Final = Address("127.0.0.1", 8090)
"""The default listening address."""


def listening_address(text: str) -> Address:
    """Return the listening address. Raise ValueError that states the problem."""
    return parse_address(text) if text else LOOPBACK


def table_at_source(feed: WebhookFeed, name: str) -> SourceTable:
    """Return the source database and table of a silver table."""
    return SourceTable(feed.options.database, feed.tables[name].source or name)
