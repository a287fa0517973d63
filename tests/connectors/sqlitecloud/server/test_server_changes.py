"""Recorded transactions, sent to a server, are told as recorded, in all words."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.support.sqlitecloud.peer import Peer

GOLDEN = Path(__file__).parents[3] / "golden" / "sqlitecloud" / "sqlite_changes.json"
CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))
WORDS = {
    Vocabulary.OLD: ("type", "pk", "type", "pv"),
    Vocabulary.NEW: ("channel_type", "sqlite_pk_name", "sqlite_type", "sqlite_pk_value"),
    Vocabulary.MIXED: ("channel_type", "pk", "type", "sqlite_pk_value"),
}
KEYS = {
    "composite-without-rowid": ["b", "a"],
    "null-in-primary-key": ["a"],
    "text-and-integer-keys": ["k"],
    "nocase-key": ["k"],
}
"""Of the tables of cases; the others have ``id``."""


@pytest.fixture(scope="module", params=list(Vocabulary))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("changes")
    files = {case["id"]: folder / f"{case['id']}.db" for case in CASES}
    for file in files.values():
        file.touch()
    server_options = ServerOptions(dialect=Dialect(words=request.param), pacing=Pacing.JOINED)
    with SqliteCloudServer.start(files, options=server_options) as server:
        yield server, WORDS[request.param]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_recorded_transaction_is_told_as_recorded(served: Any, case: dict[str, Any]) -> None:
    server, (kind, key_names, op, old_key) = served
    with Peer(server.port) as peer:
        peer.ask(";".join([f"USE DATABASE {case['id']}", *case["ddl"], *case["before"]]))
        with peer.listen("LISTEN TABLE *", server.port) as listener:
            done = peer.ask(";".join(["LISTEN end; BEGIN", *case["transaction"], "COMMIT; NOTIFY end"]))
            messages = list(
                iter(lambda: listener.notifications()[0], {"sender": ANY, "channel": "end", kind: "MESSAGE"})
            )
    keys = KEYS.get(case["id"], ["id"])
    expected: dict[str, list[Any]] = {}
    for change in case["session"]:
        expected.setdefault(change["table"], []).append(entry(change, keys, op, old_key))
    assert done == "OK"
    assert {message["channel"]: by_text(message["payload"]) for message in messages} == {
        table: by_text(entries) for table, entries in expected.items()
    }
    assert len(messages) == len(expected)
    assert all((message[kind], message[key_names]) == ("TABLE", keys) for message in messages)


def entry(change: dict[str, Any], keys: list[str], op: str, old_key: str) -> dict[str, Any]:
    row = {name: value(cell) for name, cell in change.get("row", [])}
    key = [value(cell) for cell in change.get("key", [])]
    match change["op"]:
        case "insert":
            return {op: "INSERT", **row}
        case "delete":
            return {op: "DELETE", old_key: key}
        case _:
            moved = {old_key: key} if keys[0] in row else {}
            return {op: "UPDATE", **dict(zip(keys, key, strict=True)), **row, **moved}


def value(written: dict[str, str] | None) -> Any:
    if written is None:
        return None
    ((kind, text),) = written.items()
    match kind:
        case "blob":
            return b64encode(bytes.fromhex(text)).decode()
        case "int":
            return int(text)
        case "real":
            return float(text)
    return text


def by_text(entries: list[Any]) -> list[str]:
    return sorted(json.dumps(entry, sort_keys=True) for entry in entries)
