"""World of SBE: a market's messages over TCP or in a file, feed settings, and the expected silver."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.common.server_thread import listen
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.options import SbeOptions, SbeTable
from silverfold.connectors.sbe.server.server import MarketServer
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from tests.matrix.connectors.sbe_market import BAD, NEWEST, OLDER, TEXT, SentMessage, WildMarket
from tests.matrix.connectors.space import Choice, Settings, Space
from tests.matrix.connectors.world import FEED, HISTORY, HISTORY_LAW, RULES, SWIFT, Expected, Row, World, expect, split
from tests.matrix.oracle import Rule

_KEYED = ("book", "upserts", "last", "securities")
_OF_TRADES = ("last", "trades")

SPACE = Space(
    feed={
        "place": ("tcp", "file"),
        "framing": ("sofh", "b3", "coinbase-market-data", "memx", "coinbase-orders", "deephaven", "packed"),
        # versions of the messages; upgrade: the schema is replaced by its next version, then the writer follows
        "versions": ("same", "older", "mixed", "newer", "upgrade"),
        "notes": ("good", "bad"),
        "max_message": ("any", "8192"),
    },
    table={
        # states: price levels by operation or by last message; securities; the last trade of each security
        "kind": ("book", "upserts", "last", "securities", "trades", "entries", "messages"),
        "lists": ("names", "listed", "deletes-update"),
        "with": ("all", "none"),
        "groups": ("arrays", "omit"),
        "decimals": ("no", "yes"),
        "timestamps": ("no", "yes"),
        "sets": ("names", "integer"),
        "text": ("strict", "replace"),
        "on_bad_frame": ("hold", "skip"),
        "on_unexplained": ("count", "error"),
        "history": HISTORY,
        "rules": RULES,
    },
    laws=(
        HISTORY_LAW,
        ("only a state has rules and history", lambda c: _is_state(c) or (c["rules"], c["history"]) == ("none", "1")),
        ("only books have operations", lambda c: c["kind"] == "book" or c["lists"] == "names"),
        ("only entries are enclosed", lambda c: c["kind"] in ("book", "upserts", "entries") or c["with"] == "all"),
        ("only whole messages have groups inside", lambda c: c["kind"] == "messages" or c["groups"] == "arrays"),
        ("only trades have sets", lambda c: c["kind"] in _OF_TRADES or c["sets"] == "names"),
        ("over TCP all levels are told again, as new ones", lambda c: c["on_unexplained"] == "count" or _explains(c)),
        (
            "text that is none holds a table, unless it is replaced or left out",
            lambda c: c["notes"] == "good" or _is_read(c),
        ),
        ("packed messages are as long as the schema knows", lambda c: c["framing"] != "packed" or _is_known(c)),
    ),
)

_RULES = {
    "book": Rule("size < 400", lambda row: row["size"] < 400),
    "upserts": Rule("side = 'Bid'", lambda row: row["side"] == "Bid"),
    "last": Rule("size <> 1 AND aggressor = 'Bid'", lambda row: row["size"] != 1 and row["aggressor"] == "Bid"),
    "securities": Rule("symbol <> 'BOLT'", lambda row: row["symbol"] != "BOLT"),
}
_TEMPLATES = {"last": "Trade", "securities": "Security", "trades": "Trade"}
_KEYS = {"last": ("securityId",), "securities": ("securityId",)}
_LEVEL = ("securityId", "side", "level")
_LISTS = {
    "names": {},
    "listed": {"inserts": ["New"], "updates": ["Change"], "deletes": ["Delete"]},
    "deletes-update": {"inserts": ["New"], "updates": ["Change", "Delete"]},
}
_OPS = {"New": "insert", "Change": "update", "Delete": "delete"}
_CHOICES = ("opening", "block", "late")
_FIRST_VERSION = {"older": 0, "upgrade": 0, "same": 1, "newer": NEWEST, "mixed": None}


def _is_state(c: Choice) -> bool:
    return c["kind"] in _KEYED


def _explains(c: Choice) -> bool:
    return (c["kind"], c["place"]) == ("book", "file") and c["lists"] != "deletes-update"


def _is_read(c: Choice) -> bool:
    return c["text"] == "replace" or c["on_bad_frame"] == "skip" or c["kind"] not in _OF_TRADES


def _is_known(c: Choice) -> bool:
    return c["versions"] in ("same", "older", "mixed")


class _RowChange(NamedTuple):
    """A row as sent in one message."""

    op: str
    row: Row
    """The columns in the message."""


class SbeWorld(World):
    """A market that sends to one receiver, or writes to a file."""

    def __init__(self, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__(CONNECTOR, folder, settings, rng)
        chosen = settings.feed
        self._versions, self._upgraded, self._upgraded_at = chosen["versions"], False, 0
        self.market = WildMarket(rng, version=_FIRST_VERSION[self._versions], bad_notes=chosen["notes"] == "bad")
        self._framing = FRAMINGS[chosen["framing"]]
        self._schema = folder / "schema.xml"
        if self._versions == "upgrade":
            self._schema.write_text(OLDER)
        self._file, self._unwritten = folder / "stream", b""
        self._writer = FrameWriter(self._framing)
        self._server: MarketServer | None = None
        if chosen["place"] == "tcp":
            listening = listen("127.0.0.1", 0)
            self._server = MarketServer(listening, self.market, self.market.newest, self._framing)._start()
            self.enter_context(self._server)
        else:
            self._file.touch()
            self._write(*self.market.greeting())

    @property
    def feed(self) -> Feed:
        """See `World.feed`."""
        chosen = self.settings.feed
        options = {
            "schema": str(self._schema) if self._versions == "upgrade" else "builtin",
            "framing": chosen["framing"],
            **({} if chosen["max_message"] == "any" else {"max_message": int(chosen["max_message"])}),
        }
        address = f"file:{self._file}" if self._server is None else f"127.0.0.1:{self._server.port}"
        tables = {name: validated(SbeTable, _table(choice), file="test") for name, choice in self.chosen.items()}
        return Feed(FEED, "sbe", address, validated(SbeOptions, options, file="test"), tables, **SWIFT)

    def change(self) -> None:
        """Send some messages."""
        for _ in range(self.rng.randint(1, 5)):
            if self._server is None:
                self._write(self.market.change().body)
            else:
                self._connected()
                self._server.change()

    def disturb(self) -> None:
        """Break the connection, stop the receiver or let it die, or install the next schema version."""
        if self._versions == "upgrade" and not self._upgraded and self.rng.random() < 0.6:
            self._upgrade()
        elif self._server is None and self.rng.random() < 0.5:
            self.let_die(self.change)
        elif self._server is not None and self.rng.random() < 0.6:
            self._server.disconnect_all()
        else:
            self._settle()
            self._restart()

    def rest(self) -> None:
        """See `World.rest`. Afterwards each table has the columns of the schema's next version."""
        if self._versions == "upgrade":
            if not self._upgraded:
                self._upgrade()
            while not any(message.name == "Trade" for message in self.market.sent[self._upgraded_at :]):
                self.change()
        self._settle()

    def _settle(self) -> None:
        """Wait until all messages have landed; assert that each landed once."""
        self._write()
        if self._server is not None:
            self._connected()
        self.wait_until(lambda: self._count() >= len(self.market.sent), "all messages")
        assert self._count() == len(self.market.sent)

    def expected(self, table: str) -> Expected:
        """See `World.expected`."""
        choice = self.chosen[table]
        kind, known = choice["kind"], [message for message in self.market.sent if not _is_left_out(message, choice)]
        if kind not in _KEYED:
            rows = [_whole(change.row, kind, choice) for message in known for change in _rows_of(message, choice)]
            return Expected(rows, ignored=("_position", "_ordinal"))
        state = _folded((change for message in known for change in _rows_of(message, choice)), _KEYS.get(kind, _LEVEL))
        rows = [_whole(row, kind, choice) for row in state.values()]
        if kind == "book" and choice["lists"] != "deletes-update" and self._server is None:
            assert state.keys() == self.market.levels.keys()
            assert all(state[at]["size"] == quote["size"] for at, quote in self.market.levels.items())
        silver, side_rows = split(rows, choice, _RULES[kind].met)
        return Expected(silver, side_rows, history=choice["history"] == "2")

    def _connected(self) -> None:
        server = self._server
        assert server is not None
        self.wait_until(lambda: server.client_count == 1, "the receiver")

    def _restart(self) -> None:
        self.stop()
        if (server := self._server) is not None:
            self.wait_until(lambda: server.client_count == 0, "the end of the connection")
        self.receive()

    def _upgrade(self) -> None:
        """Replace the schema by its next version, then switch the writer to it."""
        self._settle()
        new = self.folder / "next.xml"
        new.write_text(TEXT)
        new.replace(self._schema)
        self.market.version, self._upgraded, self._upgraded_at = 1, True, len(self.market.sent)
        self._restart()

    def _write(self, *bodies: bytes) -> None:
        """Append messages to the file; part of the last one may be deferred to the next call."""
        octets = self._unwritten + self._writer.write(list(bodies))
        withheld = self.rng.randrange(1, 9) if bodies and self.rng.random() < 0.3 else 0
        with self._file.open("ab") as file:
            file.write(octets[: len(octets) - withheld])
        self._unwritten = octets[len(octets) - withheld :]

    def _count(self) -> int:
        return sum(frame.kind == "data" for frame in self.landed())


