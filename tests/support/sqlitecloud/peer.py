"""A minimal SQLite Cloud client for tests: sends given bytes, and reads frame by frame."""

from __future__ import annotations

import json
import socket
import ssl
from types import TracebackType
from typing import Any

from silverfold.connectors.sqlitecloud.protocol.encode import encode_statement, encode_text
from silverfold.connectors.sqlitecloud.protocol.frames import FrameCutter, parse
from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    ChunksEnd,
    JsonText,
    Message,
    PubSubOffer,
    Rowset,
    RowsetChunk,
    ServerError,
    Single,
    Statement,
    Value,
)
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer

PATIENCE = 30.0


class Peer:
    """One connection. Use as a context manager."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=PATIENCE)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.cutter = FrameCutter()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def say(self, text: str) -> None:
        """Send a request without parameters, without waiting for its answer."""
        self.send(encode_text(text))

    def message(self) -> Message | None:
        """Return the next message; None when the server has closed."""
        while (frame := self.cutter.next_frame()) is None:
            try:
                chunk = self.socket.recv(1 << 16)
            except ConnectionError:
                chunk = b""
            if not chunk:
                return None
            self.cutter.receive(chunk)
        return parse(frame)

    def ask(self, text: str, *parameters: Value) -> Any:
        """Return the answer: a value, a list, rows, or an error; None also if the connection has ended."""
        self.send(encode_statement(Statement(text, parameters)))
        return to_python(self.message())

    def chunks(self, text: str, *parameters: Value) -> list[RowsetChunk]:
        """Return an answer in chunks."""
        self.send(encode_statement(Statement(text, parameters)))
        found = []
        while not isinstance(message := self.message(), ChunksEnd):
            assert isinstance(message, RowsetChunk), message
            found.append(message)
        return found

    def listen(self, text: str, port: int, tls: ssl.SSLContext | None = None) -> Peer:
        """Send the first LISTEN; return the pub/sub connection."""
        ticket = self.ask(text)
        assert isinstance(ticket, PubSubOffer), ticket
        return pauth(port, ticket, tls)

    def notifications(self, count: int = 1) -> list[Any]:
        """Return the next notifications, parsed as JSON."""
        return [json.loads(json_text(self.message())) for _ in range(count)]


def pauth(port: int, ticket: PubSubOffer, tls: ssl.SSLContext | None = None) -> Peer:
    peer = Peer(port, tls)
    peer.send(encode_text(ticket.octets))
    assert to_python(peer.message()) == "OK"
    return peer


def writer(server: SqliteCloudServer, tls: ssl.SSLContext | None = None) -> Peer:
    peer = Peer(server.port, tls)
    assert peer.ask("USE DATABASE shop.db") == "OK"
    return peer


def json_text(message: Message | None) -> bytes:
    match message:
        case JsonText(octets):
            return octets
        case Single(str() as text):
            return text.encode()
    raise AssertionError(f"no notification: {message}")


def to_python(message: Message | None) -> Any:
    match message:
        case Single(value):
            return value
        case Array(items):
            return list(items)
        case Rowset():
            return message.rows
        case ServerError():
            return (message.code, message.text)
    return message
