"""Session state on the server: identity, settings, database, and the destination of notifications."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.messages import PubSubTicket
from silverfold.connectors.sqlitecloud.server.database import Database
from silverfold.connectors.sqlitecloud.server.error_codes import GENERIC, NOT_FOUND
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.broker import Broker
from silverfold.connectors.sqlitecloud.server.pubsub.capture import TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.outbox import Outbox
from silverfold.connectors.sqlitecloud.server.results import ClientKeys
from silverfold.connectors.sqlitecloud.server.served_databases import MEMORY, Databases, Upload
from silverfold.connectors.sqlitecloud.server.transactions import Transactions


@dataclass(frozen=True)
class Credentials:
    """Accepted credentials: a user with a password, or, without a user, an API key or a token."""

    secret: str = field(repr=False)
    user: str | None = None

    def authenticate(self, *, user: str | None, secret: str) -> bool:
        """Return whether the credentials match. The time taken does not reveal where the secret differs."""
        return hmac.compare_digest(secret.encode(), self.secret.encode()) and user == self.user


@dataclass(frozen=True)
class Served:
    """State shared by all sessions of a server."""

    databases: Databases
    options: ServerOptions
    credentials: Credentials | None = None
    """None accepts everybody."""
    listeners: Broker = field(default_factory=Broker)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Session numbers, in the order in which sessions begin."""


class ServedSession:
    """One session. One thread at a time may use its database; everything else is thread-safe.

    Args:
        served: The server's shared state.
        own: Whether it is the server's own session, whose changes have the sender 0.
        ip: The client's address; empty for the server's own session.
    """

    def __init__(self, served: Served, *, own: bool = False, ip: str = "") -> None:
        self.uuid, self.number, self.ip = str(uuid.uuid4()), next(served.numbers), ip
        self.ticket = PubSubTicket(self.uuid, str(uuid.uuid4()))
        self.served = served
        self.sender = None if own else self.uuid
        self.admitted = own or served.credentials is None
        self.keys = ClientKeys()
        self.offered = False
        """Whether a LISTEN was answered with the ticket."""
        self.has_main = True
        """Whether its main connection is open."""
        self.upload: Upload | None = None
        """The database upload in progress, if any."""
        self.download: BytesIO | None = None
        """The rest of the database download in progress, if any."""
        self.pubsub_only = False
        """Whether it continues without its main connection."""
        self.used: str | None = None
        """The name of the current database, if any."""
        self._transactions: Transactions | None = None
        self._outbox: Outbox | None = None

    @property
    def database_name(self) -> str:
        """The name of the current database. Raises SourceRefused if there is none."""
        if self.used is None:
            raise SourceRefused(code=GENERIC, text="No database is in use: USE DATABASE first.")
        return self.used

    @property
    def database(self) -> Database | None:
        """The current database, if any."""
        return self.served.databases.find(self.used)

    @property
    def transactions(self) -> Transactions:
        """The connection to the current database, opened on first use. Raises SourceRefused if there is none."""
        if self._transactions is None:
            database = self.served.databases.find_or_refuse(self.database_name)
            self._transactions = Transactions(database, self.served.options.capture, self._publish)
        return self._transactions

    def use(self, name: str) -> None:
        """Switch to a database; roll back whatever is open in the previous one.

        Args:
            name: `MEMORY` for a private in-memory database, which lasts until the session ends or switches.

        Raises:
            SourceRefused: There is no database of that name.
        """
        own = f"{MEMORY}{self.uuid}"
        if name == MEMORY:
            if self.used != own:
                self.close()
                self.served.databases.make_in_memory(own)
                self.used = own
            return
        if name.startswith(MEMORY) or self.served.databases.find(name) is None:
            raise SourceRefused(code=NOT_FOUND, text=f"Database {name} not found.")
        if name != self.used:
            self.close()
            self.used = name

    def deliver(self, frame: bytes) -> None:
        """Send a notification; it is dropped while there is no pub/sub connection."""
        if (outbox := self._outbox) is not None:
            outbox.notify(frame)

    @property
    def has_pubsub(self) -> bool:
        """Whether it has a pub/sub connection."""
        return self._outbox is not None

    def attach(self, outbox: Outbox) -> None:
        """Send notifications to this outbox from now on; close the previous one."""
        before, self._outbox = self._outbox, outbox
        if before is not None:
            before.close()

    def detach(self, outbox: Outbox) -> None:
        """Stop sending notifications to this outbox, and close it."""
        if self._outbox is outbox:
            self._outbox = None
        outbox.close()

    def leave(self) -> None:
        """Unsubscribe from everything, and end the pub/sub connection."""
        self.served.listeners.unlisten(self)
        if (outbox := self._outbox) is not None:
            self.detach(outbox)

    def at_commit(self, work: Callable[[], None]) -> None:
        """Run ``work`` when the open transaction commits, else now; ordered among the database's commits."""
        if self._transactions is not None:
            self._transactions.at_commit(work)
        else:
            with self.in_order():
                work()

    def in_order(self) -> AbstractContextManager[object]:
        """Return a lock that orders messages among the commits of the session's database."""
        return nullcontext() if self.database is None else self.database.order

    def interrupt(self) -> None:
        """Interrupt a running statement, which then fails."""
        if (transactions := self._transactions) is not None:
            transactions.interrupt()

    def close(self) -> None:
        """Roll back what is open, and close the database. Call in the thread that uses it."""
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        if self.used is not None and self.used.startswith(MEMORY):
            self.served.databases.remove(self.used)
        self.used = None
        self.end_transfers()

    def end_transfers(self) -> None:
        """Abandon the upload and the download in progress."""
        if self.upload is not None:
            self.upload.close()
        self.upload = self.download = None

    def _publish(self, changes: Sequence[TableChanges]) -> None:
        self.served.listeners.publish_changes(self.served.options, self.database_name, self.sender, changes)