def _table(choice: Choice) -> dict[str, Any]:
    kind = choice["kind"]
    settings: dict[str, Any] = {
        "template": _TEMPLATES.get(kind, "BookUpdate"),
        "decimals": choice["decimals"] == "yes",
        "timestamps": choice["timestamps"] == "yes",
        **{name: choice[name] for name in ("groups", "sets", "text", "on_bad_frame", "on_unexplained")},
        "stored_as_scd_type": int(choice["history"]),
    }
    if kind in ("book", "upserts", "entries"):
        settings["group"] = "entries"
        settings |= {"with": []} if choice["with"] == "none" else {}
    if kind in _KEYED:
        settings |= {"keys": list(_KEYS.get(kind, _LEVEL)), "expect": expect(choice, _RULES[kind])}
    return settings | ({"operation": "action", **_LISTS[choice["lists"]]} if kind == "book" else {})


def _is_left_out(message: SentMessage, choice: Choice) -> bool:
    if message.name != _TEMPLATES.get(choice["kind"], "BookUpdate"):
        return True
    return message.is_bad and choice["text"] == "strict"


def _rows_of(message: SentMessage, choice: Choice) -> Iterator[_RowChange]:
    """Yield the rows in a message, each with the columns of the message's version."""
    kind, values = choice["kind"], message.values
    if kind in ("trades", "last"):
        yield _RowChange("update", _trade(message, choice))
    elif kind == "securities":
        yield _RowChange("update", {**values, "tick": _price(values["tick"], choice)})
    elif kind == "messages":
        entries = [{"orders": None, **_entry(entry, message, choice)} for entry in values["entries"]]
        inside = {"entries": entries} if choice["groups"] == "arrays" else {}
        yield _RowChange("insert", {"transactTime": _time(values["transactTime"], choice), **inside})
    else:
        around = {"transactTime": _time(values["transactTime"], choice)} if choice["with"] == "all" else {}
        for entry in values["entries"]:
            op = _OPS[entry["action"]] if kind == "book" else "update"
            is_update = op == "delete" and choice["lists"] == "deletes-update"
            yield _RowChange("update" if is_update else op, {**around, **_entry(entry, message, choice)})


