"""The receiver when something is lost: the epoch ends with its reason, what had come has landed, the next one is whole.

And when a snapshot does not come to what the table is: another attempt follows in the same epoch.
"""

import asyncio
import json

import apsw
import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.frames import Resume
from silverfold.connectors.sqlitecloud.options import SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_error, encode_json, encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset, ServerError
from silverfold.connectors.sqlitecloud.receiver import capture_tasks
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.support.polling import until
from tests.support.sqlitecloud.receiving import Sink, database, receiver_at, receiving, stored, url
from tests.support.sqlitecloud.scsp_peer import OK, TICKET, Peer, bound_text, scripted

XINFO = Rowset(
    tuple(map(Column, ("name", "type", "notnull", "pk", "hidden"))),
    [("id", "INTEGER", 0, 1, 0), ("a", "TEXT", 0, 0, 0)],
)


def run(use, *arguments, **options):
    async def running():
        async with receiving(*arguments, **options) as at:
            return await use(at)

    return asyncio.run(running())


def one_epoch(path, server_options, **options):
    """Run an epoch to its end, then one with a server that behaves; return both sinks, and what ended the first."""

    async def running():
        sink, second = Sink(), Sink()
        with (
            SqliteCloudServer.start({"shop.db": path}, options=server_options) as server,
            pytest.raises((SourceUnavailable, RemoteProtocolError)) as raised,
        ):
            await asyncio.wait_for(receiver_at(url(server), **options).run(sink, Resume(1)), 30)
        with SqliteCloudServer.start({"shop.db": path}, options=ServerOptions(pacing=Pacing.JOINED)) as server:
            again = asyncio.create_task(receiver_at(url(server), **options).run(second, Resume(2)))
            await until(lambda: second.marks("snapshot complete"), "a whole snapshot", work=again)
            again.cancel()
            await asyncio.wait([again])
        return sink, raised.value, second

    return asyncio.run(running())


@pytest.mark.parametrize("request_number", range(1, 11))
def test_the_end_of_the_main_connection_at_any_request_ends_the_epoch(request_number, tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY)", "INSERT INTO foo VALUES (1)")
    server_options = ServerOptions(pacing=Pacing.JOINED, close_main_at=request_number)
    sink, error, second = one_epoch(path, server_options, canary_seconds=0.05)
    assert isinstance(error, SourceUnavailable)
    assert second.folded("foo") == [{"id": 1}]
    if request_number <= 7:
        assert not sink.marks("snapshot complete")


def test_the_end_of_the_main_connection_inside_a_result_ends_the_epoch_and_the_chunks_have_landed(tmp_path):
    rows = [f"INSERT INTO foo VALUES ({n})" for n in range(9)]
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY)", *rows)
    server_options = ServerOptions(pacing=Pacing.JOINED, close_main_after_chunk=2)
    sink, error, _ = one_epoch(path, server_options, max_rows=2)
    assert isinstance(error, SourceUnavailable)
    assert sink.outline("foo") == [
        "fence low",
        "control",
        "snapshot begin, begin",
        "snapshot, inside",
        "snapshot, inside",
    ]


@pytest.mark.parametrize("switch", [{"close_pubsub_after": 1}, {"refuse_pauth": True}, {"cut": 1}, {"oversize": 1}])
def test_whatever_ends_the_pubsub_connection_ends_the_epoch(switch, tmp_path):
    path = database(tmp_path)
    sink, error, second = one_epoch(path, ServerOptions(pacing=Pacing.JOINED, **switch))
    assert isinstance(error, SourceUnavailable | RemoteProtocolError)
    assert not sink.marks("snapshot complete")
    assert second.marks("snapshot complete")
    bad = [mark["reason"] for mark in sink.marks("bad frame")]
    expected = {"cut": "truncated", "oversize": "too_large"}
    assert [reason.partition(":")[0].partition(" ")[0] for reason in bad] == [
        expected[k] for k in switch if k in expected
    ]


def test_a_fence_that_does_not_come_back_ends_the_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_tasks, "RETURN_WITHIN", 0.2)

    async def use(at):
        return await at.ended(), at.sink

    error, sink = run(use, database(tmp_path), server_options=ServerOptions(pacing=Pacing.JOINED, drop={1}))
    assert isinstance(error, SourceUnavailable)
    assert "low: what was said on our own channel did not come back" in str(error)
    assert sink.outline("foo") == []


