"""What SCSP frames mean, as values: cells, rowsets, errors, requests, and the events of the two streams.

A cell is plain Python: int, float, str, bytes for a blob, None for NULL. Only text that is not UTF-8 has a type of its
own, `RawText`, so that nobody takes it for a blob by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from conf.errors import ProtocolError, SourceRefused, WireError


@dataclass(frozen=True, slots=True)
class RawText:
    """Text of SQLite whose bytes are not UTF-8."""

    octets: bytes


Value: TypeAlias = int | float | str | bytes | RawText | None
"""One cell, or one parameter of a statement."""


@dataclass(frozen=True, slots=True)
class Single:
    """A frame that is one value: ``+ ! : , $ _``."""

    value: Value

    @property
    def is_ok(self) -> bool:
        """Whether it is the answer OK, which cannot be told from a text that happens to be OK."""
        return self.value == "OK"


@dataclass(frozen=True, slots=True)
class JsonText:
    """A frame ``#``. Its text is not looked at here, and may be neither UTF-8 nor JSON."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Array:
    """A frame ``=``."""

    items: tuple[Value, ...]


class Column(NamedTuple):
    """A column of a rowset. Of version 1 only the name is known, and the rest is None.

    The texts are None, too, where the server sends null: for a column that is an expression.
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
    """A frame ``*``: a whole result."""

    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]
    version: int = 1
    """2 where the columns say more than their names."""


@dataclass(frozen=True, slots=True)
class RowsetChunk:
    """A frame ``/``: some rows of a result."""

    index: int
    """Counts from 1."""
    version: int
    columns: tuple[Column, ...] | None
    """Of the first chunk only; None of the others."""
    width: int
    """How many columns the result has: the same in all its chunks."""
    rows: list[tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class ChunksEnd:
    """The frame ``/6 0 0 0``: the result has no more rows."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """A frame ``-``."""

    code: int
    """Below 10000 of SQLite, below 100000 of the server."""
    extended: int
    """SQLite's extended code; 0 where there is none."""
    offset: int
    """Where in the SQL text, in bytes; -1 where that is not known."""
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A frame ``^``: a text that the client is to send back."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Reconnect:
    """A frame ``@``, documented as unused."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class PubSubOffer:
    """A frame ``|``. What it shows of itself has no secret in it."""

    octets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PubSubTicket:
    """What opens the second connection of a session. What it shows of itself has no secret in it."""

    uuid: str
    secret: str = field(repr=False)

    @property
    def command(self) -> str:
        """The command that opens it, to be sent as it came."""
        return f"PAUTH {self.uuid} {self.secret}"


Message: TypeAlias = (
    Single | JsonText | Array | Rowset | RowsetChunk | ChunksEnd | ServerError | Command | Reconnect | PubSubOffer
)
"""What one frame says."""


class Statement(NamedTuple):
    """A command, and what its question marks stand for, by position."""

    text: str
    parameters: tuple[Value, ...] = ()


class Listen(NamedTuple):
    """A command that asks for notifications. The first of a session is answered with a ticket."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class Login:
    """The first command of a session. What it shows of itself has no secret in it."""

    text: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False, default=())
    """What must not be shown should the server repeat it."""


Request: TypeAlias = Login | Statement | Listen


class ReplyReceived(NamedTuple):
    """The request is answered, in one frame."""

    reply: Single | JsonText | Array | Rowset
    frame: bytes


class ChunkReceived(NamedTuple):
    """A part of the answer; more follows."""

    chunk: RowsetChunk
    frame: bytes


class ChunksEnded(NamedTuple):
    """The request is answered: all chunks have come."""

    frame: bytes


class RequestRefused(NamedTuple):
    """The request is answered: no. After a login or PAUTH, nothing more comes."""

    error: SourceRefused
    frame: bytes


class TicketReceived(NamedTuple):
    """The first `Listen` is answered: connect a second time. There is no frame: it holds a secret."""

    ticket: PubSubTicket


@dataclass(frozen=True, slots=True)
class ListenAccepted:
    """A later `Listen` is answered. There is no frame: it may hold the ticket again, which is to be ignored."""


class EchoAsked(NamedTuple):
    """The server wants a text back before it answers: write ``answer``."""

    answer: bytes
    frame: bytes


class PauthAccepted(NamedTuple):
    """The pub/sub stream is open: notifications follow."""

    frame: bytes


class Notification(NamedTuple):
    """One notification: its text as it came, and the whole frame."""

    text: bytes
    frame: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The peer closed between two frames. Nothing comes after it."""


class BadFrame(NamedTuple):
    """What the peer sent cannot be cut, read, or taken in this state. Nothing comes after it."""

    error: WireError | ProtocolError
    frame: bytes
    """The frame and all that had come behind it. Of a frame ``|`` only the header is kept: it may hold a secret."""


MainEvent: TypeAlias = (
    ReplyReceived
    | ChunkReceived
    | ChunksEnded
    | RequestRefused
    | TicketReceived
    | ListenAccepted
    | EchoAsked
    | ConnectionEnded
    | BadFrame
)
PubSubEvent: TypeAlias = PauthAccepted | RequestRefused | Notification | ConnectionEnded | BadFrame

MAX_NESTING: Final = 64
"""Levels of lists and objects inside a value of a notification."""

SIGNED_64: Final = range(-(1 << 63), 1 << 63)
"""Integers that SQLite has."""
