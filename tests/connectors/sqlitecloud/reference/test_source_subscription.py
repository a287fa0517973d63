"""A watch of one table against the true server: a snapshot as of one moment, then every commit as an update."""

import json
from dataclasses import replace

import apsw
import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from silverfold.connectors.sqlitecloud.reference.source_subscription import SqliteCloudSourceSubscription
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.pipelines.verifying.table_fold import TableFold
from tests.support.peers import peer
from tests.support.polling import tries
from tests.support.sqlitecloud.peer import Peer
from tests.support.sqlitecloud.receiving import JOINED, database, url


def watch_of(address, table="foo", listen="table", **settings):
    options, tables = SqliteCloudOptions(listen=listen), {table: SqliteCloudTable(**settings)}
    return SqliteCloudSourceSubscription(Feed("shop", "sqlitecloud", address, options, tables), table)


def taken(watch, count):
    updates = []
    for _ in tries(f"{count} updates"):
        updates += watch.take(10)
        if len(updates) >= count:
            break
    return updates


def folded(watch, updates):
    fold = TableFold(watch.keys)
    for update in updates:
        fold.apply(update.changes, snapshot=update.snapshot)
    return sorted(fold.all_rows(), key=str)


def test_the_table_comes_as_a_snapshot_and_every_commit_after_it_as_an_update(tmp_path):
    path = database(
        tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a)", "INSERT INTO foo VALUES (1, 'x'), (2, 'y')"
    )
    with SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server, watch_of(url(server)) as watch:
        (first,) = taken(watch, 1)
        assert (first.snapshot, watch.keys, watch.columns) == (True, ("id",), ("id", "a"))
        assert folded(watch, [first]) == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]
        with Peer(server.port) as peer:
            peer.ask("USE DATABASE shop.db;")
            peer.ask("UPDATE foo SET id = 9 WHERE id = 1")
            peer.ask("DELETE FROM foo WHERE id = 2")
        rest = taken(watch, 2)
        assert [update.snapshot for update in rest] == [False, False]
        assert folded(watch, [first, *rest]) == [{"id": 9, "a": "x"}]


def test_a_server_that_takes_channels_for_tables_is_listened_to_as_the_settings_say(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a)")
    old = replace(JOINED, dialect=Dialect(words=Vocabulary.OLD))
    with (
        SqliteCloudServer.start({"shop.db": path}, options=old) as server,
        watch_of(url(server), listen="channel") as watch,
        Peer(server.port) as peer,
    ):
        (first,) = taken(watch, 1)
        peer.ask("USE DATABASE shop.db; INSERT INTO foo VALUES (1, 'x')")
        rest = taken(watch, 1)
    assert folded(watch, [first, *rest]) == [{"id": 1, "a": "x"}]


def test_a_table_without_a_key_cannot_be_watched_unless_the_settings_name_one(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(a TEXT)", "INSERT INTO foo VALUES ('x')")
    with SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server:
        with pytest.raises(SourceRefused, match="no-key"), watch_of(url(server)):
            pass
        with watch_of(url(server), keys=("a",)) as watch:
            assert folded(watch, taken(watch, 1)) == [{"a": "x"}]


def test_a_watch_says_that_rows_share_a_key(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(k TEXT, a)", "INSERT INTO foo VALUES ('x', 1), ('y', 2), ('x', 3)")
    with (
        SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server,
        watch_of(url(server), keys=("k",)) as w,
        pytest.raises(RemoteProtocolError, match="duplicate_key"),
    ):
        taken(w, 1)


def test_a_row_with_a_null_key_that_no_notification_tells_is_seen(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(id TEXT PRIMARY KEY, a)", "INSERT INTO foo VALUES ('x', 1), (NULL, 5)")
    with SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server, watch_of(url(server)) as watch:
        assert folded(watch, taken(watch, 1)) == [{"id": "x", "a": "1"}, {"id": None, "a": "5"}]


def test_a_watch_whose_connection_is_lost_hands_out_what_it_had_and_then_says_so(tmp_path):
    path = database(tmp_path)
    with SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server, watch_of(url(server)) as watch:
        assert [update.snapshot for update in taken(watch, 1)] == [True]
        server.disconnect_all()
        with pytest.raises(SourceUnavailable):
            watch.take(10)


def test_a_watch_of_nobody_is_refused_as_its_block_begins(tmp_path):
    path = database(tmp_path)
    with SqliteCloudServer.start({"shop.db": path}) as server:
        address = url(server)
    with pytest.raises(SourceUnavailable), watch_of(address):
        pass


def test_a_watch_of_a_proxy_without_its_source_concerns_no_table():
    with peer(lambda connection: connection.recv(100) and connection.sendall(b"HTTP/1.1 503 x\r\n\r\n")) as port:
        address = f"sqlitecloud://u:p@127.0.0.1:{port}/shop.db?insecure=1"
        feed = Feed("shop", "sqlitecloud", address, SqliteCloudOptions(), {"foo": SqliteCloudTable()})
        with pytest.raises(SourceUnavailable), SqliteCloudSourceSubscription(feed, "foo"):
            pass


def test_a_watch_leaves_no_channel_behind(tmp_path):
    path = database(tmp_path)
    with SqliteCloudServer.start({"shop.db": path}, options=JOINED) as server:
        with watch_of(url(server)) as watch:
            taken(watch, 1)
        with Peer(server.port) as peer:
            peer.ask("USE DATABASE shop.db;")
            assert peer.ask("LIST CHANNELS") == []
    assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"


def test_rows_of_other_columns_than_were_described_are_not_those_of_the_table():
    reader = SqliteCloudReferenceReader("foo", SqliteCloudTable(), SqliteCloudOptions())
    columns = [{"name": "id", "type": "TEXT", "hidden": 0}, {"name": "v", "type": "TEXT", "hidden": 0}]
    description = {"table": "foo", "columns": columns, "keys": ["id"]}
    reader.control(ControlFrame(0, 1, "foo", json.dumps(description).encode()))
    rows = encode_rowset(Rowset((Column("id"), Column("w")), [("a", "b")]))
    with pytest.raises(RemoteProtocolError, match="not as described"):
        list(reader.changes(1, [(0, rows)]))
