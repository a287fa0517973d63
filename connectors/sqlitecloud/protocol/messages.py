"""SCSP messages as values: cells, rowsets, errors, requests, and the events of the two streams.

A cell is plain Python: int, float, str, bytes for a blob, None for NULL. Only text that is not UTF-8 has its own type,
`RawText`, so that it is never mistaken for a blob.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from silverfold.conf.errors import ProtocolError, SourceRefused, WireError


@dataclass(frozen=True, slots=True)
class RawText:
    """SQLite text whose bytes are not UTF-8."""

    octets: bytes


Value: TypeAlias = int | float | str | bytes | RawText | None
"""One cell, or one parameter of a statement."""


@dataclass(frozen=True, slots=True)
class Single:
    """A frame with a single value: ``+ ! : , $ _``."""

    value: Value

    @property
    def is_ok(self) -> bool:
        """Whether this is the reply OK; indistinguishable from the text value OK."""
        return self.value == "OK"


@dataclass(frozen=True, slots=True)
class JsonText:
    """A frame ``#``. Its text is not validated here; it may be neither UTF-8 nor JSON."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Array:
    """A frame ``=``."""

    items: tuple[Value, ...]


class Column(NamedTuple):
    """A column of a rowset. Version 1 has only names; the other fields are None.

    The text fields are also None where the server sends null, as for a column that is an expression.
    """

    name: str
    declared_type: str | None = None
    database: str | None = None
    table: str | None = None
    origin: str | None = None
    not_null: bool | None = None
    primary_key: bool | None = None
    autoincrement: bool | None = None


@dataclass(frozen=True, slots=True)
class Rowset:
    """A frame ``*``: a complete result."""

    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]
    version: int = 1
    """2 if the columns have metadata beyond their names."""


@dataclass(frozen=True, slots=True)
class RowsetChunk:
    """A frame ``/``: some rows of a result."""

    index: int
    """Counts from 1."""
    version: int
    columns: tuple[Column, ...] | None
    """Set in the first chunk only; None in the others."""
    width: int
    """The column count of the result: the same in all its chunks."""
    rows: list[tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class ChunksEnd:
    """The frame ``/6 0 0 0``: the result has no more rows."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """A frame ``-``."""

    code: int
    """Below 10000 from SQLite, below 100000 from the server."""
    extended: int
    """SQLite's extended code; 0 if there is none."""
    offset: int
    """Byte offset in the SQL text; -1 if unknown."""
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A frame ``^``: a text that the client must echo."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Reconnect:
    """A frame ``@``, documented as unused."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class PubSubOffer:
    """A frame ``|``. Its repr hides the secret."""

    octets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PubSubTicket:
    """The ticket that opens a session's second connection. Its repr hides the secret."""

    uuid: str
    secret: str = field(repr=False)

    @property
    def command(self) -> str:
        """The command that opens the connection, to be sent unaltered."""
        return f"PAUTH {self.uuid} {self.secret}"


Message: TypeAlias = (
    Single | JsonText | Array | Rowset | RowsetChunk | ChunksEnd | ServerError | Command | Reconnect | PubSubOffer
)
"""The content of one frame."""


class Statement(NamedTuple):
    """A command, and its positional parameters."""

    text: str
    parameters: tuple[Value, ...] = ()


class Listen(NamedTuple):
    """A command that requests notifications. The first one of a session is answered with a ticket."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class Login:
    """The first command of a session. Its repr hides the secrets."""

    text: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False, default=())
    """Secrets to hide if the server repeats them."""


Request: TypeAlias = Login | Statement | Listen


class ReplyReceived(NamedTuple):
    """The complete reply to a request, in one frame."""

    reply: Single | JsonText | Array | Rowset
    frame: bytes


class ChunkReceived(NamedTuple):
    """A part of the reply; more follows."""

    chunk: RowsetChunk
    frame: bytes


class ChunksEnded(NamedTuple):
    """The end of a chunked reply."""

    frame: bytes


class RequestRefused(NamedTuple):
    """The server refused the request. After a login or PAUTH, nothing more follows."""

    error: SourceRefused
    frame: bytes


class TicketReceived(NamedTuple):
    """The reply to the first `Listen`: open the second connection. There is no frame: it contains a secret."""

    ticket: PubSubTicket


@dataclass(frozen=True, slots=True)
class ListenAccepted:
    """The reply to a later `Listen`. There is no frame: it may contain the ticket again, which is ignored."""


class EchoRequested(NamedTuple):
    """The server requires an echo before it replies: send ``answer``."""

    answer: bytes
    frame: bytes


class PauthAccepted(NamedTuple):
    """The pub/sub stream is open: notifications follow."""

    frame: bytes


class Notification(NamedTuple):
    """One notification: its text verbatim, and the complete frame."""

    text: bytes
    frame: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The peer closed the connection between two frames. Nothing follows."""


class BadFrame(NamedTuple):
    """Input that cannot be split, parsed or accepted in the current state. Nothing follows."""

    error: WireError | ProtocolError
    frame: bytes
    """The frame and everything received after it. Of a frame ``|`` only the header remains: it may contain a secret."""


MainEvent: TypeAlias = (
    ReplyReceived
    | ChunkReceived
    | ChunksEnded
    | RequestRefused
    | TicketReceived
    | ListenAccepted
    | EchoRequested
    | ConnectionEnded
    | BadFrame
)
PubSubEvent: TypeAlias = PauthAccepted | RequestRefused | Notification | ConnectionEnded | BadFrame

MAX_NESTING: Final = 64
"""Maximum nesting of lists and objects inside a notification's value."""

SIGNED_64: Final = range(-(1 << 63), 1 << 63)
"""The range of SQLite integers."""
