"""Helpers for webhook tests: a feed of albums, its settings, and request bodies."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud_webhooks.decoder import ChangeReader
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import columns_of
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import SourceTable

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlitecloud_webhooks"
FEED = "shop"
STREAM = "chinook.sqlite/albums"
TYPES = {"AlbumId": "bigint", "Title": "string", "Price": "decimal(6, 2)", "Live": "boolean"}
KNOWN_COLUMNS = ("AlbumId", "Cover")


def options(**settings: Any) -> WebhookOptions:
    """Return a feed's options, validated as from its file; insecure without a secret."""
    guarded = {"insecure": True} if "secret" not in settings else {}
    return validated(WebhookOptions, {"database": "chinook.sqlite", **guarded, **settings}, file="test")


def table(**settings: Any) -> WebhookTable:
    """Return the table's settings, validated as from the feed's file."""
    return validated(WebhookTable, {"keys": ["AlbumId"], "types": TYPES, **settings}, file="test")


def feed(address: str = "", *, tables: dict[str, WebhookTable] | None = None, **settings: Any) -> Feed:
    """Return a feed with these tables, by default albums only."""
    return Feed(FEED, "sqlitecloud_webhooks", address, options(**settings), tables or {"albums": table()})


def reader(**settings: Any) -> ChangeReader:
    """Return the decoder of the albums, with the columns of `KNOWN_COLUMNS` known."""
    of, keys = options(**settings), table().keys
    return ChangeReader(
        SourceTable("chinook.sqlite", "albums"),
        columns_of(dict.fromkeys(KNOWN_COLUMNS, 0), table(), of),
        keys,
        of.insert_absent,
    )


def webhook(op: str, *, name: str = "albums", database: str = "chinook.sqlite", **sent: Any) -> bytes:
    """Return the body of a webhook with these columns."""
    where = {"type": op, "database": database, "table": name}
    return json.dumps({**where, "column": list(sent), "data": list(sent.values())}).encode()


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the golden vectors of a file, each with its body as bytes."""
    found = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    return [{**each, "body": bytes.fromhex(each["hex"]) if "hex" in each else each["body"].encode()} for each in found]


def free_port() -> int:
    """Return an unused loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
