"""The receiver against the true server: what lands, in which order, and what a table comes to."""

import asyncio

import pytest

from silverfold.connectors.frames import Kind
from silverfold.connectors.sqlitecloud.options import SqliteCloudTable
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from tests.support.sqlitecloud.receiving import database, receiving, stored

WHOLE = ["fence low", "control", "snapshot begin, begin", "snapshot, inside", "fence high", "snapshot complete, end"]


def run(use, *arguments, **options):
    async def running():
        async with receiving(*arguments, **options) as at:
            return await use(at)

    return asyncio.run(running())


def test_a_table_is_listened_to_read_under_a_fence_and_then_followed(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        await at.db.exec("INSERT INTO foo VALUES (1, 'x', NULL)")
        await at.db.exec("UPDATE foo SET a = 'y' WHERE id = 1")
        await at.await_notifications("foo", 2)
        return at.sink

    sink = run(use, path)
    assert sink.outline("foo") == [*WHOLE, "data, whole", "data, whole"]
    assert [mark["tables"] for mark in sink.marks("listening")] == [["foo"]]
    assert [mark["database"] for mark in sink.marks("logged in")] == ["shop.db"]
    assert sink.frames[-1].body.startswith(b"#")
    assert sink.folded("foo") == [{"id": 1, "a": "y", "b": None}]


def test_a_snapshot_lands_frame_by_frame_as_it_came_its_end_included(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        return at.sink

    with_rows = ["CREATE TABLE foo(id INTEGER PRIMARY KEY, a, b)"]
    with_rows += [f"INSERT INTO foo VALUES ({n}, 'a', 'b')" for n in range(5)]
    (tmp_path / "two").mkdir()
    sink = run(use, database(tmp_path / "two", *with_rows), max_rows=2)
    assert sink.outline("foo") == [*WHOLE[:3], *["snapshot, inside"] * 4, *WHOLE[4:]]
    bodies = [frame.body[:1] for frame in sink.frames if frame.kind == "snapshot"]
    assert bodies == [b"/", b"/", b"/", b"/"]
    assert [frame.body for frame in sink.frames if frame.kind == "snapshot"][-1] == b"/6 0 0 0 "
    assert len(sink.folded("foo")) == 5
    empty = run(use, path)
    assert empty.folded("foo") == []


def test_pages_are_read_by_a_composite_key_of_any_types(tmp_path):
    path = database(
        tmp_path,
        "CREATE TABLE foo(k, l TEXT COLLATE NOCASE, v, g AS (v || '!'), PRIMARY KEY (l, k))",
        "INSERT INTO foo VALUES (1,'a',1), (2.5,'A',2), ('x','b',3), ('y','B',4), (7,'c',5), ('z','C',6), (8,'d',7)",
    )

    async def use(at):
        await at.complete()
        return at.sink

    sink = run(use, path, {"foo": SqliteCloudTable(types={"k": "string"})}, page_rows=2)
    assert sink.outline("foo")[4:-2] == ["snapshot, inside"] * 4
    frames = b"".join(frame.body for frame in sink.frames if frame.kind == "snapshot")
    assert [frames.count(f":{n} ".encode()) for n in (3, 4, 5, 6)] == [1, 1, 1, 1]
    assert b"!" not in frames


def test_no_page_passes_over_rows_that_share_a_key(tmp_path):
    path = database(
        tmp_path, "CREATE TABLE foo(k TEXT, v)", "INSERT INTO foo VALUES ('a',701), ('a',702), ('a',703), ('b',704)"
    )

    async def use(at):
        await at.complete()
        return at.sink

    sink = run(use, path, {"foo": SqliteCloudTable(keys=("k",))}, page_rows=1)
    rows = b"".join(frame.body for frame in sink.frames if frame.kind == "snapshot")
    assert [rows.count(b":70%d " % n) for n in (1, 2, 3, 4)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("key", "code"), [("NULL", "null-key"), ("'x' || char(0)", "nul-in-key")])
def test_a_key_behind_which_no_page_can_begin_is_told_and_others_are_read_all_the_same(tmp_path, key, code):
    path = database(
        tmp_path,
        "CREATE TABLE bar(id INTEGER PRIMARY KEY)",
        "CREATE TABLE foo(k TEXT PRIMARY KEY, v)",
        f"INSERT INTO foo VALUES ({key}, 1)",
    )

    async def use(at):
        await at.until(lambda: at.sink.marks("snapshot void", "foo"), "the end of the attempt")
        await at.complete("bar")
        return at.sink

    sink = run(use, path, {"foo": SqliteCloudTable(), "bar": SqliteCloudTable()}, page_rows=1)
    assert f"{code}: a row has a NUL" in sink.marks("snapshot void")[0]["reason"]


def test_whatever_is_written_meanwhile_a_snapshot_and_what_overlays_it_come_to_the_table(tmp_path):
    rows = [f"INSERT INTO foo VALUES ({n}, 'a{n}', 'b{n}')" for n in range(300)]
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a TEXT, b TEXT)", *rows)

    async def use(at):
        for n in range(12):
            await at.db.exec(
                "UPDATE foo SET a = ? WHERE id = ?; DELETE FROM foo WHERE id = ?;"
                "INSERT OR REPLACE INTO foo VALUES (?, ?, ?)",
                *(f"new{n}", n, (n * 7) % 300, 1000 + n % 9, "ins", str(n)),
            )
        await at.complete()
        await at.db.exec("INSERT INTO foo VALUES (-1, 'last', NULL)")
        await at.await_text('"id":-1', "the last row")
        return at.sink

    sink = run(use, path, max_rows=10)
    assert sink.folded("foo") == stored(path)


def test_every_table_that_has_a_key_is_read_when_all_are_wanted_and_one_without_is_told(tmp_path):
    path = database(
        tmp_path,
        "CREATE TABLE foo(id INTEGER PRIMARY KEY, a)",
        "CREATE TABLE other(k TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE keyless(a)",
        "INSERT INTO other VALUES ('x')",
    )

    async def use(at):
        await at.complete("other")
        await at.complete("foo")
        return at.sink

    sink = run(use, path, all_tables=True)
    assert sink.folded("other") == [{"k": "x"}]
    (left_out,) = sink.marks("table left out")
    assert left_out["reason"] == (
        "no-key: the table has no primary key, so its rows cannot be told apart: name its keys in the settings"
    )
    assert [mark["tables"] for mark in sink.marks("listening")] == ["*"]


@pytest.mark.parametrize("all_tables", [False, True])
def test_a_server_that_takes_channels_for_tables_can_be_listened_to(tmp_path, all_tables):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        await at.db.exec("INSERT INTO foo VALUES (1, 'x', NULL)")
        await at.await_notifications("foo", 1)
        return at.sink

    server_options = ServerOptions(pacing=Pacing.JOINED, dialect=Dialect(words=Vocabulary.OLD))
    sink = run(use, path, server_options=server_options, listen="channel", all_tables=all_tables)
    assert sink.outline("foo") == [*WHOLE, "data, whole"]
    assert sink.folded("foo") == [{"id": 1, "a": "x", "b": None}]


def test_a_new_table_is_read_without_a_new_epoch_when_all_are_wanted(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        await at.db.exec("CREATE TABLE later(id INTEGER PRIMARY KEY, v)")
        await at.db.exec("INSERT INTO later VALUES (1, 2)")
        await at.complete("later")
        return at.sink

    sink = run(use, path, all_tables=True)
    assert sink.outline("later") == ["data, whole", "unknown stream", *WHOLE]
    assert sink.folded("later") == [{"id": 1, "v": "2"}]
    assert len(sink.marks("logged in")) == 1


def test_a_new_column_lets_the_table_be_read_again_in_the_same_epoch(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        await at.db.exec("INSERT INTO foo VALUES (1, 'x', 'y')")
        await at.db.exec("ALTER TABLE foo ADD COLUMN c TEXT DEFAULT 'old'")
        await at.db.exec("INSERT INTO foo VALUES (2, 'x', 'y', 'new')")
        await at.complete(count=2)
        return at.sink

    sink = run(use, path)
    assert sink.outline("foo") == [*WHOLE, "data, whole", "data, whole", "snapshot due", *WHOLE]
    assert sink.marks("snapshot due")[0]["reason"] == "other columns"
    assert sink.folded("foo") == [
        {"id": 1, "a": "x", "b": "y", "c": "old"},
        {"id": 2, "a": "x", "b": "y", "c": "new"},
    ]


ROWS = "INSERT INTO foo VALUES (1, 'old', NULL), (2, 'old', NULL)"
FOO = "CREATE TABLE foo(id INTEGER PRIMARY KEY, a TEXT, b TEXT)"


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE foo", FOO],
        ["BEGIN", "DROP TABLE foo", FOO, "INSERT INTO foo VALUES (2, 'new', NULL)", "COMMIT"],
        ["ALTER TABLE foo RENAME TO bar", FOO, "INSERT INTO foo VALUES (1, 'new', NULL)"],
        [
            FOO.replace("foo", "bar"),
            "INSERT INTO bar VALUES (3, 'new', NULL)",
            "DROP TABLE foo",
            "ALTER TABLE bar RENAME TO foo",
        ],
        ["CREATE TABLE bar(id INTEGER PRIMARY KEY)", "DROP TABLE bar", "UPDATE foo SET a = 'new' WHERE id = 2"],
    ],
    ids=["new", "new with rows, in one transaction", "renamed", "exchanged", "of others"],
)
def test_a_table_that_is_made_anew_is_read_again_though_nobody_tells(tmp_path, statements):
    path = database(tmp_path, FOO, ROWS)

    async def use(at):
        await at.complete()
        for statement in statements:
            await at.db.exec(statement)
        await at.complete(count=2)
        return at.sink

    sink = run(use, path, canary_seconds=0.2)
    assert sink.marks("snapshot due")[0]["reason"] == "schema_changed"
    assert sink.folded("foo") == stored(path)
    assert len(sink.marks("logged in")) == 1


@pytest.mark.parametrize("options", [{}, {"all_tables": True}, {"fence": False, "settle_seconds": 0.05}])
def test_a_table_that_is_gone_is_read_again_once_another_one_has_its_name(tmp_path, options):
    path = database(tmp_path, FOO, ROWS)

    async def use(at):
        await at.complete()
        await at.db.exec("ALTER TABLE foo RENAME TO bar")
        await at.until(lambda: at.sink.marks("table left out", "foo"), "the table to be missed")
        await at.db.exec("UPDATE bar SET a = 'new' WHERE id = 2")
        await at.db.exec("ALTER TABLE bar RENAME TO foo")
        await at.complete(count=2)
        await at.db.exec("DELETE FROM foo WHERE id = 1")
        await at.await_text("DELETE", "the last change")
        return at.sink

    sink = run(use, path, canary_seconds=0.2, **options)
    assert sink.folded("foo") == stored(path) == [{"id": 2, "a": "new", "b": None}]


def test_a_snapshot_during_which_a_table_is_made_anew_is_void(tmp_path):
    path = database(tmp_path, FOO, ROWS)

    async def use(at):
        land, statements = at.sink.land, ["INSERT INTO foo VALUES (99, 'old', NULL)", "DROP TABLE foo", FOO]

        async def land_and_change(frames):
            await land(frames)
            while statements and any(frame.kind is Kind.SNAPSHOT for frame in frames):
                await at.db.exec(statements.pop(0))

        at.sink.land = land_and_change
        await at.complete()
        return at.sink

    sink = run(use, path)
    assert [mark["reason"] for mark in sink.marks("snapshot void")] == ["schema_changed"]
    assert sink.folded("foo") == []


def test_a_server_that_does_not_say_the_version_of_its_schema_is_told_and_followed_all_the_same(tmp_path, monkeypatch):
    path = database(tmp_path)
    monkeypatch.setattr(
        "silverfold.connectors.sqlitecloud.receiver.introspection._SCHEMA_VERSION", "PRAGMA no such pragma"
    )

    async def use(at):
        await at.complete()
        await at.db.exec("INSERT INTO foo VALUES (1, 'x', NULL)")
        await at.await_notifications("foo", 1)
        return at.sink

    sink = run(use, path, canary_seconds=0.05)
    assert len(sink.marks("no schema version")) == 1
    assert sink.folded("foo") == stored(path)


def test_parts_of_a_key_that_may_be_null_are_told_with_every_snapshot(tmp_path):
    path = database(
        tmp_path,
        "CREATE TABLE text_key(id TEXT PRIMARY KEY)",
        "CREATE TABLE int_key(id INT PRIMARY KEY)",
        "CREATE TABLE parts(a INTEGER, b TEXT NOT NULL, PRIMARY KEY (b, a))",
        "CREATE TABLE rowid(id integer PRIMARY KEY, a)",
        "CREATE TABLE rowless(id TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE strict(id TEXT PRIMARY KEY) STRICT",
        "CREATE TABLE required(id TEXT NOT NULL PRIMARY KEY)",
        "CREATE TABLE keyless(a INTEGER, b NOT NULL)",
    )
    names = ("text_key", "int_key", "parts", "rowid", "rowless", "strict", "required", "keyless")

    async def use(at):
        for name in names:
            await at.complete(name)
        return at.sink

    sink = run(use, path, {name: SqliteCloudTable(keys=("a", "b") if name == "keyless" else ()) for name in names})
    columns = {name: mark["columns"] for name in names for mark in sink.marks("nullable key", name)}
    assert columns == {"text_key": ["id"], "int_key": ["id"], "parts": ["a"], "keyless": ["a"]}


def test_a_table_is_read_again_when_reconciliation_is_due(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete(count=3)
        return at.sink

    sink = run(use, path, reconcile_hours=0.1 / 3600)
    assert sink.outline("foo")[: 2 * len(WHOLE)] == WHOLE * 2
    assert len(sink.marks("logged in")) == 1


def test_messages_land_in_streams_of_their_channels_beside_a_table_of_the_same_name(tmp_path):
    path = database(tmp_path)
    tables = {"foo": SqliteCloudTable(), "said": SqliteCloudTable(channel="foo")}

    async def use(at):
        await at.db.create_channel("foo", if_not_exists=True)
        await at.complete()
        await at.db.notify("foo", "hello")
        await at.await_notifications("notify:foo", 1)
        return at.sink

    sink = run(use, path, tables)
    assert sink.outline("foo") == WHOLE
    assert b"hello" in sink.frames[-1].body


def test_without_a_fence_the_window_of_the_first_snapshot_begins_where_the_table_was_listened_to(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a)", "INSERT INTO foo VALUES (1, 2)")

    async def use(at):
        await at.complete(count=2)
        return at.sink

    sink = run(use, path, fence=False, settle_seconds=0.05, reconcile_hours=0.01 / 3600)
    assert sink.outline("foo")[:7] == [
        "control",
        "snapshot, begin",
        "snapshot complete, end",
        "control",
        "snapshot begin, begin",
        "snapshot, inside",
        "snapshot complete, end",
    ]
    assert not [frame for frame in sink.frames if (frame.stream or "").startswith("notify:")]


def test_a_stop_lands_what_has_arrived_without_waiting_for_room_and_removes_our_channel(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        before = await at.db.list_channels()
        at.sink.is_full = True
        at.running.cancel()
        await asyncio.wait([at.running], timeout=10)
        return before, await at.db.list_channels()

    before, after = run(use, path)
    assert [name[:11] for name in before] == ["silverfold-"]
    assert after == []
