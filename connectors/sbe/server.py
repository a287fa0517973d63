"""Simulated source of SBE messages over TCP: sends the changes of a simulated market to every client.

Runs in a thread of its own, independently of the caller::

    with MarketServer.start(framing=FRAMINGS["sofh"]) as server:
        server.change()

A client first receives the securities and the levels of the books, then every message. A client that does not read is
dropped.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Self

import structlog

from silverfold.connectors.common.server_thread import Server, listen
from silverfold.connectors.sbe.protocol.schemas import BUILTIN, feed_schema
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.model import Schema

SECURITIES: Final = {"ACME": "Acme Anvils", "BOLT": "Bolt & Nut", "CRUX": "Crux Climbing", "DUNE": "Düne Sand"}
_DEPTH = 5
_MOST_ENTRIES = 6
_TRADES = 0.3
_TICK = 100
_START = 1_000_000
_SIDES = ("Bid", "Offer")


class Update(NamedTuple):
    """One message."""

    body: bytes
    changes: int
    """Number of entries of a book update; 1 for a trade."""


class _Level(NamedTuple):
    security: int
    side: str
    level: int


class Market:
    """A market that changes, message by message.

    Args:
        clock: Nanoseconds since 1970.
    """

    def __init__(self, schema: Schema, *, seed: int, clock: Callable[[], int]) -> None:
        self._schema, self._clock = schema, clock
        self._rng = Random(seed)  # noqa: S311 - repeatable, not secret
        self._book: dict[_Level, dict[str, Any]] = {}
        self._trades = 0

    def greeting(self) -> Iterator[bytes]:
        """Yield the first messages of a connection: the securities, then the current levels, as new."""
        for number, (symbol, name) in enumerate(SECURITIES.items(), start=1):
            tick = {"mantissa": _TICK}
            yield self._encoded("Security", {"securityId": number, "symbol": symbol, "tick": tick, "fullName": name})
        if self._book:
            entries = [self._entry(at, "New") for at in self._book]
            yield self._encoded("BookUpdate", {"transactTime": self._clock(), "entries": entries})

    def change(self) -> Update:
        """Return the next message: a book update or a trade."""
        if self._book and self._rng.random() < _TRADES:
            return Update(self._trade(), 1)
        entries = self._entries()
        body = self._encoded("BookUpdate", {"transactTime": self._clock(), "entries": entries})
        return Update(body, len(entries))

    def _entries(self) -> list[dict[str, Any]]:
        """Change distinct levels and return their entries."""
        levels = [_Level(n + 1, side, at) for n in range(len(SECURITIES)) for side in _SIDES for at in range(_DEPTH)]
        return [self._changed(at) for at in self._rng.sample(levels, self._rng.randint(1, _MOST_ENTRIES))]

    def _changed(self, at: _Level) -> dict[str, Any]:
        if at not in self._book:
            self._book[at] = self._quote(at)
            return self._entry(at, "New")
        if self._rng.random() < 1 / 3:
            deleted = self._entry(at, "Delete")
            del self._book[at]
            return deleted
        self._book[at] = self._quote(at)
        return self._entry(at, "Change")

    def _quote(self, at: _Level) -> dict[str, Any]:
        away = (at.level + 1) * _TICK * (-1 if at.side == "Bid" else 1) + self._rng.randrange(_TICK)
        orders = self._rng.choice([None, 1, 2, 5])
        return {"price": {"mantissa": at.security * _START + away}, "size": self._rng.randint(1, 500), "orders": orders}

    def _entry(self, at: _Level, action: str) -> dict[str, Any]:
        named = {"securityId": at.security, "side": at.side, "level": at.level, "action": action}
        return {**named, **self._book[at]}

    def _trade(self) -> bytes:
        self._trades += 1
        at = self._rng.choice(list(self._book))
        quote = self._book[at]
        values = {
            "transactTime": self._clock(),
            "tradeId": self._trades,
            "securityId": at.security,
            "aggressor": self._rng.choice(_SIDES),
            "price": quote["price"],
            "size": self._rng.randint(1, quote["size"]),
            "conditions": {name for name in ("opening", "block", "late") if self._rng.random() < 1 / 8},
            "note": self._rng.choice(["", "", "", "négocié"]),
        }
        return self._encoded("Trade", values)

    def _encoded(self, name: str, values: Mapping[str, Any]) -> bytes:
        return encode(self._schema, name, values)


MOST_UNSENT: Final = 4 << 20
"""Maximum number of unsent bytes before a client is dropped because it does not read."""


class MarketServer(Server):
    """A running server and context manager. All methods may be called from any thread."""

    def __init__(self, listening: socket.socket, market: Market, schema: Schema, framing: Framing) -> None:
        super().__init__(listening, name="sbe-server")
        self._market, self._schema, self._framing = market, schema, framing
        self._clients: dict[asyncio.StreamWriter, FrameWriter] = {}
        self._log = structlog.get_logger("sbe.server")

    @classmethod
    def start(
        cls,
        port: int = 0,
        *,
        framing: Framing,
        host: str = "127.0.0.1",
        seed: int = 0,
        clock: Callable[[], int] = time.time_ns,
    ) -> Self:
        """Return a server that listens on a TCP port, 0 for any free one.

        Args:
            framing: Framing of messages. Each change is one message, in a packet of its own if the framing has packets.
            host: Address to listen on; the default serves this machine only. There is no authentication.
            seed: Seed of the market: the same seed gives the same sequence of messages.
            clock: Nanoseconds since 1970, for the times in messages.

        Raises:
            SourceUnavailable: The server cannot listen on the port.
        """
        schema = feed_schema(BUILTIN)
        return cls(listen(host, port), Market(schema, seed=seed, clock=clock), schema, framing)._start()

    @property
    def client_count(self) -> int:
        """Number of connected clients."""
        return len(self._clients)

    def change(self) -> int:
        """Generate one message and send it to every client; return its number of changes."""

        async def changed() -> int:
            update = self._market.change()
            for client, writer in list(self._clients.items()):
                self._send(client, writer.write([update.body]))
            return update.changes

        return self._wait_for(changed())

    def disconnect_all(self) -> None:
        """Abort the connections of all clients, and wait until they are closed. Clients may reconnect."""

        async def disconnected() -> None:
            for client in list(self._clients):
                client.transport.abort()
            while self._clients:
                await asyncio.sleep(0)

        self._wait_for(disconnected())

    async def _open(self) -> None:
        self._accepting = await asyncio.start_server(self._serve, sock=self._listening[0])

    async def _shut(self) -> None:
        self._accepting.close()
        for client in self._clients:
            client.close()  # buffered data is still sent

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        writer = FrameWriter(self._framing, byte_order=self._schema.byte_order)
        peer = client.get_extra_info("peername")
        self._log.info("client_connected", client=f"{peer[0]}:{peer[1]}")
        self._send(client, writer.write(list(self._market.greeting())))
        self._clients[client] = writer
        try:
            while await reader.read(1 << 12):  # data from clients is ignored
                pass
        except OSError as error:
            self._log.info("client_broke", client=f"{peer[0]}:{peer[1]}", reason=str(error))
        finally:
            del self._clients[client]
            client.close()

    def _send(self, client: asyncio.StreamWriter, octets: bytes) -> None:
        client.write(octets)
        if client.transport.get_write_buffer_size() > MOST_UNSENT:
            self._log.warning("client_dropped", reason="it does not read")
            client.transport.abort()