def test_a_canary_that_does_not_come_back_ends_the_epoch(tmp_path, monkeypatch):
    drop = set()

    async def use(at):
        await at.complete()
        monkeypatch.setattr(capture_tasks, "RETURN_WITHIN", 0.2)
        drop.update(range(1_000_000))
        return await at.ended()

    error = run(
        use, database(tmp_path), server_options=ServerOptions(pacing=Pacing.JOINED, drop=drop), canary_seconds=0.05
    )
    assert isinstance(error, SourceUnavailable)
    assert "canary: what was said on our own channel did not come back" in str(error)


def test_canaries_that_come_back_let_the_epoch_go_on(tmp_path):
    async def use(at):
        await at.until(lambda: sum(b"canary" in frame.body for frame in at.sink.frames) >= 3, "three canaries")
        return at.running.done()

    assert run(use, database(tmp_path), canary_seconds=0.02) is False


def test_a_table_without_a_key_is_refused_at_the_start_unless_its_settings_name_one(tmp_path):
    path = database(tmp_path, "CREATE TABLE foo(a, b TEXT)", "INSERT INTO foo VALUES (1, 'x')")

    async def use(at):
        return await at.ended()

    async def complete(at):
        await at.complete()
        return at.sink.folded("foo", SqliteCloudTable(keys=("b",)))

    refused = run(use, path)
    assert isinstance(refused, SourceRefused)
    assert str(refused).startswith("foo: no-key: the table has no primary key")
    assert not refused.retryable
    assert run(complete, path, {"foo": SqliteCloudTable(keys=("b",))}) == [{"a": "1", "b": "x"}]


@pytest.mark.parametrize("name", ["bar", "FOO"], ids=["of no such name", "of another case"])
def test_a_table_that_is_not_there_is_refused_at_the_start(name, tmp_path):
    async def use(at):
        return await at.ended()

    error = run(use, database(tmp_path), {name: SqliteCloudTable()})
    assert str(error) == f"{name}: no-table: the database has no table that is spelt so"


@pytest.mark.parametrize(("made", "reason"), [([], "no-table"), (["CREATE TABLE bar(a)"], "no-key")])
def test_a_table_that_cannot_be_read_is_told_and_the_others_are_read(made, reason, tmp_path):
    async def use(at):
        await at.complete("foo")
        await at.db.exec("DROP TABLE IF EXISTS bar")
        await at.db.exec("CREATE TABLE bar(id INTEGER PRIMARY KEY, a)")
        await at.db.exec("INSERT INTO bar VALUES (1, 'x')")
        await at.complete("bar")
        return at.sink

    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a)", *made)
    sink = run(use, path, {"bar": SqliteCloudTable(), "foo": SqliteCloudTable()}, canary_seconds=0.2)
    mark = sink.marks("table left out", "bar")[0]
    assert (mark["level"], mark["reason"].partition(":")[0]) == ("warning", reason)
    assert sink.folded("bar") == [{"id": 1, "a": "x"}]


def test_a_feed_whose_only_table_is_gone_for_a_while_is_tried_again(tmp_path):
    path = database(tmp_path)

    async def running():
        with SqliteCloudServer.start({"shop.db": path}, options=ServerOptions(pacing=Pacing.JOINED)) as server:
            receiver, sink = receiver_at(url(server)), Sink()
            first = asyncio.create_task(receiver.run(sink, Resume(1)))
            await until(lambda: sink.marks("snapshot complete"), "a whole snapshot", work=first)
            first.cancel()
            await asyncio.wait([first])
            with apsw.Connection(str(path)) as connection:
                connection.execute("ALTER TABLE foo RENAME TO bar")
            with pytest.raises(SourceUnavailable, match="foo: no-table"):
                await receiver.run(sink, Resume(2))

    asyncio.run(running())


def test_a_table_that_may_not_be_listened_to_is_left_out_and_the_others_are_read():
    refuse = encode_error(ServerError(10005, 0, -1, "no rights"))
    empty = encode_rowset(Rowset((Column("id"), Column("a")), []))

    def listened(statement):
        return refuse if "'bar'" in bound_text(statement) else TICKET

    peer = Peer({"SELECT name, type": encode_rowset(XINFO), "LISTEN": listened, "SELECT": empty})
    tables = {"bar": SqliteCloudTable(), "foo": SqliteCloudTable()}
    sink = receive_from(peer, lambda sink: sink.marks("snapshot complete", "foo"), tables=tables)
    assert [mark["reason"] for mark in sink.marks("table left out", "bar")] == ["10005: no rights"]


