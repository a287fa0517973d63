"""What SQLite reports of a transaction: recorded cases, and what is easily reported wrongly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from silverfold.connectors.sqlitecloud.server.pubsub.capture import (
    Capture,
    CaptureMode,
    RowChange,
    TableChanges,
    Unreportable,
    capture_for,
)

GOLDEN = Path(__file__).parents[4] / "golden" / "sqlitecloud" / "sqlite_changes.json"
CASES = {case["id"]: case for case in json.loads(GOLDEN.read_text(encoding="utf-8"))}
FOO = "CREATE TABLE foo(id INTEGER PRIMARY KEY, col1 TEXT, col2 TEXT)"


def reported(mode: CaptureMode, before: Sequence[str], transaction: Sequence[str]) -> list[TableChanges]:
    """Return what is reported of one transaction; a statement ROLLBACK TO undoes what came after its savepoint."""
    connection = apsw.Connection(":memory:")
    capture = capture_for(connection, mode)
    for statement in before:
        connection.execute(statement)
    connection.execute("BEGIN IMMEDIATE")
    capture.begin()
    for statement in transaction:
        connection.execute(statement)
        capture.statement_done()
    changes = capture.changes()
    connection.execute("COMMIT")
    capture.end()
    return changes


def value(written: dict[str, str] | None) -> Any:
    """Return a value as the recorded cases spell it."""
    if written is None:
        return None
    ((kind, text),) = written.items()
    return {"int": int, "real": float, "text": str, "blob": bytes.fromhex}[kind](text)


def row(written: Sequence[Any]) -> dict[str, Any]:
    return {name: value(cell) for name, cell in written}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_session_extension_reports_what_was_recorded(case: dict[str, Any]) -> None:
    found = reported(CaptureMode.SESSION, case["ddl"] + case["before"], case["transaction"])

    changes = [(each.table, each.key, change) for each in found for change in each.changes]
    assert len(changes) == len(case["session"])
    for expected in case["session"]:
        assert (expected["table"], expected) in [
            (table, shown(expected, key, change)) for table, key, change in changes
        ]


def shown(expected: dict[str, Any], key: tuple[str, ...], change: RowChange) -> dict[str, Any] | None:
    """Return the expected change if this is it; an update's key columns are told, and expected only when changed."""
    before = dict(zip(key, change.old_key, strict=False))
    values = {name: cell for name, cell in change.values.items() if name not in before or before[name] != cell}
    wanted = row(expected.get("row", [])), tuple(map(value, expected.get("key", [])))
    same = (change.op.lower(), values, change.old_key) == (expected["op"], *wanted)
    return expected if same else None


@pytest.mark.parametrize("case", [case for case in CASES.values() if "hook" in case], ids=lambda case: case["id"])
def test_the_hook_reports_what_was_recorded(case: dict[str, Any]) -> None:
    found = reported(CaptureMode.HOOK_FULL, case["ddl"] + case["before"], case["transaction"])

    changes = [(each.table, change) for each in found for change in each.changes]
    expected = [(change["table"], change["op"], new(change)) for change in case["hook"]]
    assert [(table, change.op.lower(), tuple(change.values.values())) for table, change in changes] == expected
    for (_, change), wanted in zip(changes, case["hook"], strict=True):
        assert set(change.old_key) <= set(map(value, wanted.get("old", [])))
        assert bool(change.old_key) == ("old" in wanted)


