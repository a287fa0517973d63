"""A server's notifications: who hears what, in which words, in which order, and what a server may do wrong."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from silverfold.connectors.sqlitecloud.protocol.messages import PubSubOffer
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.connectors.sqlitecloud.conftest import Serve
from tests.support.polling import wait_until
from tests.support.sqlitecloud.peer import PATIENCE, Peer, json_text, pauth, to_python, writer

LISTEN = "LISTEN TABLE foo DATABASE shop.db"
OLD = Dialect(words="old")


def test_a_commit_is_told_to_those_who_listen_in_the_words_of_the_samples(serve: Serve) -> None:
    for dialect, expected in [
        (
            OLD,
            '"channel":"foo","type":"TABLE","pk":["id"],"payload":[{"type":"INSERT","id":15,"col1":"test100","col2":"test101"}]}',
        ),
        (
            Dialect(),
            '"channel":"foo","channel_type":"TABLE","sqlite_pk_name":["id"],'
            '"payload":[{"sqlite_type":"INSERT","id":15,"col1":"test100","col2":"test101"}]}',
        ),
    ]:
        server = serve(ServerOptions(dialect=dialect))
        with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
            uuid = peer.ask("GET CLIENT KEY UUID")
            peer.ask("INSERT INTO foo VALUES(15,'test100','test101')")
            text = json_text(listener.message()).decode()
            peer.ask("DELETE FROM foo")
        assert text == f'{{"sender":"{uuid}",{expected}'
        server.close()


def test_a_transaction_is_one_notification_for_each_table_at_its_commit(server: SqliteCloudServer) -> None:
    with writer(server) as peer, writer(server) as ear, ear.listen("LISTEN TABLE *", server.port) as listener:
        peer.ask("BEGIN; INSERT INTO foo(id) VALUES(1)")
        peer.ask(
            "INSERT INTO bar VALUES('x', 1); INSERT INTO foo(id) VALUES(2); SAVEPOINT s; INSERT INTO foo(id) VALUES(3)"
        )
        ear.ask("NOTIFY nobody; LISTEN c; NOTIFY c 'before'")
        peer.ask("ROLLBACK TO s; COMMIT")
        ear.ask("NOTIFY c 'after'")
        received = listener.notifications(4)

    assert [(each["channel"], each["channel_type"]) for each in received[:1] + received[3:]] == [("c", "MESSAGE")] * 2
    assert {each["channel"]: len(each["payload"]) for each in received[1:3]} == {"foo": 2, "bar": 1}


def test_what_is_rolled_back_or_fails_is_not_told(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        peer.ask("BEGIN; INSERT INTO foo(id) VALUES(1); ROLLBACK")
        assert peer.ask("INSERT INTO foo(id) VALUES(2), (2)")[0] == 19
        peer.ask("SAVEPOINT s; INSERT INTO foo(id) VALUES(3); RELEASE s")
        (received,) = listener.notifications()

    assert received["payload"] == [{"sqlite_type": "INSERT", "id": 3, "col1": None, "col2": None}]


def test_a_commit_that_fails_tells_nothing(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen("LISTEN TABLE *", server.port) as listener:
        peer.ask("CREATE TABLE baz(id INTEGER PRIMARY KEY, foo REFERENCES foo DEFERRABLE INITIALLY DEFERRED)")
        peer.ask("PRAGMA foreign_keys = ON; BEGIN; INSERT INTO baz VALUES(1, 99)")
        assert peer.ask("COMMIT") == (19, "FOREIGN KEY constraint failed")
        peer.ask("INSERT INTO foo(id) VALUES(99); COMMIT")
        assert peer.ask("INSERT INTO baz VALUES(2, 98)")[0] == 19
        peer.ask("INSERT INTO foo(id) VALUES(1)")
        received = listener.notifications(3)

    assert sorted((each["channel"], [row["id"] for row in each["payload"]]) for each in received) == [
        ("baz", [1]),
        ("foo", [1]),
        ("foo", [99]),
    ]


@pytest.mark.parametrize(
    ("capture", "entries"),
    [
        (CaptureMode.SESSION, [{"type": "DELETE", "pv": [1]}, {"type": "INSERT", "id": 2, "col1": "a", "col2": "z"}]),
        (CaptureMode.HOOK_FULL, [{"type": "UPDATE", "id": 2, "col1": "a", "col2": "z", "pv": [1]}]),
        (CaptureMode.HOOK_CHANGED, [{"type": "UPDATE", "id": 2, "col2": "z", "pv": [1]}]),
    ],
)
def test_a_key_move_is_told_in_each_of_the_three_ways(
    serve: Serve, capture: CaptureMode, entries: list[object]
) -> None:
    server = serve(ServerOptions(capture=capture, dialect=OLD))
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        peer.ask("INSERT INTO foo VALUES(1, 'a', 'b')")
        peer.ask("BEGIN; SAVEPOINT s; DELETE FROM foo; ROLLBACK TO s")
        peer.ask("UPDATE foo SET id = 2, col2 = 'z'; COMMIT")
        received = listener.notifications(2)[1]

    assert sorted(received["payload"], key=str) == sorted(entries, key=str)


def test_savepoints_of_one_name_are_undone_as_sqlite_does_it(serve: Serve) -> None:
    server = serve(ServerOptions(capture=CaptureMode.HOOK_FULL))
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        peer.ask('BEGIN; SAVEPOINT s; INSERT INTO foo(id) VALUES(1); SAVEPOINT "S"; INSERT INTO foo(id) VALUES(2)')
        peer.ask("RELEASE s; INSERT INTO foo(id) VALUES(3); ROLLBACK TO s -- all three")
        peer.ask("INSERT INTO foo(id) VALUES(4); INSERT OR IGNORE INTO foo(id) VALUES(4); COMMIT")
        (received,) = listener.notifications()

        assert [entry["id"] for entry in received["payload"]] == [4]
        assert peer.ask("SELECT id FROM foo") == [(4,)]


def test_what_a_statement_returns_is_answered_and_told(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        assert peer.ask("INSERT INTO foo(id) VALUES(5) RETURNING id + 1") == [(6,)]
        assert [entry["id"] for entry in listener.notifications()[0]["payload"]] == [5]


def test_a_table_dropped_after_it_was_changed_is_not_told_and_the_server_lives(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        peer.ask("BEGIN; INSERT INTO foo(id) VALUES(1); DROP TABLE foo; COMMIT")
        peer.ask("CREATE TABLE foo(k PRIMARY KEY); INSERT INTO foo VALUES('x')")

        assert listener.notifications()[0]["payload"] == [{"sqlite_type": "INSERT", "k": "x"}]


def test_columns_called_like_reserved_words_and_every_kind_of_value_are_written(serve: Serve) -> None:
    server = serve(
        ServerOptions(dialect=Dialect(words="old", old_key="always", null="absent", blob="hex", large_integers="text"))
    )
    with writer(server) as peer, peer.listen("LISTEN TABLE odd", server.port) as listener:
        peer.ask('CREATE TABLE odd(type TEXT PRIMARY KEY, pv, "a""b") WITHOUT ROWID')
        peer.ask("INSERT INTO odd VALUES('ü\"', x'00ff', 1e999), ('y', 9007199254740993, NULL)")
        first = json_text(listener.message()).decode()
        peer.ask("UPDATE odd SET pv = 2.0 WHERE type = 'y'")
        second = json_text(listener.message()).decode()

    assert '{"type":"INSERT","type":"ü\\"","pv":"00ff","a\\"b":9.0e+999}' in first
    assert '{"type":"INSERT","type":"y","pv":"9007199254740993"}' in first
    assert second.endswith('"payload":[{"type":"UPDATE","type":"y","pv":2.0,"pv":["y"]}]}')


def test_channels_are_made_removed_and_listed(server: SqliteCloudServer) -> None:
    with writer(server) as peer:
        assert peer.ask("CREATE CHANNEL c1;") == "OK"
        assert peer.ask("CREATE CHANNEL c1") == (10005, "Cannot create channel c1 because it already exists.")
        assert peer.ask("CREATE CHANNEL ? IF NOT EXISTS;", "c1") == "OK"
        assert peer.ask("CREATE CHANNEL ?;", "it's; two") == "OK"
        assert peer.ask("LIST CHANNELS") == [("c1",), ("it's; two",)]
        with peer.listen("LISTEN c1;", server.port) as listener:
            assert peer.ask("NOTIFY c1 'it''s';") == "OK"
            assert peer.ask("NOTIFY ? ?;", "c1", '{"a":";"}') == "OK"
            assert peer.ask("NOTIFY c1, x") == "OK"
            assert peer.ask("NOTIFY c1") == "OK"
            received = listener.notifications(4)
            assert peer.ask("LIST PUBSUB CONNECTIONS")[0][2] == "c1"
        assert peer.ask("REMOVE CHANNEL ?;", "c1") == "OK"
        assert peer.ask("REMOVE CHANNEL c1")[0] == 10005
        assert peer.ask("LIST CHANNELS") == [("it's; two",)]
    assert [each.get("payload") for each in received] == ["it's", '{"a":";"}', "x", None]


def test_nobody_hears_what_he_did_not_ask_for_or_not_any_more(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen("LISTEN a", server.port) as listener:
        peer.ask("LISTEN b; LISTEN TABLE foo; LISTEN TABLE FOO; LISTEN TABLE bar")
        assert peer.ask("LIST TABLES PUBSUB") == [("bar",), ("foo",)]
        peer.ask("UNLISTEN a; UNLISTEN TABLE bar")
        peer.ask("NOTIFY a 1; INSERT INTO bar VALUES(1, 1); INSERT INTO foo(id) VALUES(1); NOTIFY b 2")
        assert [each["channel"] for each in listener.notifications(2)] == ["foo", "b"]
        peer.ask("UNLISTEN TABLE *; INSERT INTO foo(id) VALUES(2); NOTIFY b 3")
        assert listener.notifications()[0]["channel"] == "b"
        peer.ask("UNLISTEN *; NOTIFY b 4; LISTEN c; NOTIFY c 5")
        assert listener.notifications()[0]["channel"] == "c"


def test_a_database_says_nothing_where_a_channel_is_listened_to(server: SqliteCloudServer) -> None:
    with writer(server) as peer, peer.listen("LISTEN c DATABASE no.db", server.port) as listener:
        peer.ask("NOTIFY c 1")
        assert listener.notifications()[0]["payload"] == "1"


@pytest.mark.parametrize("answer", ["ok", "ticket"])
def test_only_the_first_listen_is_surely_answered_with_the_ticket(serve: Serve, answer: str) -> None:
    server = serve(ServerOptions(repeated_listen=answer))
    with writer(server) as peer:
        first, second = peer.ask("LISTEN a"), peer.ask("LISTEN b")

    assert isinstance(first, PubSubOffer)
    assert second == ("OK" if answer == "ok" else first)


def test_a_ticket_opens_one_session_and_a_wrong_one_none(serve: Serve) -> None:
    server = serve()
    with writer(server) as peer, Peer(server.port) as other:
        ticket = peer.ask("LISTEN a")
        forged = ticket.octets.decode()[:-4] + "beef"
        assert other.ask(forged)[0] == 10004
        assert other.ask(ticket.octets.decode()) == "OK"
        assert other.ask("LISTEN whatever") == "OK"  # this stream is the server's: its words mean nothing
        peer.ask("NOTIFY a 'x'")
        assert other.notifications()[0]["payload"] == "x"
    with writer(serve(ServerOptions(refuse_pauth=True))) as peer:
        assert peer.ask(peer.ask("LISTEN a").octets.decode())[0] == 10004


def test_a_session_ends_with_its_main_connection_unless_it_wants_only_pubsub(server: SqliteCloudServer) -> None:
    with writer(server) as peer, writer(server) as stays:
        ended = peer.listen("LISTEN c", server.port)
        goes_on = stays.listen("LISTEN c", server.port)
        assert stays.ask("PUBSUB ONLY;") == "OK"
        stays.close()
        peer.close()
        assert ended.message() is None
        with writer(server) as third:
            third.ask("NOTIFY c 'still'")
        assert goes_on.notifications()[0]["payload"] == "still"
        goes_on.close()
        ended.close()
    wait_until(lambda: server.client_count == 0, "the clients to be gone")


def test_the_order_of_notifications_is_the_order_of_commits_of_many_writers(server: SqliteCloudServer) -> None:
    with writer(server) as ear, ear.listen("LISTEN TABLE foo", server.port) as listener:
        ear.ask("INSERT INTO foo VALUES(0, 0, NULL)")
        threads = [threading.Thread(target=count_up, args=(server,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        received = listener.notifications(101)[1:]
        for thread in threads:
            thread.join()

    assert [int(each["payload"][0]["col1"]) for each in received] == list(range(1, 101))
    assert len({each["sender"] for each in received}) == 4


def count_up(server: SqliteCloudServer) -> None:
    with writer(server) as peer:
        for _ in range(25):
            assert peer.ask("UPDATE foo SET col1 = col1 + 1")[0] == 10


@pytest.mark.parametrize("pacing", [Pacing.JOINED, Pacing.SPLIT])
def test_thousands_of_notifications_arrive_however_they_are_written(serve: Serve, pacing: Pacing) -> None:
    server = serve(ServerOptions(pacing=pacing))
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        for number in range(20):
            peer.ask(";".join(f"NOTIFY c {number * 100 + each}" for each in range(100)))
        assert [int(each["payload"]) for each in listener.notifications(2_000)] == list(range(2_000))


def test_faults_hit_the_notifications_named(serve: Serve) -> None:
    server = serve(
        ServerOptions(pacing=Pacing.JOINED, drop={2}, double=range(3, 4), close_pubsub_after=5, notification_frame="+")
    )
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        peer.ask(";".join(f"NOTIFY c {number}" for number in range(1, 8)))
        assert [each["payload"] for each in listener.notifications(5)] == ["1", "3", "3", "4", "5"]
        assert listener.message() is None
        assert peer.ask("PING") == "PONG"


def test_a_notification_may_be_cut_or_announced_as_absurdly_long(serve: Serve) -> None:
    server = serve(ServerOptions(cut=2))
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        peer.ask("NOTIFY c 1; NOTIFY c 2")
        listener.notifications()
        assert listener.message() is None
        assert listener.cutter.held > 40
    server = serve(ServerOptions(oversize=1))
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        peer.ask("NOTIFY c 1")
        assert listener.socket.recv(4096).startswith(b"#1125899906842624 {")


def test_who_does_not_read_is_dropped_and_no_other_notices(serve: Serve) -> None:
    server = serve(ServerOptions(pacing=Pacing.JOINED, most_unsent=1 << 20))
    with (
        capture_logs() as logged,
        writer(server) as peer,
        peer.listen("LISTEN c", server.port) as listener,
    ):
        for _ in range(30):
            assert peer.ask("NOTIFY c ?", "x" * 1_000_000) == "OK"
        wait_until(lambda: server.listening_count == 0, "the slow one to be dropped")
        wait_until(lambda: any(each["event"] == "client_dropped" for each in logged), "the reason in the log")
        received = 0
        while listener.message() is not None:
            received += 1

    assert received < 30
    (dropped,) = (each for each in logged if each["event"] == "client_dropped")
    assert dropped["reason"] == "the client does not read: no room is left for its notifications"


def test_who_does_not_read_may_miss_some_without_a_word(serve: Serve) -> None:
    server = serve(ServerOptions(pacing=Pacing.JOINED, slow_reader="drop", most_unsent=1 << 20))
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        for _ in range(30):
            assert peer.ask("NOTIFY c ?", "x" * 1_000_000) == "OK"
        received = [""]
        while received[-1] != "last":
            peer.ask("NOTIFY c last")
            received.append(listener.notifications()[0]["payload"])

    assert len([text for text in received if text.startswith("x")]) < 30


def test_writers_may_be_made_to_wait_for_who_does_not_read(serve: Serve) -> None:
    server = serve(ServerOptions(pacing=Pacing.JOINED, slow_reader="stall", most_unsent=1 << 20))
    with writer(server) as peer, peer.listen("LISTEN c", server.port) as listener:
        done = threading.Event()
        thread = threading.Thread(
            target=lambda: [peer.ask("NOTIFY c ?", "x" * 1_000_000) for _ in range(30)] and done.set()
        )
        thread.start()
        assert not done.wait(0.5)
        assert len(listener.notifications(30)) == 30
        assert done.wait(30)
        thread.join()


def test_a_server_can_be_closed_while_a_writer_waits(serve: Serve) -> None:
    server = serve(ServerOptions(slow_reader="stall", most_unsent=1))
    with writer(server) as peer, peer.listen("LISTEN c", server.port):
        peer.socket.settimeout(0.3)
        with suppress(TimeoutError):  # once the writer waits, its requests wait too
            for _ in range(60):
                peer.say(f"NOTIFY c '{'x' * 500_000}'")
        peer.socket.settimeout(PATIENCE)
        server.close()
        while (message := peer.message()) is not None:
            assert to_python(message) == "OK"


def test_connections_are_broken_when_asked_and_clients_may_come_back(server: SqliteCloudServer) -> None:
    with writer(server) as peer:
        ticket = peer.ask("LISTEN c")
        with pauth(server.port, ticket) as listener:
            server.disconnect_listeners()
            assert listener.message() is None
        assert peer.ask("PING") == "PONG"
        with pauth(server.port, ticket) as again:
            peer.ask("NOTIFY c 'back'")
            assert again.notifications()[0]["payload"] == "back"
        server.disconnect_all()
        assert peer.message() is None
    assert server.client_count == 0


def test_notifications_may_be_late_and_the_servers_own_sender_a_text(serve: Serve) -> None:
    server = serve(ServerOptions(pacing=Pacing.JOINED, delay=0.2, server_sender="text"))
    own = server.own_session("shop.db")
    with writer(server) as peer, peer.listen(LISTEN, server.port) as listener:
        begun = time.monotonic()
        own.transactions.run("INSERT INTO foo(id) VALUES(1)", lambda _count: ())
        (received,) = listener.notifications()

    assert time.monotonic() - begun >= 0.2
    assert received["sender"] == "0"