def test_what_has_a_nul_in_a_name_is_left_out_and_the_others_are_read():
    odd = encode_rowset(Rowset(XINFO.columns, [*XINFO.rows, ("b\0c", "TEXT", 0, 0, 0)]))
    names = encode_rowset(Rowset((Column("name"),), [("foo",), ("ba\0r",), ("bar",)]))
    empty = encode_rowset(Rowset((Column("id"), Column("a")), []))

    def described(statement):
        return odd if "'bar'" in bound_text(statement) else encode_rowset(XINFO)

    peer = Peer({"SELECT name FROM": names, "SELECT name, type": described, "LISTEN": TICKET, "SELECT": empty})
    sink = receive_from(peer, lambda sink: sink.marks("snapshot complete", "foo"), tables={}, all_tables=True)
    reasons = {name: [mark["reason"] for mark in sink.marks("table left out", name)] for name in ("bar", "ba\0r")}
    assert reasons == {
        "bar": ["nul-in-name: a column has a NUL in its name"],
        "ba\0r": ["nul-in-name: its name contains a NUL"],
    }


def test_a_table_that_is_dropped_and_made_anew_is_read_again_when_all_are_wanted(tmp_path):
    path = database(tmp_path)

    async def use(at):
        await at.complete()
        await at.db.exec("DROP TABLE foo")
        await at.until(lambda: at.sink.marks("table left out", "foo"), "the table to be left out")
        await at.db.exec("CREATE TABLE foo(k TEXT PRIMARY KEY)")
        await at.db.exec("INSERT INTO foo VALUES ('x')")
        await at.until(
            lambda: b'"k"' in b"".join(f.body for f in at.sink.frames if f.kind == "control"), "the table made anew"
        )
        begun = len(at.sink.marks("snapshot complete"))
        await at.complete(count=begun + 1)
        return at.sink

    sink = run(use, path, all_tables=True, reconcile_hours=0.2 / 3600)
    assert sink.folded("foo") == [{"k": "x"}]


def test_a_key_that_moves_in_the_window_without_all_columns_voids_the_attempt_and_the_next_one_is_whole(tmp_path):
    rows = [f"INSERT INTO foo VALUES ({n}, 'a', 'b')" for n in range(50)]
    path = database(tmp_path, "CREATE TABLE foo(id INTEGER PRIMARY KEY, a, b)", *rows)
    server_options = ServerOptions(pacing=Pacing.JOINED, capture=CaptureMode.HOOK_CHANGED, delay=0.02)

    async def use(at):
        land, statements = at.sink.land, ["UPDATE foo SET id = 100 WHERE id = 7"]

        async def land_and_change(frames):
            await land(frames)
            while statements and at.sink.marks("fence low"):
                await at.db.exec(statements.pop())

        at.sink.land = land_and_change
        await at.complete()
        return at.sink

    sink = run(use, path, server_options=server_options, max_rows=1)
    (void,) = sink.marks("snapshot void")
    assert (void["reason"], void["attempts"]) == ("partial_move", 1)
    assert sink.folded("foo") == stored(path)


def test_attempts_that_are_void_again_and_again_are_reported_and_go_on():
    refuse = encode_error(ServerError(1, 1, -1, "no such function: f"))
    peer = Peer({"SELECT name, type": encode_rowset(XINFO), "SELECT": refuse})
    sink = receive_from(peer, lambda sink: len(sink.marks("snapshot void")) >= 5)
    attempts = [(mark["attempts"], mark["next_in"] > 0) for mark in sink.marks("snapshot void")][:5]
    assert attempts == [(1, False), (2, False), (3, True), (4, True), (5, True)]
    assert sink.marks("snapshot void")[0]["reason"] == "1: no such function: f"


def receive_from(peer, enough, script=(), **options):
    """Receive from a scripted peer until enough has landed; the fence channel answers itself."""

    async def running():
        sink = Sink()
        async with scripted(peer) as address:
            task = asyncio.create_task(
                receiver_at(address, fence=False, settle_seconds=0.02, **options).run(sink, Resume(1))
            )
            for meets, frame in script:
                await until(lambda meets=meets: meets(sink), "the moment to say more", work=task)
                peer.notify(frame)
            await until(lambda: enough(sink), "enough to land", work=task)
            task.cancel()
            await asyncio.wait([task])
        return sink

    return asyncio.run(running())


def notification(**members):
    return json.dumps({"sender": "0", **members}).encode()


@pytest.mark.parametrize(
    ("text", "landed"),
    [
        (notification(channel="foo", channel_type="TABLE", sqlite_pk_name=["id"]), ["data, whole", "bad notification"]),
        (b"no JSON", ["data, whole"]),
    ],
    ids=["of the table", "of nobody knows what"],
)
def test_a_notification_that_cannot_be_decoded_lands_and_the_table_is_read_again_in_the_same_epoch(text, landed):
    empty = encode_rowset(Rowset((Column("id"), Column("a")), []))
    peer = Peer({"SELECT name, type": encode_rowset(XINFO), "SELECT": empty})
    sink = receive_from(
        peer,
        lambda sink: len(sink.marks("snapshot complete")) == 2,
        [(lambda sink: sink.marks("snapshot complete"), text)],
    )
    first = ["control", "snapshot, begin", "snapshot complete, end"]
    again = ["control", "snapshot begin, begin", "snapshot, inside", "snapshot complete, end"]
    assert sink.outline("foo") == [*first, *landed, "snapshot due", *again]
    assert len(sink.marks("bad frame")) == (text == b"no JSON")
    assert len([command for command in peer.commands if command.startswith("AUTH")]) == 1


