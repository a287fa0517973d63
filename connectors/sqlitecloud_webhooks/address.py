"""Where a feed listens, and where webhooks of its tables say they come from."""

from __future__ import annotations

from typing import Final

from connectors.base import Feed
from connectors.sqlitecloud_webhooks.messages import Addressed
from connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from connectors.transport import Address, parse_address

LOOPBACK: Final = Address("127.0.0.1", 8090)
"""Where a feed listens that does not say where."""


def listening_address(text: str) -> Address:
    """Return where to listen. Raises ValueError that says what is wrong."""
    return parse_address(text) if text else LOOPBACK


def table_at_source(feed: Feed, name: str) -> Addressed:
    """Return the database and the table that feed a silver table."""
    options, table = feed.options, feed.tables[name]
    assert isinstance(options, WebhookOptions)
    assert isinstance(table, WebhookTable)
    return Addressed(options.database, table.source or name)
