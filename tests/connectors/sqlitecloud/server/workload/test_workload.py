"""Any database can be kept changing: its constraints hold, its tables stay of a size, and a seed says it all."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.connectors.sqlitecloud.server.workload.workload import Workload
from tests.support.sqlitecloud.peer import Peer

SCHEMA = """
CREATE TABLE artist(id INTEGER PRIMARY KEY, name NVARCHAR(120) NOT NULL UNIQUE);
CREATE TABLE album(id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, artist INTEGER NOT NULL REFERENCES artist,
    released DATE, price NUMERIC(10,2) CHECK (price >= 0), slug AS (lower(title)) VIRTUAL);
CREATE TABLE playlist(name TEXT PRIMARY KEY, public BOOLEAN, cover BLOB) WITHOUT ROWID;
CREATE TABLE entry(playlist TEXT REFERENCES playlist DEFERRABLE INITIALLY DEFERRED, place INTEGER,
    album REFERENCES album(id) ON DELETE CASCADE, PRIMARY KEY(playlist, place));
CREATE TABLE strict_one(k ANY PRIMARY KEY, n INT, x REAL) STRICT;
CREATE TABLE "odd ""name"(a, type, "order" REAL);
CREATE TABLE stubborn(id INTEGER PRIMARY KEY, x NOT NULL CHECK (x = 'never'));
CREATE TRIGGER no_fives BEFORE DELETE ON artist WHEN old.id % 5 = 0 BEGIN SELECT RAISE(ROLLBACK, 'kept'); END;
INSERT INTO artist VALUES (1,'AC/DC'),(2,'Accept'),(3,'Aerosmith'),(5,'Alanis');
INSERT INTO album(title, artist, released, price) VALUES ('Rock',1,'2001-01-01',9.99),('Balls',2,NULL,5);
INSERT INTO playlist VALUES ('90s',1,x'00ff'),('Jazz',0,NULL);
INSERT INTO "odd ""name" VALUES (1,2,3);
INSERT INTO entry VALUES ('90s',1,1),('Jazz',1,2);
INSERT INTO strict_one VALUES (1,2,3.5),('one',NULL,NULL);
"""

SHOP = Path(__file__).parents[4] / "golden" / "sqlitecloud" / "music_shop.sql"
AT_FIRST = {
    "Album": 50,
    "Artist": 30,
    "Customer": 25,
    "Employee": 3,
    "Genre": 8,
    "Invoice": 60,
    "InvoiceLine": 150,
    "MediaType": 3,
    "Playlist": 5,
    "PlaylistTrack": 176,
    "Track": 200,
}


@pytest.fixture
def music(tmp_path: Path) -> Path:
    path = tmp_path / "music.db"
    connection = apsw.Connection(str(path))
    connection.execute(SCHEMA)
    connection.close()
    return path


def contents(path: Path) -> dict[str, list[object]]:
    connection = apsw.Connection(str(path))
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {name: connection.execute('SELECT * FROM "' + name.replace('"', '""') + '"').fetchall() for name in names}
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return found


def rows(connection: apsw.Connection, table: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


def worked(path: Path, seed: int, transactions: int) -> int:
    with SqliteCloudServer.start({"m": path}) as server:
        workload = Workload(server.own_session("m"), seed)
        return sum(workload.change() for _ in range(transactions))


def test_every_table_that_can_be_is_changed_and_its_constraints_hold(music: Path) -> None:
    before = contents(music)

    made = worked(music, 7, 300)

    after = contents(music)
    assert made > 300
    assert [name for name in before if before[name] == after[name]] == ["stubborn"]
    assert min(len(rows) for name, rows in after.items() if name not in {"stubborn", "sqlite_sequence"}) > 3
    assert max(map(len, after.values())) < 250


def test_tables_that_lose_rows_to_their_parents_keep_their_size(tmp_path: Path) -> None:
    path = tmp_path / "tree.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        """CREATE TABLE parent(id INTEGER PRIMARY KEY);
        CREATE TABLE child(id INTEGER PRIMARY KEY, parent INT NOT NULL REFERENCES parent ON DELETE CASCADE);
        INSERT INTO parent VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10);
        INSERT INTO child(parent) SELECT a.id FROM parent AS a, parent AS b"""
    )
    connection.close()

    worked(path, 3, 1_500)

    assert len(contents(path)["child"]) > 20


def test_no_table_of_a_shop_shrinks_or_swells_whatever_deletes_take_with_them(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(SHOP.read_text("utf-8"))
        connection.pragma("journal_mode", "wal")
        with SqliteCloudServer.start({"shop": path}) as server:
            session = server.own_session("shop")
            session.transactions.connection.pragma("synchronous", 0)
            workload, seen = Workload(session, 5), []
            for _ in range(5):
                for _ in range(120):
                    workload.change()
                seen.append({name: rows(connection, name) for name in AT_FIRST})

    assert [name for name, first in AT_FIRST.items() if min(each[name] for each in seen) < first / 2] == []
    assert [name for name, first in AT_FIRST.items() if max(each[name] for each in seen) > 2 * max(first, 10)] == []
    assert len({each["PlaylistTrack"] for each in seen}) > 1


def test_a_seed_says_what_happens(music: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again.db", tmp_path / "other.db"
    shutil.copy(music, again)
    shutil.copy(music, other)

    assert worked(music, 1, 60) == worked(again, 1, 60)
    worked(other, 2, 60)

    assert contents(music) == contents(again)
    assert contents(music) != contents(other)


def test_listeners_hear_of_its_changes_from_the_server_itself(music: Path) -> None:
    with (
        SqliteCloudServer.start({"m": music}, options=ServerOptions(pacing=Pacing.JOINED)) as server,
        Peer(server.port) as peer,
        peer.listen("LISTEN TABLE * DATABASE m", server.port) as listener,
    ):
        workload = Workload(server.own_session("m"), 3)
        while workload.change() < 2:
            pass
        (message,) = listener.notifications()

    assert message["sender"] == 0
    assert message["channel_type"] == "TABLE"


def test_tables_made_and_altered_later_are_worked_on(music: Path) -> None:
    with SqliteCloudServer.start({"m": music}) as server, Peer(server.port) as peer:
        workload = Workload(server.own_session("m"), 3)
        peer.ask(
            "USE DATABASE m; ALTER TABLE playlist ADD COLUMN later TEXT; CREATE TABLE fresh(id INTEGER PRIMARY KEY, x)"
        )
        for _ in range(100):
            workload.change()

    after = contents(music)
    assert len(after["fresh"]) > 3
    assert any(row[3] is not None for row in after["playlist"])


def test_a_database_without_tables_cannot_be_worked_on(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    apsw.Connection(str(path)).pragma("user_version", 1)

    with SqliteCloudServer.start({"e": path}) as server, pytest.raises(ConfigError, match="no table"):
        Workload(server.own_session("e"), 1)
