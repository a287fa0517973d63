"""World of SQLite Cloud: a database server, feed settings, and the expected silver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import apsw

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from tests.matrix.connectors.history import normalized
from tests.matrix.connectors.space import Choice, Settings, Space
from tests.matrix.connectors.sqlitecloud_work import DATABASE, KEYS, KINDS, SCHEMA, Work
from tests.matrix.connectors.world import FEED, HISTORY, HISTORY_LAW, RULES, SWIFT, Expected, Row, World, expect, split
from tests.matrix.oracle import Rule
from tests.support.sqlitecloud.live import reached, run
from tests.support.sqlitecloud.peer import Peer
from tests.support.sqlitecloud.same import stored

SPACE = Space(
    feed={
        "all_tables": ("no", "yes"),
        "capture": ("session", "hook-full", "hook-changed"),
        "words": ("new", "old", "mixed"),
        "old_key": ("changed", "always"),
        "update_columns": ("partial", "full"),
        "insert_absent": ("null", "error"),
        "nulls": ("null", "absent"),
        "blob": ("base64", "hex", "text"),
        "large": ("number", "text"),
        "fence": ("yes", "no"),
        "canary": ("0", "0.2"),
        "reconcile": ("never", "often"),
        "rows": ("any", "2 a frame", "3 a page"),
        "pacing": ("joined", "split"),
        "columns_later": ("same", "added"),
    },
    table={
        "of": ("artist", "pair", "tag", "channel"),
        "keys": ("told", "given"),
        "types": ("declared", "exact", "texts"),
        "on_unexplained": ("count", "error"),
        "history": HISTORY,
        "rules": RULES,
    },
    laws=(
        HISTORY_LAW,
        (
            "messages are only added",
            lambda c: (
                c["of"] != "channel"
                or (c["keys"], c["types"], c["on_unexplained"], c["history"], c["rules"])
                == ("told", "declared", "count", "1", "none")
            ),
        ),
        (
            "what an update does not carry is NULL only where it carries all",
            lambda c: (c["update_columns"] == "full") <= (c["capture"] == "hook-full"),
        ),
        (
            "a NULL that is left out is one only where all that is left out is NULL",
            lambda c: c["nulls"] == "null" or (c["update_columns"], c["insert_absent"]) == ("full", "null"),
        ),
    ),
)

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
"""Case folding of SQLite's NOCASE collation: ASCII letters only."""
_CHANNEL = "al;erts"
_PROBE = "probe"
_RULES = {
    "artist": Rule("n IS NULL OR CAST(n AS STRING) <> '-1'", lambda row: row["n"] not in (-1, "-1")),
    "pair": Rule("told IS NULL OR told <> 'it''s'", lambda row: row["told"] != "it's"),
    "tag": Rule("told IS NULL OR told <> 'it''s'", lambda row: row["told"] != "it's"),
}
_TYPES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("artist", "exact"): {"price": "decimal(20, 4)", "flag": "boolean"},
    ("artist", "texts"): {"n": "string", "x": "string"},
    ("pair", "texts"): {"nr": "string"},
    ("tag", "exact"): {"price": "decimal(20, 4)"},
}