def _folded(every: Iterator[_RowChange], keys: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    state: dict[tuple[Any, ...], Row] = {}
    for op, row in every:
        key = tuple(row[name] for name in keys)
        if op == "delete":
            state.pop(key, None)
        else:
            state[key] = {**(state.get(key, {}) if op == "update" else {}), **row}
    return state


def _whole(row: Row, kind: str, choice: Choice) -> Row:
    """Return a row with NULL in columns never sent."""
    later = {"trades": "note", "last": "note", "book": "orders", "upserts": "orders", "entries": "orders"}.get(kind)
    return row if later is None else {later: None, **row}


def _entry(entry: Row, message: SentMessage, choice: Choice) -> Row:
    row = {**entry, "price": _price(entry["price"], choice)}
    if message.version < 1:
        del row["orders"]
    return row


def _trade(message: SentMessage, choice: Choice) -> Row:
    values = dict(message.values)
    names = sorted(values["conditions"])
    bits = sum(1 << _CHOICES.index(name) for name in names)
    row = {
        **values,
        "transactTime": _time(values["transactTime"], choice),
        "tradeId": Decimal(values["tradeId"]),
        "price": _price(values["price"], choice),
        "conditions": names if choice["sets"] == "names" else bits,
    }
    if message.version < 1:
        del row["note"]
    elif message.is_bad:
        row["note"] = BAD.decode().replace("é", "\ufffd\ufffd")
    return row


def _price(price: Row, choice: Choice) -> Any:
    if choice["decimals"] == "yes":
        return Decimal(price["mantissa"]).scaleb(-4)
    return {"mantissa": price["mantissa"], "exponent": -4}


def _time(nanoseconds: int, choice: Choice) -> Any:
    if choice["timestamps"] == "yes":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return Decimal(nanoseconds)
