"""Channels of the server, which are no tables; or, by an option, of a database and perhaps of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from silverfold.connectors.sqlitecloud.server.options import Channels, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.connectors.sqlitecloud.conftest import FOO
from tests.support.sqlitecloud.peer import Peer, json_text, writer

OLD = ServerOptions(dialect=Dialect(words=Vocabulary.OLD))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[SqliteCloudServer]:
    """A server of two databases, each with a table foo, in the old words."""
    files = {name: tmp_path / name for name in ("shop.db", "test.sqlite")}
    for path in files.values():
        connection = apsw.Connection(str(path))
        connection.execute(FOO)
        connection.execute("CREATE TABLE bar(id INTEGER PRIMARY KEY)")
        connection.close()
    with SqliteCloudServer.start(files, options=OLD) as server:
        yield server


def test_the_worked_example_of_the_seed(two: SqliteCloudServer) -> None:
    with Peer(two.port) as peer:
        peer.ask("USE DATABASE test.sqlite")
        peer.ask("INSERT INTO foo VALUES (14, 'a', 'b')")
        uuid = peer.ask("GET CLIENT KEY UUID")
        with peer.listen("LISTEN foo", two.port) as listener:
            peer.ask("DELETE FROM foo WHERE id=14;")
            peer.ask("INSERT INTO foo(id, col1, col2) VALUES (15, 'test100', 'test101');")
            peer.ask("UPDATE foo SET id=14,col1='test200' WHERE id=15;")
            received = [json_text(listener.message()).decode() for _ in range(3)]

    begin = f'{{"sender":"{uuid}","channel":"foo","type":"TABLE","pk":["id"],"payload":['
    assert received == [
        begin + '{"type":"DELETE","pv":[14]}]}',
        begin + '{"type":"INSERT","id":15,"col1":"test100","col2":"test101"}]}',
        begin + '{"type":"DELETE","pv":[15]},{"type":"INSERT","id":14,"col1":"test200","col2":"test101"}]}',
    ]


def test_a_channel_called_as_a_table_is_ended_by_its_name_and_the_star_is_all_tables(two: SqliteCloudServer) -> None:
    with writer(two) as peer, peer.listen("LISTEN FOO", two.port) as listener:
        peer.ask("LISTEN news; INSERT INTO bar VALUES (1); INSERT INTO foo(id) VALUES (1)")
        peer.ask("NOTIFY foo hello; UNLISTEN foo; INSERT INTO foo(id) VALUES (2); NOTIFY news 1")
        assert [(each["channel"], each["type"]) for each in listener.notifications(3)] == [
            ("foo", "TABLE"),
            ("foo", "MESSAGE"),
            ("news", "MESSAGE"),
        ]
        peer.ask("LISTEN *; INSERT INTO bar VALUES (2); INSERT INTO foo(id) VALUES (3); NOTIFY news 2")
        assert [each["channel"] for each in listener.notifications(3)] == ["bar", "foo", "news"]
        peer.ask("UNLISTEN *; INSERT INTO bar VALUES (3); NOTIFY news 3; LISTEN bar; INSERT INTO bar VALUES (4)")
        assert listener.notifications()[0]["payload"] == [{"type": "INSERT", "id": 4}]


def test_channels_are_of_the_database_in_use(two: SqliteCloudServer) -> None:
    with writer(two) as peer, Peer(two.port) as other, peer.listen("LISTEN news", two.port) as listener:
        other.ask("USE DATABASE test.sqlite")
        other.ask("CREATE CHANNEL news; NOTIFY news other; INSERT INTO foo(id) VALUES (1)")
        assert (peer.ask("LIST CHANNELS"), other.ask("LIST CHANNELS")) == ([], [("news",)])
        peer.ask("NOTIFY news own")
        assert listener.notifications()[0]["payload"] == "own"
        peer.ask("USE DATABASE test.sqlite; NOTIFY news elsewhere; USE DATABASE shop.db; NOTIFY news again")
        assert listener.notifications()[0]["payload"] == "again"


def test_all_tables_of_no_database_cannot_be_listened_to(two: SqliteCloudServer) -> None:
    with Peer(two.port) as peer:
        assert peer.ask("LISTEN *") == (10005, "No database is in use: USE DATABASE first.")
        with peer.listen("LISTEN foo", two.port) as listener:
            peer.ask("NOTIFY foo 1")
            assert listener.notifications()[0]["payload"] == "1"


@pytest.mark.parametrize(
    ("dialect", "channels", "notified"),
    [
        (Vocabulary.OLD, None, True),
        (Vocabulary.NEW, None, False),
        (Vocabulary.MIXED, None, False),
        (Vocabulary.OLD, Channels.APART, False),
        (Vocabulary.NEW, Channels.TABLES, True),
    ],
)
def test_which_servers_take_a_channel_for_a_table(
    file: Path, dialect: Vocabulary, channels: Channels | None, notified: bool
) -> None:
    server_options = ServerOptions(dialect=Dialect(words=dialect), channels=channels)
    with (
        SqliteCloudServer.start({"shop.db": file}, options=server_options) as server,
        writer(server) as peer,
        peer.listen("LISTEN foo", server.port) as listener,
    ):
        peer.ask("INSERT INTO foo(id) VALUES (1); NOTIFY foo last")
        received = listener.notifications(1 + notified)
    assert received[-1]["payload"] == "last"


@pytest.mark.parametrize("listen", ["LISTEN foo", "LISTEN TABLE foo"])
def test_listening_in_a_transaction_takes_effect_at_its_commit(two: SqliteCloudServer, listen: str) -> None:
    with writer(two) as peer, Peer(two.port) as other, peer.listen("LISTEN news", two.port) as listener:
        other.ask("USE DATABASE shop.db")
        peer.ask(f"BEGIN; {listen}")
        other.ask("INSERT INTO foo(id) VALUES (1)")
        peer.ask("INSERT INTO foo(id) VALUES (2); COMMIT")
        other.ask("INSERT INTO foo(id) VALUES (3)")
        assert [each["payload"][0]["id"] for each in listener.notifications(2)] == [2, 3]


@pytest.mark.parametrize(
    "commands",
    [
        "BEGIN; LISTEN foo; ROLLBACK",
        "BEGIN; LISTEN foo; UNLISTEN foo; COMMIT",
        "BEGIN; LISTEN foo; UNLISTEN *; LISTEN news; COMMIT",
        "BEGIN; SAVEPOINT s; LISTEN foo; ROLLBACK TO s; COMMIT",
        "BEGIN; LISTEN foo; USE DATABASE test.sqlite; USE DATABASE shop.db",
        "INSERT INTO foo(id) VALUES (9); BEGIN; LISTEN foo; INSERT OR ROLLBACK INTO foo(id) VALUES (9)",
    ],
)
def test_listening_that_is_rolled_back_or_ended_within_its_transaction_is_none(
    two: SqliteCloudServer, commands: str
) -> None:
    with writer(two) as peer, peer.listen("LISTEN news", two.port) as listener:
        peer.ask(commands)
        peer.ask("INSERT INTO foo(id) VALUES (1); NOTIFY news 1")
        assert listener.notifications()[0]["payload"] == "1"


def test_a_table_of_the_transaction_itself_can_be_listened_to(two: SqliteCloudServer) -> None:
    with writer(two) as peer, peer.listen("LISTEN news", two.port) as listener:
        peer.ask("BEGIN; CREATE TABLE baz(id INTEGER PRIMARY KEY); LISTEN baz; INSERT INTO baz VALUES (1); COMMIT")
        assert listener.notifications()[0]["channel"] == "baz"


def test_listening_before_a_savepoint_outlives_what_is_rolled_back_to_it(two: SqliteCloudServer) -> None:
    with writer(two) as peer, peer.listen("LISTEN news", two.port) as listener:
        peer.ask("SAVEPOINT a; LISTEN foo; SAVEPOINT s; LISTEN bar; ROLLBACK TO s; RELEASE a")
        peer.ask("INSERT INTO bar VALUES (1); INSERT INTO foo(id) VALUES (1)")
        assert listener.notifications()[0]["channel"] == "foo"
