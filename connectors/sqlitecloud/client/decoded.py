"""Decoding of the notifications that a client receives.

::

    from silverfold.connectors.sqlitecloud.protocol.landed.payload import TableUpdate

    async with await connect("sqlitecloud://user:secret@db.example/shop.sqlite") as db:
        await db.listen_table("orders")
        async for message in decoded(db):
            if isinstance(message, TableUpdate) and not is_mine(db, message):
                for change in message.changes:
                    print(message.sender, message.channel, change.op, change.key, change.old_key, change.columns)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from silverfold.connectors.sqlitecloud.client.client import Client
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Notified, read_notification


async def decoded(db: Client) -> AsyncGenerator[Notified, None]:
    """Yield each notification decoded: the `TableUpdate` of one commit and table, or a `ChannelMessage`.

    Each is delivered once, either here or by `Client.notifications`.

    Raises:
        InvalidValue: A notification cannot be decoded. It is consumed: a new call continues after it.
        LocalProtocolError, SourceUnavailable, RemoteProtocolError: As `Client.notifications`.
    """
    async with aclosing(db.notifications()) as notifications:
        async for notification in notifications:
            yield read_notification(notification.text)


def is_mine(db: Client, message: Notified) -> bool:
    """Return whether the client itself sent the message or made the changes."""
    return message.sender is not None and message.sender == db.own_uuid
