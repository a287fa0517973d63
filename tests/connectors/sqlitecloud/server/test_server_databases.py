"""Whole databases: made, removed, uploaded and downloaded by clients, and in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from silverfold.connectors.sqlitecloud.protocol.encode import encode_value
from silverfold.connectors.sqlitecloud.server import served_databases
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.support.sqlitecloud.peer import Peer, to_python, writer


def upload(peer: Peer, name: str, octets: bytes, *, at_once: int = 1000) -> object:
    """Return the answer to the last part, or the first that is an error."""
    answer = peer.ask(f"UPLOAD DATABASE '{name}' ")
    for at in [*range(0, len(octets), at_once), len(octets)]:
        if answer != "OK":
            return answer
        peer.send(encode_value(octets[at : at + at_once]))
        answer = to_python(peer.message())
    return answer


def download(peer: Peer, name: str) -> bytes:
    size, pages, _ = peer.ask(f"DOWNLOAD DATABASE {name};")
    parts = []
    while part := peer.ask("DOWNLOAD STEP"):
        parts.append(part)
    octets = b"".join(parts)
    assert (len(octets), len(octets) % pages) == (size, 0)
    return octets


def test_a_database_is_downloaded_as_it_stands_and_uploaded_by_another_name(
    server: SqliteCloudServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silverfold.connectors.sqlitecloud.server.transfers.PART", 777)
    with writer(server) as peer:
        peer.ask("INSERT INTO foo VALUES (1, 'a', 'b')")
        octets = download(peer, "shop.db")
        (tmp_path / "copy.db").write_bytes(octets)
        with sqlite3.connect(tmp_path / "copy.db") as copied:
            assert copied.execute("SELECT * FROM foo").fetchall() == [(1, "a", "b")]
        copied.close()
        assert upload(peer, "other", octets) == "OK"
        assert peer.ask("USE DATABASE other; INSERT INTO foo(id) VALUES (2); SELECT id FROM foo") == [(1,), (2,)]
        assert peer.ask("UNUSE DATABASE; REMOVE DATABASE other") == "OK"
        assert peer.ask("USE DATABASE other") == (10001, "Database other not found.")
        assert peer.ask("USE DATABASE shop.db; SELECT id FROM foo") == [(1,)]


def test_what_is_no_database_is_not_taken(server: SqliteCloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with writer(server) as peer:
        assert upload(peer, "other", b"no database" * 1000) == (10005, "What was uploaded is no database.")
        assert peer.ask("USE DATABASE other")[0] == 10001
        monkeypatch.setattr(served_databases, "_LONGEST", 5000)
        assert upload(peer, "other", b"long" * 2000)[0] == 10005
        assert peer.ask("DOWNLOAD DATABASE shop.db")[0] == 10005
        peer.send(encode_value(b"of no upload"))
        assert to_python(peer.message()) == (10002, "No upload is under way: UPLOAD DATABASE first.")
        assert peer.ask("UPLOAD DATABASE other; UPLOAD ABORT") == "OK"
        assert peer.ask("CREATE DATABASE other; CREATE DATABASE other IF NOT EXISTS") == "OK"
        assert upload(peer, "other", b"")[0] == 10005


def test_a_download_of_nothing_may_be_asked_for(server: SqliteCloudServer) -> None:
    with writer(server) as peer:
        assert peer.ask("DOWNLOAD DATABASE nope IF EXISTS") == [0, 0, 0]
        assert peer.ask("DOWNLOAD DATABASE nope") == (10001, "Database nope does not exist.")
        assert peer.ask("REMOVE DATABASE nope IF EXISTS") == "OK"


def test_clients_make_so_many_databases(server: SqliteCloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_databases, "_MOST", 2)
    with writer(server) as peer:
        assert [peer.ask(f"CREATE DATABASE '{name}'") for name in ("a", "../b")] == ["OK", "OK"]
        assert peer.ask("CREATE DATABASE c") == (10005, "Database c cannot be made here.")
        assert peer.ask("USE DATABASE '../b'; CREATE TABLE t(a); SELECT * FROM t") == []


def test_a_database_in_memory_is_of_its_session_and_tells_what_is_written(server: SqliteCloudServer) -> None:
    with Peer(server.port) as peer, Peer(server.port) as other:
        assert peer.ask("USE DATABASE :memory:; CREATE TABLE t(id INTEGER PRIMARY KEY)")[0] == 10
        other.ask("USE DATABASE :memory:; CREATE TABLE t(id INTEGER PRIMARY KEY); LISTEN TABLE t")
        with peer.listen("LISTEN TABLE t", server.port) as listener:
            other.ask("INSERT INTO t VALUES (1)")
            peer.ask("BEGIN; LISTEN TABLE t; INSERT INTO t VALUES (2); COMMIT")
            assert listener.notifications()[0]["payload"][0]["id"] == 2
            assert peer.ask("USE DATABASE :memory:; SELECT * FROM t") == [(2,)]
            uuid = peer.ask("GET CLIENT KEY UUID")
            assert other.ask(f"USE DATABASE :memory:{uuid}")[0] == 10001
            peer.ask("USE DATABASE shop.db; USE DATABASE :memory:")
            assert peer.ask("SELECT * FROM t") == (1, "no such table: t")


def test_what_clients_made_goes_with_the_server(file: Path) -> None:
    with SqliteCloudServer.start({"shop.db": file}) as server, writer(server) as peer:
        peer.ask("CREATE DATABASE other; USE DATABASE other; CREATE TABLE t(a)")
        (folder,) = {Path(row[2]).parent for row in peer.ask("PRAGMA database_list")}
        assert folder.is_dir()
    assert not folder.exists()
