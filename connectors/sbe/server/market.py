"""A simulated market whose messages are Simple Binary Encoding: securities, book updates and trades."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

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
