"""A server's main connections: login, SQL, results in every form, lists, self-tests, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from silverfold.connectors.sqlitecloud.protocol.messages import Command, JsonText, Rowset, ServerError
from silverfold.connectors.sqlitecloud.server import connection
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.results import ClientKeys
from silverfold.connectors.sqlitecloud.server.selftest import selftest_frames
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.connectors.sqlitecloud.server.state import Credentials
from tests.connectors.sqlitecloud.conftest import Serve
from tests.support.polling import wait_until
from tests.support.sqlitecloud.peer import Peer


@pytest.fixture
def peer(server: SqliteCloudServer) -> Iterator[Peer]:
    with Peer(server.port) as peer:
        assert peer.ask("USE DATABASE shop.db;") == "OK"
        yield peer


def test_a_login_is_one_text_and_one_answer(server: SqliteCloudServer) -> None:
    login = "SET CLIENT KEY NONLINEARIZABLE TO 1;AUTH USER u PASSWORD p;SET CLIENT KEY COMPRESSION TO 1;"

    with Peer(server.port) as peer:
        assert peer.ask(login + "SET CLIENT KEY NONLINEARIZABLE TO 0;USE DATABASE shop.db;") == "OK"
        uuid = peer.ask("GET CLIENT KEY UUID;")
        keys = dict(peer.ask("LIST CLIENT KEYS"))

    assert len(uuid) == 36
    assert (keys["UUID"], keys["COMPRESSION"], keys["NONLINEARIZABLE"]) == (uuid, "1", "0")


def test_a_session_is_told_who_and_where_it_is_and_cannot_be_another(server: SqliteCloudServer) -> None:
    with Peer(server.port) as first:
        number = first.ask("GET CLIENT KEY ID;")
        assert first.ask("GET CLIENT KEY IP;") == "127.0.0.1"
        assert first.ask("SET CLIENT KEY ID TO 7;") == (10005, "Client key ID is read-only.")
        with Peer(server.port) as second:
            assert int(second.ask("GET CLIENT KEY ID;")) == int(number) + 1


def test_client_keys_are_texts_and_can_be_turned_off(peer: Peer) -> None:
    assert peer.ask("SET CLIENT KEY MAXDATA TO 4;GET CLIENT KEY MAXDATA") == "4"

    assert peer.ask("REMOVE CLIENT KEY maxdata;GET CLIENT KEY MAXDATA") == "0"
    assert peer.ask("REMOVE CLIENT KEY ID;GET CLIENT KEY ID") != "0"
    assert peer.ask("REMOVE CLIENT KEY NOPE") == (10001, "Client key NOPE not found.")


def test_a_statement_that_writes_answers_six_integers(peer: Peer) -> None:
    assert peer.ask("INSERT INTO foo VALUES(7, 'a', 'b'), (9, 'c', 'd')") == [10, 0, 9, 2, 2, 1]
    assert peer.ask("UPDATE foo SET col1 = 'z' WHERE id = 7;") == [10, 0, 9, 1, 3, 1]


def test_rows_come_with_their_columns_and_every_type(peer: Peer) -> None:
    peer.ask("INSERT INTO foo VALUES(-5, 'a', 'b')")

    peer.say("SELECT id, 1.5 AS r, NULL AS n, x'00ff' AS b, 'q;' FROM foo")
    rowset = peer.message()

    assert isinstance(rowset, Rowset)
    assert rowset.rows == [(-5, 1.5, None, b"\x00\xff", "q;")]
    assert [column.name for column in rowset.columns] == ["id", "r", "n", "b", "'q;'"]
    assert rowset.columns[0] == ("id", "INTEGER", "main", "foo", "id", False, True, False)
    assert rowset.columns[1] == ("r", None, None, None, None, False, False, False)


def test_parameters_are_used_up_from_left_to_right_and_by_position_where_they_have_names(peer: Peer) -> None:
    text = "INSERT INTO foo VALUES(?, ?, ?); UPDATE foo SET col1 = :new WHERE id = :id; SELECT * FROM foo WHERE id = ?;"

    assert peer.ask(text, 1, "it's; --", None, "ü", 1, 1) == [(1, "ü", None)]


@pytest.mark.parametrize(("text", "given"), [("SELECT ?, ?", ("a",)), ("SELECT ?", (1, 2)), ("SELECT 1", (1,))])
def test_the_wrong_number_of_parameters_is_an_error(peer: Peer, text: str, given: tuple[int, ...]) -> None:
    code, message = peer.ask(text, *given)

    assert code == 21
    assert "bindings" in message


def test_the_first_error_of_several_statements_ends_them(peer: Peer) -> None:
    code, text = peer.ask("INSERT INTO foo(id) VALUES(1); SELECT nope; INSERT INTO foo(id) VALUES(2)")

    assert (code, text) == (1, "no such column: nope")
    assert peer.ask("SELECT id FROM foo") == [(1,)]


def test_an_error_has_the_codes_of_sqlite_and_the_place(peer: Peer) -> None:
    peer.say("SELECT nope FROM foo;    ")
    misspelt = peer.message()
    peer.ask("INSERT INTO foo(id) VALUES(1)")
    peer.say("INSERT INTO foo(id) VALUES(1)")
    twice = peer.message()

    assert misspelt == ServerError(1, 1, 7, "no such column: nope")
    assert twice == ServerError(19, 1555, -1, "UNIQUE constraint failed: foo.id")


def test_a_transaction_lasts_over_requests_and_goes_with_its_connection(server: SqliteCloudServer, peer: Peer) -> None:
    with Peer(server.port) as other:
        other.ask("USE DATABASE shop.db")
        other.ask("BEGIN")
        other.ask("INSERT INTO foo(id) VALUES(1)")
        assert other.ask("SELECT count(*) FROM foo") == [(1,)]
        assert peer.ask("SELECT count(*) FROM foo") == [(0,)]
    wait_until(lambda: server.client_count == 1, "one client to be left")

    assert peer.ask("INSERT INTO foo(id) VALUES(2)") == [10, 0, 2, 1, 1, 1]
    assert peer.ask("SELECT id FROM foo") == [(2,)]


@pytest.mark.parametrize("compression", [0, 1])
def test_a_result_comes_in_chunks_of_as_many_rows_as_asked_for(peer: Peer, compression: int) -> None:
    peer.ask(f"SET CLIENT KEY MAXROWS TO 3;SET CLIENT KEY COMPRESSION TO {compression}")
    peer.ask("INSERT INTO foo(id) VALUES(1), (2), (3), (4), (5), (6), (7), (8)")

    chunks = peer.chunks("SELECT id FROM foo ORDER BY id")

    assert [[row[0] for row in chunk.rows] for chunk in chunks] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert [chunk.index for chunk in chunks] == [1, 2, 3]
    assert chunks[0].columns is not None
    assert chunks[1].columns is None
    assert len(peer.ask("SELECT id FROM foo LIMIT 3")) == 3


def test_a_long_result_comes_in_chunks_by_itself_and_is_read_as_it_is_sent(
    peer: Peer, server: SqliteCloudServer
) -> None:
    endless = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT i, hex(zeroblob(500)) FROM n"

    peer.say(endless)
    first = peer.message()

    assert 200 < len(first.rows) < 400
    peer.close()
    wait_until(lambda: server.client_count == 0, "the clients to be gone")  # it ends although the result never does


@pytest.mark.parametrize("what", ["INSERT INTO foo(id) SELECT i FROM n", "SELECT max(i) FROM n"])
def test_a_statement_that_does_not_end_ends_once_its_client_has_left(
    peer: Peer, server: SqliteCloudServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(connection, "_LOOKS_FOR_CLIENT", 0.01)
    with Peer(server.port) as other:
        other.ask("USE DATABASE shop.db")
        other.say(f"WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) {what}")

    wait_until(lambda: server.client_count == 1, "one client to be left")

    assert peer.ask("INSERT INTO foo(id) VALUES(2)") == [10, 0, 2, 1, 1, 1]


def test_what_a_client_does_not_want_is_left_out(peer: Peer) -> None:
    peer.ask("SET CLIENT KEY NOBLOB TO 1;SET CLIENT KEY MAXDATA TO 4")
    assert peer.ask("SELECT x'00', 'four', 'fives', 12345") == [(None, "four", None, 12345)]

    peer.ask("SET CLIENT KEY MAXDATA TO 0;SET CLIENT KEY MAXROWSET TO 1024")
    refused = (10003, "RowSet too big to be sent (limit set to 1024 bytes).")
    assert peer.ask("SELECT hex(zeroblob(1000))") == refused
    assert peer.ask("SELECT hex(zeroblob(10))") == [("00" * 10,)]


def test_texts_end_with_a_zero_for_a_client_that_wants_it(peer: Peer) -> None:
    peer.ask("SET CLIENT KEY ZEROTEXT TO 1")

    peer.say("SELECT 'abc'")
    assert peer.socket.recv(4096).endswith(b"!4 abc\x00")
    assert peer.ask("SELECT 'a' || char(0) || 'b'")[0] == 10002


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT 1\0", 10002),
        ("LISTEN", 10002),
        ("NOTIFY c 'it's'", 10002),
        ("AUTH", 10002),
        ("PAUTH a b", 10004),
        ("USE DATABASE nope", 10001),
        ("CREATE DATABASE shop.db", 10005),
        ("CREATE DATABASE :memory:1", 10005),
        ("REMOVE DATABASE shop.db", 10005),
        ("REMOVE DATABASE nope", 10001),
        ("UPLOAD DATABASE shop.db", 10005),
        ("DOWNLOAD DATABASE nope", 10001),
        ("DOWNLOAD STEP", 10002),
        ("SET CLIENT KEY NOPE TO 1", 10001),
        ("SET CLIENT KEY MAXROWS TO x", 10002),
        ("GET CLIENT KEY NOPE", 10001),
        ("GET SQL nope", 10001),
        ("TEST NOPE", 10002),
        ("ATTACH DATABASE '/tmp/elsewhere.db' AS other", 23),
        ("VACUUM INTO '/tmp/elsewhere.db'", 23),
        ("ROLLBACK", 1),
        ("SELECT CAST(x'ff' AS TEXT)", 10003),
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_connection_lives(peer: Peer, text: str, code: int) -> None:
    assert peer.ask(text)[0] == code
    assert peer.ask("PING") == "PONG"


def test_a_request_that_cannot_be_read_is_an_error_and_the_connection_lives(peer: Peer) -> None:
    peer.send(b"=22 2 !10 SELECT ?;\x00:True ")
    assert peer.message().code == 10002
    peer.send(b"$3 abc")
    assert peer.message().code == 10002
    assert peer.ask("PING") == "PONG"


def test_bytes_that_are_no_frame_are_answered_and_end_the_connection(peer: Peer) -> None:
    peer.send(b"GET / HTTP/1.1\r\n\r\n")

    assert peer.message().code == 10002
    assert peer.message() is None


def test_sql_needs_a_database_and_nothing_at_all_is_null(server: SqliteCloudServer) -> None:
    with Peer(server.port) as peer:
        assert peer.ask("SELECT 1") == (10005, "No database is in use: USE DATABASE first.")
        assert peer.ask(" ; -- nothing") is None
        assert peer.ask("PING") == "PONG"


def test_who_is_told_to_show_credentials_must(serve: Serve) -> None:
    server = serve(credentials=Credentials("s3cret", user="u"))

    with Peer(server.port) as peer:
        assert peer.ask("USE DATABASE shop.db") == (10004, "Authentication required.")
        assert peer.ask("SELECT 1") == (10004, "Authentication required.")
        assert peer.ask("AUTH USER u PASSWORD wrong;USE DATABASE shop.db")[0] == 10004
        assert peer.ask("AUTH APIKEY s3cret")[0] == 10004
        assert peer.ask("SET CLIENT KEY ZEROTEXT TO 0;AUTH USER u PASSWORD s3cret;USE DATABASE shop.db") == "OK"
        assert peer.ask("SELECT 1") == [(1,)]
    assert "s3cret" not in repr(Credentials("s3cret"))


def test_tables_and_their_columns_are_listed(peer: Peer) -> None:
    assert [(*row[1:3], row[4]) for row in peer.ask("LIST TABLES")] == [("bar", "table", 1), ("foo", "table", 0)]
    assert peer.ask("LIST METADATA TABLE foo") == [
        ("id", "INTEGER", "BINARY", 0, 1, 0),
        ("col1", "TEXT", "BINARY", 0, 0, 0),
        ("col2", "TEXT", "BINARY", 0, 0, 0),
    ]
    assert {row[6] for row in peer.ask("LIST METADATA")} == {"foo", "bar"}
    assert peer.ask("GET SQL nope") == (10001, "Table nope not found.")
    assert peer.ask("GET SQL foo") == "CREATE TABLE foo(id INTEGER PRIMARY KEY, col1 TEXT, col2 TEXT)"


def test_metadata_is_what_sqlite_knows_of_each_column(peer: Peer) -> None:
    kinds = "a INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT NOT NULL COLLATE NOCASE, c, d REAL, e BLOB, f DECIMAL(9)"
    peer.ask(f"CREATE TABLE kinds({kinds})")

    peer.say("LIST METADATA")
    listed = peer.message()

    assert isinstance(listed, Rowset)
    names = "name data_type col_seq not_null primary_key auto_inc tablename affinity_type"
    assert [column.name for column in listed.columns] == names.split()
    assert [row for row in listed.rows if row[6] == "kinds"] == [
        ("a", "INTEGER", "BINARY", 0, 1, 1, "kinds", 68),
        ("b", "TEXT", "NOCASE", 1, 0, 0, "kinds", 66),
        ("c", None, "BINARY", 0, 0, 0, "kinds", 65),
        ("d", "REAL", "BINARY", 0, 0, 0, "kinds", 69),
        ("e", "BLOB", "BINARY", 0, 0, 0, "kinds", 65),
        ("f", "DECIMAL(9)", "BINARY", 0, 0, 0, "kinds", 67),
    ]


def test_databases_indexes_and_keywords_are_listed(peer: Peer) -> None:
    peer.ask("CREATE INDEX by_col1 ON foo(col1)")
    assert peer.ask("LIST INDEXES") == [("by_col1", "foo")]
    keywords = [word for (word,) in peer.ask("LIST KEYWORDS")]
    assert (keywords[:4], keywords[-1]) == (["REINDEX", "INDEXED", "INDEX", "DESC"], "PRIMARY")
    assert len(keywords) == len(set(keywords)) == len(apsw.keywords)

    assert [peer.ask("GET DATABASE"), peer.ask("GET DATABASE NAME")] == ["shop.db", "shop.db"]
    assert peer.ask("USE DATABASE :memory:;GET DATABASE") == ":memory:"
    assert peer.ask("LIST DATABASES") == [("shop.db",)]
    assert peer.ask("UNUSE DATABASE;GET DATABASE NAME") is None


def test_self_tests_answer_every_type_of_frame(peer: Peer) -> None:
    assert peer.ask("TEST STRING") == "Hello World, this is a test string."
    assert peer.ask("TEST ZERO_STRING") == "Hello World, this is a zero-terminated test string."
    assert [peer.ask(f"TEST {name}") for name in ("STRING0", "INTEGER", "INT64", "FLOAT", "NULL", "BLOB0")] == [
        "",
        123456,
        9223372036854775807,
        3.1415926,
        None,
        b"",
    ]
    assert len(peer.ask("TEST BLOB")) == 1000
    assert peer.ask("TEST ERROR") == (66666, "This is a test error message with a devil error code.")
    assert peer.ask("TEST EXTERROR")[0] == 66666
    assert peer.ask("TEST ARRAY")[:4] == ["Hello World", 123456, 3.1415, None]
    assert isinstance(peer.ask("TEST JSON"), JsonText)
    assert peer.ask("TEST COMMAND") == Command(b"PING")
    assert peer.ask("TEST ARRAY0") == []
    assert peer.ask("TEST NOPE") == (10002, "Unable to find command TEST NOPE.")
    rows = peer.ask("TEST ROWSET")
    assert (len(rows), rows[0], rows[40][1]) == (41, ("REINDEX", "0"), "40")
    for name in ("ROWSET_NOCHUNK", "ROWSET_NOCHUNK_COMPRESSED"):
        rows = peer.ask(f"TEST {name}")
        assert (len(rows), rows[0], rows[-1]) == (147, ("REINDEX",), ("PRIMARY",))
    for name in ("ROWSET_CHUNK", "ROWSET_CHUNK_COMPRESSED"):
        assert [len(chunk.rows) for chunk in peer.chunks(f"TEST {name}")] == [1] * 147


def test_self_tests_may_be_asked_for_compressed(peer: Peer) -> None:
    assert peer.ask("TEST INTEGER COMPRESSED") == 123456
    assert peer.ask("TEST ROWSET COMPRESSED") == peer.ask("TEST ROWSET")
    assert len(peer.chunks("TEST ROWSET_CHUNK COMPRESSED")) == 147

    for name in ("ROWSET", "ROWSET_CHUNK"):
        assert next(selftest_frames(name, ClientKeys(), compressed=True)).startswith(b"%")
        assert not next(selftest_frames(name, ClientKeys())).startswith(b"%")


def test_the_file_is_one_whole_database_afterwards_in_the_mode_it_was_in(file: Path, serve: Serve) -> None:
    server = serve()
    with Peer(server.port) as peer:
        peer.ask("USE DATABASE shop.db;INSERT INTO foo VALUES(1, 'a', 'b')")
        server.close()

    assert [path.name for path in file.parent.iterdir()] == ["shop.db"]
    connection = apsw.Connection(str(file))
    assert connection.pragma("journal_mode") == "delete"
    assert connection.execute("SELECT * FROM foo").fetchall() == [(1, "a", "b")]
    connection.close()


def test_a_connection_may_be_made_to_break_at_a_request_or_in_the_middle_of_a_result(serve: Serve) -> None:
    server = serve(ServerOptions(close_main_at=2))
    with Peer(server.port) as peer:
        assert peer.ask("PING") == "PONG"
        assert peer.ask("PING") is None

    server = serve(ServerOptions(close_main_after_chunk=2))
    with Peer(server.port) as peer:
        peer.say("TEST ROWSET_CHUNK")
        assert [len(peer.message().rows), len(peer.message().rows)] == [1, 1]
        assert peer.message() is None


@pytest.mark.parametrize(("compression", "kind"), [(True, b"%"), (False, b"*")])
def test_results_are_compressed_for_who_asks_by_a_server_that_does(
    serve: Serve, compression: bool, kind: bytes
) -> None:
    with Peer(serve(ServerOptions(compression=compression)).port) as peer:
        assert peer.ask("SET CLIENT KEY COMPRESSION TO 1") == "OK"
        peer.say("TEST ROWSET")
        assert peer.socket.recv(1 << 16)[:1] == kind
