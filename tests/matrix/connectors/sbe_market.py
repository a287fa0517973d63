"""The simulator's market with nasty values, messages of several versions, and a record of all sent messages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from random import Random
from typing import Any, NamedTuple

from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

NEWEST = 2
TEXT = (files("silverfold.connectors.sbe") / "market.xml").read_text(encoding="utf-8")
"""Version 1."""

_ORDERS = '<field name="orders" id="17" type="Count" sinceVersion="1"/>'
_NOTE = '<data name="note" id="23" type="varStringEncoding" sinceVersion="1"/>'
_CONDITIONS = '<field name="conditions" id="22" type="Conditions"/>'

OLDER = TEXT.replace('version="1"\n', 'version="0"\n').replace(_ORDERS, "").replace(_NOTE, "")
NEWER = (
    TEXT.replace('version="1"\n', 'version="2"\n')
    .replace(_ORDERS, _ORDERS + '<field name="venue" id="18" type="uint32" sinceVersion="2"/>')
    .replace(_CONDITIONS, _CONDITIONS + '<field name="fee" id="24" type="int64" sinceVersion="2"/>')
    .replace(_NOTE, _NOTE + '<data name="more" id="25" type="varStringEncoding" sinceVersion="2"/>')
)

TIMES = (0, 1, 999, 1_700_000_000_123_456_789, 1_700_000_000_123_456_000, 2**64 - 2)
_MANTISSAS = (0, -1, 2**63 - 1, 1 - 2**63)
_SIZES = (1, 399, 400, 2**32 - 2)
_NOTES = ("", "négocié", "\0", "it's", "${x}", "\U0001d11e", "x" * 300, "\n")
BAD, UNREADABLE = "négo".encode(), b"n\xff\xfego"


class SentMessage(NamedTuple):
    """One message, by its values before encoding."""

    name: str
    values: Mapping[str, Any]
    version: int
    is_bad: bool
    """Its text cannot be decoded."""


class WildMarket(Market):
    """A market that records its messages.

    Args:
        version: Version of the messages; None for 0 or 1 at random.
        bad_notes: Some notes are not decodable text.
    """

    def __init__(self, rng: Random, *, version: int | None, bad_notes: bool) -> None:
        self.newest: Schema = load_schema(NEWER.encode(), file="newer")
        super().__init__(self.newest, seed=rng.randrange(1 << 30), clock=lambda: self._wild.choice(TIMES))
        self._wild, self.version, self._bad_notes = Random(rng.random()), version, bad_notes
        self.sent: list[SentMessage] = []

    @property
    def levels(self) -> Mapping[tuple[int, str, int], Mapping[str, Any]]:
        """The current books."""
        return {tuple(at): quote for at, quote in self._book.items()}

    def _quote(self, at: Any) -> dict[str, Any]:
        quote = super()._quote(at)
        if self._wild.random() < 0.3:
            quote["price"] = {"mantissa": self._wild.choice(_MANTISSAS)}
        if self._wild.random() < 0.5:
            quote |= {"size": self._wild.choice(_SIZES), "orders": self._wild.choice([None, 0, 65534])}
        return quote

    def _encoded(self, name: str, values: Mapping[str, Any]) -> bytes:
        version = self._wild.choice([0, 1]) if self.version is None else self.version
        fields, bad = dict(values), False
        if name == "Trade":
            fields["note"] = self._wild.choice(_NOTES)
            bad = self._bad_notes and version > 0 and self._wild.random() < 0.3
            fields |= {"note": BAD.decode()} if bad else {}
        body = encode(self.newest, name, {**fields, **_newest_values(name, fields, self._wild)}, version=version)
        self.sent.append(SentMessage(name, fields, version, bad))
        return body.replace(BAD, UNREADABLE) if bad else body


def _newest_values(name: str, fields: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    """Return the fields that version 2 adds."""
    if name == "BookUpdate":
        return {"entries": [{**entry, "venue": rng.randrange(9)} for entry in fields["entries"]]}
    return {"fee": -1, "more": "?"} if name == "Trade" else {}
