"""Reads the notifications that a client hears.

::

    async with await connect("sqlitecloud://user:secret@db.example/shop.sqlite") as db:
        await db.listen_table("orders")
        async for told in decoded(db):
            if isinstance(told, TableUpdate) and not is_mine(db, told):
                for change in told.changes:
                    print(told.sender, told.channel, change.op, change.key, change.old_key, change.columns)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from connectors.sqlitecloud.client import Client
from connectors.sqlitecloud.payload import Notified, read_notification


async def decoded(db: Client) -> AsyncGenerator[Notified, None]:
    """Yield what each notification says: a `TableUpdate`, what one commit changed in one table, or a `ChannelMessage`.

    Each comes once, here or by `Client.notifications`.

    Raises:
        InvalidValue: One says nothing that can be read. It is passed: called again, this goes on behind it.
        LocalProtocolError, SourceUnavailable, RemoteProtocolError: As `Client.notifications`.
    """
    async with aclosing(db.notifications()) as notifications:
        async for notification in notifications:
            yield read_notification(notification.text)


def is_mine(db: Client, told: Notified) -> bool:
    """Tell whether the client itself wrote what a notification tells, or said it."""
    return told.sender is not None and told.sender == db.own_uuid
