"""What a server knows of a session: who it is, what it has set, its database, and where its notifications go."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count

from conf.errors import SourceRefused
from connectors.sqlitecloud.broker import Broker
from connectors.sqlitecloud.capture import TableChanges
from connectors.sqlitecloud.database import Database
from connectors.sqlitecloud.error_codes import GENERIC, NOT_FOUND
from connectors.sqlitecloud.messages import PubSubTicket
from connectors.sqlitecloud.outbox import Outbox
from connectors.sqlitecloud.results import ClientKeys
from connectors.sqlitecloud.served_databases import MEMORY, Databases, Upload
from connectors.sqlitecloud.server_options import ServerOptions
from connectors.sqlitecloud.transactions import Transactions


@dataclass(frozen=True)
class Credentials:
    """Who is let in: a user with a password, or, without a user, an API key or a token."""

    secret: str = field(repr=False)
    user: str | None = None

    def authenticate(self, *, user: str | None, secret: str) -> bool:
        """Whether these are they. Takes the same time whatever is wrong with the secret."""
        return hmac.compare_digest(secret.encode(), self.secret.encode()) and user == self.user


@dataclass(frozen=True)
class Served:
    """What all sessions of a server share."""

    databases: Databases
    behaviour: ServerOptions
    credentials: Credentials | None = None
    """None lets everybody in."""
    listeners: Broker = field(default_factory=Broker)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of sessions, in the order in which they begin."""


class ServedSession:
    """One session. Its database is used by one thread at a time; the rest may be called from any.

    Args:
        served: What the server serves.
        own: Whether it is the server's own: its changes have the sender 0.
        ip: Where its client is; empty for the server's own.
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
        """Whether its main connection is up."""
        self.upload: Upload | None = None
        """Takes the parts of a database, while one is uploaded."""
        self.download: BytesIO | None = None
        """What is left of a database that is downloaded."""
        self.pubsub_only = False
        """Whether it goes on without its main connection."""
        self.used: str | None = None
        """Name of the database in use, if any."""
        self._transactions: Transactions | None = None
        self._outbox: Outbox | None = None

    @property
    def database_name(self) -> str:
        """The database in use. Raises SourceRefused when there is none."""
        if self.used is None:
            raise SourceRefused(code=GENERIC, text="No database is in use: USE DATABASE first.")
        return self.used

    @property
    def database(self) -> Database | None:
        """The database in use, if any."""
        return self.served.databases.find(self.used)

    @property
    def transactions(self) -> Transactions:
        """The connection to the database in use, opened when first asked for. Raises SourceRefused without one."""
        if self._transactions is None:
            database = self.served.databases.find_or_refuse(self.database_name)
            self._transactions = Transactions(database, self.served.behaviour.capture, self._told)
        return self._transactions

    def use(self, name: str) -> None:
        """Use a database from now on; what was open in the one before is rolled back.

        Args:
            name: `MEMORY` for one of its own, which goes with the session, or when it uses another one.

        Raises:
            SourceRefused: There is none of that name.
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

    def hear(self, frame: bytes) -> None:
        """Take a notification; it is forgotten while there is no pub/sub connection."""
        if (outbox := self._outbox) is not None:
            outbox.notify(frame)

    @property
    def is_heard(self) -> bool:
        """Whether it has a pub/sub connection."""
        return self._outbox is not None

    def attach(self, outbox: Outbox) -> None:
        """Send notifications there from now on, and no longer where they went before."""
        before, self._outbox = self._outbox, outbox
        if before is not None:
            before.close()

    def detach(self, outbox: Outbox) -> None:
        """Send nothing there any more."""
        if self._outbox is outbox:
            self._outbox = None
        outbox.close()

    def leave(self) -> None:
        """Listen to nothing any more, and end the pub/sub connection."""
        self.served.listeners.unlisten(self)
        if (outbox := self._outbox) is not None:
            self.detach(outbox)

    def at_commit(self, work: Callable[[], None]) -> None:
        """Do something as the session's transaction commits, or now, in its place among the database's commits."""
        if self._transactions is not None:
            self._transactions.at_commit(work)
        else:
            with self.in_order():
                work()

    def in_order(self) -> AbstractContextManager[object]:
        """Let what is said now have its place among the commits of the session's database."""
        return nullcontext() if self.database is None else self.database.order

    def interrupt(self) -> None:
        """Let a statement that runs end soon, with an error."""
        if (transactions := self._transactions) is not None:
            transactions.interrupt()

    def close(self) -> None:
        """Use no database: roll back what is open, and close the connection. In the thread that uses it."""
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        if self.used is not None and self.used.startswith(MEMORY):
            self.served.databases.remove(self.used)
        self.used = None
        self.end_transfers()

    def end_transfers(self) -> None:
        """Forget the upload and the download that are under way."""
        if self.upload is not None:
            self.upload.close()
        self.upload = self.download = None

    def _told(self, changes: Sequence[TableChanges]) -> None:
        self.served.listeners.tell_changes(self.served.behaviour, self.database_name, self.sender, changes)