class SqliteCloudWorld(World):
    """A database behind a server, and messages on a channel."""

    def __init__(self, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__(CONNECTOR, folder, settings, rng)
        self._path, self._spoken = folder / DATABASE, list[str]()
        with closing(apsw.Connection(str(self._path))) as connection:
            connection.execute(SCHEMA)
        exact = any(choice["types"] == "exact" for choice in self.chosen.values())
        self._work = Work(rng, exact=exact, ascii_blobs=settings.feed["blob"] == "text")
        self._is_wide = settings.feed["columns_later"] == "same"
        self._serve(0)
        self.callback(self._close)
        for _ in range(10):
            self._transact()

    @property
    def feed(self) -> Feed:
        """See `World.feed`."""
        chosen = self.settings.feed
        options = {
            "all_tables": chosen["all_tables"] == "yes",
            "fence": chosen["fence"] == "yes",
            "settle_seconds": 0.2,
            "canary_seconds": float(chosen["canary"]),
            "reconcile_hours": 3 / 3600 if chosen["reconcile"] == "often" else 0,
            **{name: chosen[name] for name in ("update_columns", "insert_absent", "blob")},
            **{"2 a frame": {"max_rows": 2}, "3 a page": {"page_rows": 3}}.get(chosen["rows"], {}),
        }
        tables = {name: validated(SqliteCloudTable, _table(each), file="test") for name, each in self.chosen.items()}
        address = f"{self._server.address(DATABASE)}&apikey=any"
        return Feed(FEED, "sqlitecloud", address, validated(SqliteCloudOptions, options, file="test"), tables, **SWIFT)

    @property
    def keeps_time(self) -> bool:
        """See `World.keeps_time`."""
        return self.settings.feed["reconcile"] == "often"

    def pause(self) -> None:
        """See `World.pause`."""
        self._await_messages()
        self.stop()

    def change(self) -> None:
        """Commit transactions, and send channel messages."""
        self._listened()
        for _ in range(self.rng.randint(1, 3)):
            self._transact()
            if self._channels and self.rng.random() < 0.5:
                self._say(self.rng.choice(["", "it's", "é\U0001d11e", "${x}", "x" * 400, '{"a": 1}']))

    def disturb(self) -> None:
        """Break connections, stop the receiver or let it die, restart the server, or add a column."""
        self._await_messages()
        drawn = self.rng.random()
        if not self._is_wide and drawn < 0.5:
            self._widen()
        elif drawn < 0.6:
            self._server.disconnect_listeners()
        elif drawn < 0.7:
            self._server.disconnect_all()
        elif drawn < 0.85 and not self._channels:
            self._restart()
        elif drawn < 0.95 and not self._channels:
            self.let_die(self._speak_up)
        else:
            self.stop()
            self.receive()

    def rest(self) -> None:
        """See `World.rest`. A timeout is ignored here: the comparison then fails.

        Notifications of changes that a snapshot already has may land after it, and set rows back for a moment: so wait
        for the last notification.
        """
        self._await_messages()
        try:
            self.wait_until(self._is_all_there, "all that the database holds")
            last = self._speak_up()
            self.wait_until(lambda: self._is_notified(last), "the last notifications")
            self.wait_until(self._is_all_there, "all that was notified")
        except AssertionError:
            return

    def expected(self, table: str) -> Expected:
        """See `World.expected`."""
        choice = self.chosen[table]
        if choice["of"] == "channel":
            messages = [{"payload": payload} for payload in self._spoken]
            return Expected(messages, ignored=("_position", "_ordinal", "sender"), shown=_without_probes)
        rows = list(self._silver(choice))
        silver, side_rows = split(rows, choice, _RULES[choice["of"]].met)
        return Expected(silver, side_rows, history=choice["history"] == "2")

    @property
    def _channels(self) -> bool:
        return any(choice["of"] == "channel" for choice in self.chosen.values())

    @property
    def _tables(self) -> list[str]:
        return [name for name, choice in self.chosen.items() if choice["of"] != "channel"]

    def _serve(self, port: int) -> None:
        chosen = self.settings.feed
        dialect = Dialect(
            words=Vocabulary(chosen["words"]),
            old_key=chosen["old_key"],  # type: ignore[arg-type]  # one of those it may be
            null=chosen["nulls"],  # type: ignore[arg-type]
            blob=chosen["blob"],  # type: ignore[arg-type]
            large_integers=chosen["large"],  # type: ignore[arg-type]
        )
        server_options = ServerOptions(
            capture=CaptureMode(chosen["capture"]), dialect=dialect, pacing=Pacing(chosen["pacing"]), chunk_bytes=500
        )
        self._server = SqliteCloudServer.start({DATABASE: self._path}, port, options=server_options)
        self._sessions = [self._server.own_session(DATABASE) for _ in range(2)]
        if self._channels:
            with Peer(self._server.port) as peer:
                assert peer.ask("CREATE CHANNEL ? IF NOT EXISTS;", _CHANNEL) == "OK"

    def _close(self) -> None:
        self._server.close()

    def _transact(self) -> None:
        session = self.rng.choice(self._sessions)
        run(session, "BEGIN IMMEDIATE")
        for statement, values in self._work.transaction():
            try:
                run(session, statement, *values)
            except apsw.ConstraintError:
                assert session.transactions.connection.in_transaction
        run(session, "COMMIT" if self.rng.random() < 0.9 else "ROLLBACK")

    def _speak_up(self) -> str:
        """Commit a change of every table; return a text contained in each of its notifications."""
        number = self._work.number()
        text = f"k{number}"
        for name, columns in (("artist", "id, name"), ("pair", "nr, k"), ("tag", "told, name")):
            run(self._sessions[0], f"INSERT INTO {name}({columns}) VALUES (?, ?)", number, text)
        return text

    def _is_notified(self, text: str) -> bool:
        notified = {frame.stream for frame in self.landed() if frame.kind == "data" and text.encode() in frame.body}
        return notified >= {self.chosen[name]["of"] for name in self._tables}

    def _widen(self) -> None:
        self._is_wide = True
        run(self._sessions[0], "ALTER TABLE artist ADD COLUMN \"c (1)\" DEFAULT 'then'")
        self._speak_up()

    def _restart(self) -> None:
        """Restart the server; write to the file in between."""
        port = self._server.port
        self._server.close()
        with closing(apsw.Connection(str(self._path))) as connection:
            for statement, values in self._work.transaction():
                try:
                    connection.execute(statement, values)
                except apsw.ConstraintError:
                    continue
        self._serve(port)

    def _say(self, payload: str, *, counts: bool = True) -> None:
        with Peer(self._server.port) as peer:
            assert peer.ask("NOTIFY ? ?;", _CHANNEL, payload) == "OK"
        if counts:
            self._spoken.append(payload)

    def _listened(self) -> None:
        """Wait until messages on the channel land."""
        if not self._channels:
            return
        probe = f"{_PROBE} {self._work.number()}."

        def lands() -> bool:
            self._say(probe, counts=False)
            return self._has_landed(probe)

        self.wait_until(lands, "a message")

    def _await_messages(self) -> None:
        """Wait until all messages on the channel have landed."""
        self._listened()
        if self._channels:
            text = f"that was all {self._work.number()}."
            self._say(text)
            self.wait_until(lambda: self._has_landed(text), "the last message")

    def _has_landed(self, text: str) -> bool:
        return any(text.encode() in frame.body for frame in self.landed())

    def _is_all_there(self) -> bool:
        bronze = self.places.bronze(FEED)
        streams = {self.chosen[name]["of"] for name in self._tables}
        last, _, unfinished = reached(bronze, streams)
        return not unfinished and all(self._has(name, last) for name in self._tables)

    def _has(self, table: str, last: int) -> bool:
        choice = self.chosen[table]
        try:
            rows = fold_bronze(LandedTable(self.places.bronze(FEED), CONNECTOR, self.feed, table, last)).expected().rows
        except SilverfoldError:
            return False
        blank = dict.fromkeys(stored_columns(self._path, choice["of"]))
        return _counted({**blank, **row} for row in rows) == _counted(self._silver(choice))

    def _silver(self, choice: Choice) -> Iterable[Row]:
        kinds = {**KINDS[choice["of"]], **_TYPES.get((choice["of"], choice["types"]), {})}
        for row in stored(self._path, choice["of"]):
            cells = {name: _cell(kinds.get(name, "string"), value) for name, value in row.items()}
            yield {**cells, "name": cells["name"].translate(_LOWER)} if choice["of"] == "tag" else cells


def _counted(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(
        repr(normalized({name: value for name, value in row.items() if name != "_position"})) for row in rows
    )


def stored_columns(path: Path, table: str) -> list[str]:
    """Return the current column names of a table."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _without_probes(row: Row) -> list[Row]:
    return [] if row["payload"].startswith(_PROBE) else [row]


def _cell(kind: str, value: Any) -> Any:
    """Return an SQLite value in silver's form."""
    if value is None:
        return None
    if kind.startswith("decimal"):
        return Decimal(repr(value)).quantize(Decimal("0.0001"))
    if kind == "boolean":
        return bool(value)
    if kind == "string" and isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value) if kind == "string" and not isinstance(value, str) else value


def _table(choice: Choice) -> dict[str, Any]:
    of = choice["of"]
    if of == "channel":
        return {"channel": _CHANNEL}
    return {
        "source": of,
        "keys": KEYS[of] if choice["keys"] == "given" else [],
        "key_collation": "nocase" if of == "tag" else "binary",
        "types": _TYPES.get((of, choice["types"]), {}),
        "on_unexplained": choice["on_unexplained"],
        "stored_as_scd_type": int(choice["history"]),
        "expect": expect(choice, _RULES[of]),
    }