LYING = b"%21 5 99 *0 0:1 1 1 \x40+1 a"
"""Compressed, and not what it says it expands to."""


@pytest.mark.parametrize(
    ("octets", "selected", "reason"),
    [
        pytest.param(b"?5 hello", False, "bad_type", id="no type, notified"),
        pytest.param(b"?5 hello", True, "bad_type", id="no type, selected"),
        pytest.param(b"#five {}", False, "bad_length", id="no length, notified"),
        pytest.param(b"#99999999999 {", False, "too_large", id="too large, notified"),
        pytest.param(b"*99999999999 0:1", True, "too_large", id="too large, selected"),
        pytest.param(LYING, False, "unexpected_frame", id="compressed, notified"),
        pytest.param(LYING, True, "bad_compression", id="compressed, selected"),
    ],
)
def test_what_is_no_frame_ends_the_epoch_and_what_came_before_has_landed(octets, selected, reason):
    row = {"sqlite_type": "INSERT", "id": 1}
    good = notification(channel="foo", channel_type="TABLE", sqlite_pk_name=["id"], payload=[row])
    rows = octets if selected else encode_rowset(Rowset((Column("id"), Column("a")), []))
    pauth = OK + encode_json(good) + octets * (not selected)
    peer, sink = Peer({"SELECT name, type": encode_rowset(XINFO), "SELECT": rows}, pauth=pauth), Sink()

    async def running():
        async with scripted(peer) as address, asyncio.timeout(30):
            await receiver_at(address, fence=False, settle_seconds=0.02).run(sink, Resume(1))

    with pytest.raises(RemoteProtocolError, match=reason) as raised:
        asyncio.run(running())

    assert raised.value.retryable
    assert sink.outline("foo").count("data, whole") == 1
    assert [mark["reason"].split(" ")[0].strip(":") for mark in sink.marks("bad frame")] == [reason]


def test_an_update_of_a_row_that_is_nowhere_voids_the_attempt():
    empty = encode_rowset(Rowset((Column("id"), Column("a")), []))
    lost = notification(
        channel="foo", channel_type="TABLE", sqlite_pk_name=["id"], payload=[{"sqlite_type": "UPDATE", "id": 1}]
    )
    peer = Peer({"SELECT name, type": encode_rowset(XINFO), "SELECT": empty}, pauth=OK + encode_json(lost))
    sink = receive_from(peer, lambda sink: sink.marks("snapshot complete"))
    assert [mark["reason"] for mark in sink.marks("snapshot void")] == ["unexplained_update"]
    assert sink.outline("foo")[:4] == ["data, whole", "control", "snapshot, begin", "snapshot void"] or (
        sink.outline("foo")[:4] == ["control", "data, whole", "snapshot, begin", "snapshot void"]
    )


def test_a_server_without_the_privilege_for_a_channel_is_received_without_a_canary():
    empty = encode_rowset(Rowset((Column("id"), Column("a")), []))
    refuse = encode_error(ServerError(10004, 0, -1, "no privilege"))
    peer = Peer({"SELECT name, type": encode_rowset(XINFO), "SELECT": empty, "CREATE CHANNEL": refuse})
    sink = receive_from(peer, lambda sink: sink.marks("snapshot complete"), canary_seconds=5)
    assert [mark["text"] for mark in sink.marks("no canary")] == ["no privilege"]


def test_a_busy_database_at_the_start_is_tried_again_and_a_wrong_password_is_not():
    async def ending(answers):
        async with scripted(Peer(answers)) as address:
            try:
                await receiver_at(address).run(Sink(), Resume(1))
            except (SourceUnavailable, SourceRefused) as error:
                return error

    refused = asyncio.run(ending({"AUTH": encode_error(ServerError(10004, 0, -1, "wrong password"))}))
    assert (type(refused).__name__, refused.retryable) == ("StatementRefused", False)
    locked = asyncio.run(
        ending(
            {
                "LISTEN": encode_error(ServerError(5, 5, -1, "database is locked")),
                "SELECT name, type": encode_rowset(XINFO),
            }
        )
    )
    assert (type(locked).__name__, locked.retryable) == ("SourceUnavailable", True)
