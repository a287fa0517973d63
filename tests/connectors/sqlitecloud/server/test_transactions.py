"""Commits and what is told of them are one step, whoever else commits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from silverfold.connectors.sqlitecloud.server.database import Database
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode, TableChanges
from silverfold.connectors.sqlitecloud.server.transactions import Transactions


def test_nothing_commits_while_another_commit_is_being_told(file: Path) -> None:
    reported: list[Sequence[TableChanges]] = []
    with Database(file) as database:
        session = Transactions(database, CaptureMode.SESSION, reported.append)
        reader = database.connect()
        thread = threading.Thread(target=lambda: session.run("INSERT INTO foo(id) VALUES(1)", lambda _count: ()))
        with database.order:
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            assert (reader.execute("SELECT count(*) FROM foo").fetchone(), reported) == ((0,), [])
        thread.join()
        assert reader.execute("SELECT count(*) FROM foo").fetchone() == (1,)
        reader.close()
        session.close()

    assert [[changes.table for changes in each] for each in reported] == [["foo"]]


def test_a_file_that_another_program_holds_stays_a_valid_database(file: Path) -> None:
    database = Database(file)
    session = Transactions(database, CaptureMode.SESSION, lambda _changes: None)
    session.run("INSERT INTO foo(id) VALUES(1)", lambda _count: ())
    other = apsw.Connection(str(file))
    assert other.execute("SELECT id FROM foo").fetchall() == [(1,)]
    session.close()

    database.close()
    database.close()
    other.close()

    connection = apsw.Connection(str(file))
    assert connection.execute("SELECT id FROM foo").fetchall() == [(1,)]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("mode", CaptureMode)
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_statement_that_fails_leaves_nothing_behind_to_be_reported(
    file: Path, mode: CaptureMode, in_transaction: bool
) -> None:
    published: list[Sequence[TableChanges]] = []
    with Database(file) as database:
        session = Transactions(database, mode, published.append)
        statements = ["INSERT INTO foo(id) VALUES(7)", "INSERT OR FAIL INTO foo(id) VALUES(1), (2), (1)"]
        for statement in ["BEGIN", *statements, "COMMIT"] if in_transaction else statements:
            try:
                session.run(statement, lambda _count: ())
            except apsw.ConstraintError:
                assert "FAIL" in statement
        rows = session.connection.execute("SELECT id FROM foo").fetchall()
        session.close()

    changes = [change for each in published for table in each for change in table.changes]
    assert (rows, [change.values["id"] for change in changes]) == ([(7,)], [7])
