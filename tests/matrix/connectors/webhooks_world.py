"""World of webhooks: a vendor that posts changes of a table of orders, feed settings, and the expected silver."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from silverfold.conf.errors import SourceRefused
from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import Op
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.server.orders import DATABASE, KEY, TABLE, Orders
from silverfold.connectors.sqlitecloud_webhooks.server.source import WebhookSource
from tests.matrix.connectors.space import Choice, Settings, Space
from tests.matrix.connectors.world import FEED, HISTORY, HISTORY_LAW, RULES, SWIFT, Expected, Row, World, expect, split
from tests.matrix.oracle import Rule
from tests.support.sqlitecloud.webhooks import free_port

SPACE = Space(
    feed={
        "signed": ("no", "plain", "hex", "base64"),
        "path": ("/", "/hooks/a+b;c=1"),
        "insert_absent": ("null", "keep", "error"),
        "inserts": ("whole", "partial"),
        "blob": ("base64", "hex", "text"),
        # again: requests are posted twice, and existing rows are inserted again
        "again": ("no", "yes"),
        "dies": ("no", "yes"),
        "columns": ("same", "come up"),
    },
    table={
        "keys": ("id", "id+region"),
        "types": ("exact", "numbers", "keys alone"),
        "on_unexplained": ("count", "error"),
        "history": HISTORY,
        "rules": RULES,
    },
    laws=(
        HISTORY_LAW,
        (
            "an insert that lacks a column may hold its table",
            lambda c: c["insert_absent"] != "error" or c["inserts"] == "whole",
        ),
        (
            "what comes again is of rows that are there",
            lambda c: c["on_unexplained"] == "count" or (c["again"], c["dies"]) == ("no", "no"),
        ),
        (
            "an insert that keeps what it lacks may be over a row",
            lambda c: c["on_unexplained"] == "count" or c["insert_absent"] != "keep" or c["inserts"] == "whole",
        ),
    ),
)

_SECRET, _VARIABLE, _HEADER = "s3same ö", "SILVERFOLD_TESTS_HOOK", "X-Signature"
_SIGNED = {
    "plain": {"scheme": "plain", "prefix": "Bearer "},
    "hex": {"scheme": "hmac-sha256", "encoding": "hex"},
    "base64": {"scheme": "hmac-sha256", "encoding": "base64", "prefix": "sha256="},
}
_KEY_TYPES = {"id": "bigint", "region": "string"}
_TYPES: Mapping[str, Mapping[str, str]] = {
    "exact": {"customer": "string", "amount": "decimal(10, 2)", "paid": "boolean", "note": "string", "body": "binary"},
    "numbers": {"amount": "double", "paid": "bigint", "body": "string"},
    "keys alone": {},
}
_RULE = Rule("paid IS NULL OR CAST(paid AS INT) = 1", lambda row: row["paid"] is None or int(row["paid"]) == 1)
_NOTES = (None, "", "it's", "${x}", "\0", "\U0001d11e", "31/12/2024", "\n", "x" * 500)
_AMOUNTS = (None, 0, -1, 0.1, -99999999.99, 12.5, 7)
_BODIES = (b"", b"\0", b"it's", b"x" * 100)
_WILD_BODIES = (b"\xff\xfe", b"\x80")
_LATER = ("Label", "unit price")


class _PostedChange(NamedTuple):
    """One posted change."""

    op: Op
    row: Row


class WildOrders(Orders):
    """The simulator's orders, with nasty values, several rows per webhook, and partial rows.

    Args:
        names: Initial columns, besides the key.
    """

    def __init__(self, rng: Random, choice: Choice, action: str) -> None:
        super().__init__(seed=rng.randrange(1 << 30), action=action)
        self._wild, self._choice, self._later = Random(rng.random()), choice, list[str]()
        self.posted: list[_PostedChange] = []

    def change(self) -> bytes:
        """Change rows; return the body."""
        if self._choice["columns"] == "come up" and len(self.posted) > 10 and self._wild.random() < 0.1:
            self._later = list(_LATER)
        if self.rows and self._choice["again"] == "yes" and self._wild.random() < 0.15:
            return self._inserted([self._wild.choice(list(self.rows))])
        return super().change()

    def _insert(self) -> bytes:
        count = self._wild.choice([1, 1, 3])
        self._last += count
        return self._inserted(range(self._last - count + 1, self._last + 1))

    def _inserted(self, keys: range | list[int]) -> bytes:
        rows = [self._random_fields() for _ in keys]
        names = list(rows[0])
        if self._choice["inserts"] == "partial" and (self.posted or self._choice["columns"] == "come up"):
            names = self._wild.sample(names, self._wild.randint(0, len(names)))
        sent = [{**_keys(key), **{name: row[name] for name in names}} for key, row in zip(keys, rows, strict=True)]
        for row in sent:
            self.rows[row[KEY]] = row
        return self._body("insert", sent)

    def _update(self, key: int) -> bytes:
        drawn = self._random_fields()
        names = self._wild.sample(list(drawn), self._wild.randint(1, len(drawn)))
        sent = {**_keys(key), **{name: drawn[name] for name in names}}
        self.rows[key] = {**self.rows[key], **sent}
        return self._body("update", [sent])

    def _delete(self, key: int) -> bytes:
        del self.rows[key]
        return self._body("delete", [_keys(key)])

    def _random_fields(self) -> Row:
        bodies = (*_BODIES, *(() if self._choice["blob"] == "text" else _WILD_BODIES))
        return {
            **super()._random_fields(),
            "note": self._wild.choice(_NOTES),
            "amount": self._wild.choice(_AMOUNTS),
            "body": self._wild.choice([None, *bodies]),
            **{name: self._wild.choice([None, "x", 5]) for name in self._later},
        }

    def _body(self, op: Op, rows: list[Row]) -> bytes:
        self.posted += [_PostedChange(op, row) for row in rows]
        values = [[self._json_value(value) for value in row.values()] for row in rows]
        sent: dict[str, Any] = {"type": op, "database": DATABASE, "table": TABLE, "column": list(rows[0])}
        sent["data"] = values[0] if len(values) == 1 and self._wild.random() < 0.5 else values
        return json.dumps(sent, ensure_ascii=self._wild.random() < 0.5).encode()

    def _json_value(self, value: Any) -> Any:
        return blob_text(value, self._choice["blob"]) if isinstance(value, bytes) else value


class WebhooksWorld(World):
    """A vendor and the receiver of its webhooks."""

    def __init__(self, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__(CONNECTOR, folder, settings, rng)
        self._port = free_port()
        patch = pytest.MonkeyPatch()
        self.callback(patch.undo)
        patch.setenv(_VARIABLE, _SECRET)
        self._orders = WildOrders(rng, settings.feed, self._url)
        self._vendor, self._stranger = self._source(_SECRET), self._source("guessed")
        self._vendor.orders = self._orders

    @property
    def feed(self) -> Feed:
        """See `World.feed`."""
        chosen = self.settings.feed
        options: dict[str, Any] = {name: chosen[name] for name in ("path", "insert_absent", "blob")}
        if chosen["signed"] == "no":
            options["insecure"] = True
        else:
            options |= {"secret": {"env": _VARIABLE}, "header": _HEADER, **_SIGNED[chosen["signed"]]}
        tables = {name: validated(WebhookTable, _table(choice), file="test") for name, choice in self.chosen.items()}
        feed_options = validated(WebhookOptions, {"database": DATABASE, **options}, file="test")
        return Feed(FEED, "sqlitecloud_webhooks", f"127.0.0.1:{self._port}", feed_options, tables, **SWIFT)

    def change(self) -> None:
        """Post some webhooks."""
        for _ in range(self.rng.randint(1, 3)):
            body = self._orders.change()
            for _ in range(2 if self.settings.feed["again"] == "yes" and self.rng.random() < 0.3 else 1):
                self._vendor.post(body)

    def disturb(self) -> None:
        """Post changes of unknown tables or invalid requests; stop the receiver, or let it die."""
        drawn = self.rng.random()
        if drawn < 0.3:
            self._vendor.post(json.dumps({"type": "delete", "database": "other", "table": TABLE}).encode())
            self._vendor.post(b"{not json")
        elif drawn < 0.5 and self.settings.feed["signed"] != "no":
            with pytest.raises(SourceRefused):
                self._stranger.post(self._orders._webhook("delete", {KEY: 1}))
        elif drawn < 0.8 and self.settings.feed["dies"] == "yes":
            self._die()
        else:
            self.stop()
            self.receive()

    def rest(self) -> None:
        """See `World.rest`: accepted webhooks have landed already."""

    def expected(self, table: str) -> Expected:
        """See `World.expected`."""
        choice = self.chosen[table]
        state = self._folded()
        if self.settings.feed["insert_absent"] != "keep":
            held = {key: dict.fromkeys(self._columns()) | row for key, row in self._orders.rows.items()}
            assert held == state, "the vendor's own table"
        rows = [self._silver(row, choice) for row in state.values()]
        silver, side_rows = split(rows, choice, _RULE.met)
        return Expected(silver, side_rows, history=choice["history"] == "2")

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self.settings.feed['path']}"

    def _source(self, secret: str) -> WebhookSource:
        signed = self.settings.feed["signed"]
        signing = None if signed == "no" else Signing(_HEADER, **_SIGNED[signed])
        source = WebhookSource(self._url, signing=signing, secret=secret, seed=0, stopped_within=_soon, patience=1_000)
        return self.enter_context(source)

    def _die(self) -> None:
        """Let the receiver die at the commit of a webhook, which is posted again until the next receiver accepts it."""
        posting = threading.Thread(target=self._vendor.post, args=(self._orders.change(),))
        self.let_die(posting.start)
        posting.join()

    def _columns(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for change in self._orders.posted for name in change.row))

    def _folded(self) -> dict[int, Row]:
        """Return the rows that result from the posted changes."""
        state: dict[int, Row] = {}
        retains_absent, blank = self.settings.feed["insert_absent"] == "keep", dict.fromkeys(self._columns())
        for op, row in self._orders.posted:
            if op == "delete":
                state.pop(row[KEY], None)
            else:
                before = state.get(row[KEY], {}) if op == "update" or retains_absent else {}
                state[row[KEY]] = {**blank, **before, **row}
        return state

    def _silver(self, row: Row, choice: Choice) -> Row:
        kinds = _kinds(choice)
        blank = dict.fromkeys(kinds)
        typed = {name: self._cell(kinds.get(name, "string"), value) for name, value in row.items()}
        return {**blank, **typed}

    def _cell(self, kind: str, value: Any) -> Any:
        if value is None:
            return None
        if kind.startswith("decimal"):
            return Decimal(repr(value)).quantize(Decimal("0.01"))
        if isinstance(value, bytes) and kind != "binary":
            return blob_text(value, self.settings.feed["blob"])
        convert: dict[str, Callable[[Any], Any]] = {"double": float, "boolean": bool, "string": _text}
        return convert.get(kind, lambda same: same)(value)


def _soon(_seconds: float) -> bool:
    """Wait briefly instead of the given time; the vendor is never stopped."""
    time.sleep(0.02)
    return False


def blob_text(value: bytes, form: str) -> str:
    """Return a blob as encoded in a webhook."""
    if form == "text":
        return value.decode()
    return value.hex() if form == "hex" else base64.b64encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _keys(key: int) -> Row:
    return {KEY: key, "region": f"r{key % 3}'"}


def _kinds(choice: Choice) -> dict[str, str]:
    keys = {"region": "string"} if choice["keys"] == "id" else {}
    return {**_KEY_TYPES, **keys, **_TYPES[choice["types"]]}


def _table(choice: Choice) -> dict[str, Any]:
    return {
        "source": TABLE,
        "keys": choice["keys"].split("+"),
        "types": _kinds(choice),
        "on_unexplained": choice["on_unexplained"],
        "stored_as_scd_type": int(choice["history"]),
        "expect": expect(choice, _RULE),
    }
