"""World of Deephaven: a table server, feed settings, and the expected silver of its live tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from random import Random
from typing import Any

from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.schemas import load_transport_schema
from silverfold.connectors.deephaven.server.server import TableServer
from tests.matrix.connectors.deephaven_table import COLUMNS, MORE, SentChange, Source
from tests.matrix.connectors.space import Choice, Settings, Space
from tests.matrix.connectors.world import (
    FEED,
    HISTORY,
    HISTORY_LAW,
    RULES,
    SWIFT,
    TRUE,
    Expected,
    Row,
    World,
    expect,
    split,
)
from tests.matrix.oracle import Rule

_OTHER = str(Path(__file__).parents[2] / "golden/deephaven/other-schema.xml")
_UPDATES = ("log", "upsert")

SPACE = Space(
    feed={
        "date_times": ("timestamp", "nanoseconds"),
        "schema": ("builtin", "other"),
        "prefix": ("message", "message+prefix", "body"),
        "calibrate": ("learned", "told"),
        "buffer": ("65536", "640"),
        "columns_later": ("same", "added"),
    },
    table={
        # mode and apply: state from snapshots and updates, from snapshots only, log of updates, state from updates only
        "mode": ("state", "snapshots", "log", "upsert"),
        "keys": ("none", "id", "id+sym"),
        "columns": ("all", "some"),
        "filter": ("none", "number", "both"),
        "decimals": ("text", "scale"),
        "sends": ("whole", "partial"),
        "start": ("empty", "filled"),
        "history": HISTORY,
        "rules": RULES,
    },
    laws=(
        HISTORY_LAW,
        ("history with keys is refused", lambda c: c["history"] == "1" or c["keys"] == "none"),
        (
            "a log has neither keys, rules nor history",
            lambda c: c["mode"] != "log" or (c["keys"], c["rules"], c["history"]) == ("none", "none", "1"),
        ),
        ("updates alone name rows by their row keys", lambda c: c["mode"] != "upsert" or c["keys"] == "none"),
        (
            "what a frame's length counts is learned of the schema that ships here",
            lambda c: c["schema"] == "builtin" or c["calibrate"] == "told",
        ),
    ),
)

_SOME = ("Sym", "Id", "Dec", "At", "Num")
_FILTERS = {
    "none": Rule("", lambda _row: True),
    "number": Rule("Num < 50", lambda row: row["Num"] is None or row["Num"] < 50),
    "both": Rule("Num < 50 && Sym != `x`", lambda row: (row["Num"] is None or row["Num"] < 50) and row["Sym"] != "x"),
}
_RULE = Rule("Num IS NULL OR Num <> 1", lambda row: row["Num"] != 1)
_KEYS = {"none": (), "id": ("Id",), "id+sym": ("Id", "Sym")}
_MODES = {
    "state": {"mode": "snapshot_with_updates"},
    "snapshots": {"mode": "snapshot_only", "every": 2.0},
    "log": {"mode": "updates_only", "apply": "log"},
    "upsert": {"mode": "updates_only", "apply": "upsert"},
}
_EXACT = Context(prec=38)


class DeephavenWorld(World):
    """A server that exports a live table for each silver table."""

    def __init__(self, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__(CONNECTOR, folder, settings, rng)
        chosen = settings.feed
        self._schema = _OTHER if chosen["schema"] == "other" else "builtin"
        self._counts = PrefixCounts(chosen["prefix"])
        self._markers, self._is_wide = 0, chosen["columns_later"] == "same"
        self._sources = {name: _source(choice, rng) for name, choice in self.chosen.items()}
        self._server = TableServer.start(
            msg_buffer_size=int(chosen["buffer"]),
            schema=load_transport_schema(self._schema),
            prefix_counts=self._counts,
        )
        self.enter_context(self._server)
        for name, source in self._sources.items():
            for _ in range(3 if self.chosen[name]["start"] == "filled" else 0):
                source.change(subscribed=False)
            self._server.export_table(f"T {name}", source.live)

    @property
    def feed(self) -> Feed:
        """See `World.feed`."""
        chosen = self.settings.feed
        big = "bigEndian" if chosen["schema"] == "other" else "littleEndian"
        calibration = {"prefix_counts": self._counts, "byte_order": big} if chosen["calibrate"] == "told" else {}
        options = {"schema": self._schema, "date_times": chosen["date_times"], **calibration}
        tables = {n: validated(DeephavenTable, _table(n, choice), file="test") for n, choice in self.chosen.items()}
        address = f"127.0.0.1:{self._server.port}"
        return Feed(FEED, "deephaven", address, validated(DeephavenOptions, options, file="test"), tables, **SWIFT)

    @property
    def keeps_time(self) -> bool:
        """See `World.keeps_time`."""
        return any(choice["mode"] == "snapshots" for choice in self.chosen.values())

    def pause(self) -> None:
        """See `World.pause`."""
        self._subscribed()
        self._settle([name for name in self._sources if self._is_update_only(name)])
        self._left()
        self.stop()
        self.wait_until(lambda: self._server.client_count == 0, "the end of the connection")

    def change(self) -> None:
        """Change tables; update-only tables change only while there is a listener."""
        self._subscribed()
        for name, source in self._sources.items():
            if self.rng.random() < 0.7:
                source.change(subscribed=self._is_update_only(name))

    def disturb(self) -> None:
        """Break all connections, stop the receiver or let it die, or export a table with another column."""
        drawn = self.rng.random()
        if drawn > 0.85:
            self.pause()
            self.receive()
            return
        self._subscribed()
        self._settle([name for name in self._sources if self._is_update_only(name)])
        if not self._is_wide and drawn < 0.5:
            self._widen()
        elif drawn < 0.7 or any(map(self._is_update_only, self._sources)):
            self._left()
            self._server.disconnect_all()
        else:
            self.let_die(self.change)

    def rest(self) -> None:
        """See `World.rest`."""
        self._subscribed()
        self._settle(list(self._sources))

    def expected(self, table: str) -> Expected:
        """See `World.expected`."""
        choice, source = self.chosen[table], self._sources[table]
        if choice["mode"] == "log":
            return Expected([self._logged(change, table) for change in source.sent_changes], shown=_expanded)
        state = _folded(source.sent_changes, source.subscribed) if choice["mode"] == "upsert" else source.rows()
        rows = [{"_row_key": key, **self._silver(row, choice)} for key, row in state.items()]
        silver, side_rows = split(rows, choice, _RULE.met)
        return Expected(silver, side_rows, history=choice["history"] == "2")

    def _is_update_only(self, table: str) -> bool:
        """Return whether the table receives updates only."""
        return self.chosen[table]["mode"] in _UPDATES

    def _left(self) -> None:
        for source in self._sources.values():
            source.leave()

    def _subscribed(self) -> None:
        sources = [source for name, source in self._sources.items() if self._is_update_only(name)]
        self.wait_until(lambda: all(source.has_new_listener for source in sources), "subscriptions")

    def _settle(self, names: Iterable[str]) -> None:
        """Wait until all changes of these tables have landed, by means of marker rows."""
        self._markers += 1
        text, pending = f"said last {self._markers}", list(names)
        for name in pending:
            self._sources[name].say(text, subscribed=self._is_update_only(name))
        if pending:
            self.wait_until(lambda: self._have_landed(pending, text.encode()), f"what is {text}")

    def _have_landed(self, names: Iterable[str], text: bytes) -> bool:
        frames = self.landed()
        for name in names:
            mine = [frame for frame in frames if (frame.stream or "").split("/")[0] == name]
            at = next((number for number, frame in enumerate(mine) if text in frame.body), len(mine))
            if not any(frame.boundary == "end" and frame.epoch == mine[at].epoch for frame in mine[at:]):
                return False
        return True

    def _widen(self) -> None:
        self._is_wide = True
        for name, source in self._sources.items():
            source.widen()
            self._server.export_table(f"T {name}", source.live)
        self._server.disconnect_all()

    def _silver(self, row: Row, choice: Choice) -> Row:
        return {name: self._cell(name, value, choice) for name, value in row.items()}

    def _cell(self, name: str, value: Any, choice: Choice) -> Any:
        if value is None:
            return None
        if name == "Dec":
            return value.quantize(Decimal("0.0001"), context=_EXACT) if choice["decimals"] == "scale" else str(value)
        if name == "At":
            return self._moment(value)
        return [self._moment(each) for each in value] if name == "Ats" else value

    def _moment(self, nanoseconds: int | None) -> Any:
        if nanoseconds is None or self.settings.feed["date_times"] == "nanoseconds":
            return nanoseconds
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)

    def _logged(self, change: SentChange, table: str) -> Row:
        columns = dict.fromkeys(self._sources[table].subscribed)
        present = None if change.present is None else list(change.present)
        cells = self._silver({**columns, **change.row}, self.chosen[table])
        return {"_op": change.op, "_row_key": change.key, "_last_row_key": None, "_present": present, **cells}


def _source(choice: Choice, rng: Random) -> Source:
    return Source(
        Random(rng.random()),
        passes=_FILTERS[choice["filter"]].met,
        subscribed=_SOME if choice["columns"] == "some" else (),
        is_good=(_RULE if choice["rules"] == "fail" else TRUE).met,
        wild=choice["decimals"] == "text",
        named=choice["keys"] == "id+sym",
        partial=choice["sends"] == "partial",
    )


def _table(name: str, choice: Choice) -> dict[str, Any]:
    return {
        "source": f"T {name}",
        **_MODES[choice["mode"]],
        "keys": _KEYS[choice["keys"]],
        "columns": _SOME if choice["columns"] == "some" else (),
        "filter": _FILTERS[choice["filter"]].sql,
        "decimals": {"Dec": 4} if choice["decimals"] == "scale" else {},
        "stored_as_scd_type": int(choice["history"]),
        "expect": _expect(choice),
    }


def _expect(choice: Choice) -> dict[str, Any]:
    """Return the rules; a rule that would hold the table is met by every row of the source."""
    action = choice["rules"]
    return expect(choice, _RULE) if action != "fail" else {"judged": {"condition": _RULE.sql, "action": action}}


def _folded(every: Iterable[SentChange], columns: tuple[str, ...]) -> dict[int, Row]:
    state: dict[int, Row] = {}
    for change in every:
        if change.op == "delete":
            state.pop(change.key, None)
        else:
            before = state.get(change.key, {}) if change.op == "update" else {}
            state[change.key] = {**dict.fromkeys(columns), **before, **change.row}
    return state


def _expanded(row: Row) -> list[Row]:
    """Expand a log row to one row per deleted row; for partial rows, sort the column names."""
    present = row["_present"] and sorted(row["_present"])
    last = row["_last_row_key"]
    keys = [row["_row_key"]] if last is None else range(row["_row_key"], last + 1)
    return [{**row, "_row_key": key, "_last_row_key": None, "_present": present} for key in keys]


assert set(_SOME) <= {*COLUMNS, *MORE}