def new(change: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(map(value, change.get("new", [])))


def test_the_key_of_a_composite_table_is_told_in_declared_order() -> None:
    ddl = "CREATE TABLE foo(a, b, c, PRIMARY KEY(b, a)) WITHOUT ROWID"

    found = reported(CaptureMode.SESSION, [ddl, "INSERT INTO foo VALUES(1,2,3)"], ["UPDATE foo SET a=9 WHERE b=2"])

    deleted, inserted = sorted(found[0].changes, key=lambda change: change.op)
    assert found[0].key == ("b", "a")
    assert deleted == RowChange("DELETE", {}, (2, 1))
    assert inserted == RowChange("INSERT", {"a": 9, "b": 2, "c": 3}, ())


@pytest.mark.parametrize(
    ("mode", "values"),
    [
        (CaptureMode.HOOK_FULL, {"id": 14, "col1": "a", "col2": "z"}),
        (CaptureMode.HOOK_CHANGED, {"id": 14, "col2": "z"}),
    ],
)
def test_the_hook_tells_a_key_move_as_one_update_with_whole_or_changed_columns(
    mode: CaptureMode, values: dict[str, Any]
) -> None:
    before = [FOO, "INSERT INTO foo VALUES(15,'a','b')"]

    found = reported(mode, before, ["UPDATE foo SET id=14, col2='z'"])

    assert found == [TableChanges("foo", ("id",), (RowChange("UPDATE", values, (15,), key_changed=True),))]


def test_changed_columns_are_told_with_the_key_and_by_type() -> None:
    before = [
        "CREATE TABLE foo(id INTEGER PRIMARY KEY, x, y, g AS (x) STORED)",
        "INSERT INTO foo VALUES(1, 2, NULL)",
    ]

    found = reported(CaptureMode.HOOK_CHANGED, before, ["UPDATE foo SET x=2.0, y=NULL"])

    (change,) = found[0].changes
    assert change == RowChange("UPDATE", {"id": 1, "x": 2.0}, (1,), key_changed=False)
    assert isinstance(change.values["x"], float)


def hooked(*ddl: str) -> tuple[apsw.Connection, Capture]:
    connection = apsw.Connection(":memory:")
    capture = capture_for(connection, CaptureMode.HOOK_FULL)
    for statement in ddl:
        connection.execute(statement)
    capture.begin()
    return connection, capture


def test_what_a_failed_statement_did_before_it_failed_is_forgotten() -> None:
    connection, capture = hooked(FOO, "INSERT INTO foo VALUES(3,'c','d')", "BEGIN")
    place = capture.savepoint()

    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO foo VALUES(1,'a','b'),(3,'c','d')")
    capture.rollback_to(place)
    connection.execute("INSERT INTO foo VALUES(4,'a','b')")
    capture.statement_done()

    (found,) = capture.changes()
    assert [change.values["id"] for change in found.changes] == [4]


def test_a_table_with_virtual_columns_cannot_be_reported_by_the_hook() -> None:
    connection, capture = hooked("CREATE TABLE foo(id INTEGER PRIMARY KEY, a, g AS (a) VIRTUAL)")

    connection.execute("INSERT INTO foo(id, a) VALUES(1, 2)")
    capture.statement_done()

    with pytest.raises(Unreportable, match="foo"):
        capture.changes()
    assert connection.execute("SELECT * FROM foo").fetchall() == [(1, 2, 2)]


@pytest.mark.parametrize("mode", [CaptureMode.SESSION, CaptureMode.HOOK_FULL])
def test_a_table_changed_and_dropped_in_one_transaction_cannot_be_reported(mode: CaptureMode) -> None:
    transaction = ["INSERT INTO foo VALUES(1,'a','b')", "DROP TABLE foo"]

    if mode is CaptureMode.SESSION:
        with pytest.raises(Unreportable, match="schema"):
            reported(mode, [FOO], transaction)
    else:
        assert [each.table for each in reported(mode, [FOO], transaction)] == ["foo"]


@pytest.mark.parametrize("mode", [CaptureMode.SESSION, CaptureMode.HOOK_FULL])
def test_columns_added_in_the_transaction_are_told_from_then_on(mode: CaptureMode) -> None:
    transaction = ["ALTER TABLE foo ADD COLUMN d", "INSERT INTO foo VALUES(1,'a','b',7)"]

    (found,) = reported(mode, [FOO], transaction)

    assert found.changes == (RowChange("INSERT", {"id": 1, "col1": "a", "col2": "b", "d": 7}, ()),)


def test_temporary_tables_are_nobodys_business() -> None:
    before = ["CREATE TEMP TABLE notes(id INTEGER PRIMARY KEY)"]

    assert reported(CaptureMode.HOOK_FULL, before, ["INSERT INTO notes VALUES(1)"]) == []
    assert reported(CaptureMode.SESSION, before, ["INSERT INTO notes VALUES(1)"]) == []
