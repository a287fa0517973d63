"""The client on real sockets, against a server that says what it is told, in one piece or in many."""

import asyncio
import json
from contextlib import aclosing

import pytest

from silverfold.conf.errors import (
    InvalidValue,
    LocalProtocolError,
    SourceUnavailable,
    StatementRefused,
)
from silverfold.connectors.sqlitecloud.client.decoded import decoded, is_mine
from silverfold.connectors.sqlitecloud.protocol.encode import encode_array, encode_error, encode_json, encode_rowset
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Change, ChannelMessage, TableUpdate
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset, ServerError
from tests.support.certificates import server_of, trusted_file
from tests.support.sqlitecloud.client import CHUNKS_END, chunk, run, take, writing
from tests.support.sqlitecloud.scsp_peer import OK, SECRET, TICKET, UUID, Peer

NUMBERED = [
    json.dumps({"sender": UUID, "channel": "c", "channel_type": "MESSAGE", "payload": n}) for n in range(20_000)
]


def test_a_session_begins_with_the_login_of_the_connection_string():
    peer = Peer()

    async def use(db):
        return await db.uuid()

    assert run(peer, use, query="&maxrows=7&compression=1") == UUID
    assert peer.commands == [
        "AUTH USER user PASSWORD s3cret;USE DATABASE shop.sqlite;"
        "SET CLIENT KEY COMPRESSION TO 1;SET CLIENT KEY MAXROWS TO 7;",
        "GET CLIENT KEY UUID;",
    ]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_notifications_in_one_segment_all_arrive_in_order_and_none_is_held_back(encrypted, tmp_path):
    peer = Peer(on_pubsub=writing(b"".join(encode_json(text) for text in NUMBERED)))

    async def use(db):
        await db.listen("c")
        return await take(db, 20_000)

    tls, query = (server_of(), f"&root_certificate={trusted_file(tmp_path)}") if encrypted else (None, "")
    received = run(peer, use, tls=tls, query=query)
    assert [notification.text.decode() for notification in received] == NUMBERED
    assert received[0].frame == encode_json(NUMBERED[0])


@pytest.mark.parametrize(
    ("encrypted", "count"),
    [
        (False, 2_000),
        (True, 300),
        pytest.param(False, 20_000, marks=pytest.mark.nightly),
        pytest.param(True, 20_000, marks=pytest.mark.nightly),
    ],
)
def test_notifications_that_come_byte_by_byte_all_arrive_in_order_and_none_is_held_back(encrypted, count, tmp_path):
    texts = [f'{{"payload":{n}}}' for n in range(count)]
    stream = b"".join(encode_json(text) for text in texts)

    async def write(writer):
        for at in range(len(stream)):
            writer.write(stream[at : at + 1])
        await writer.drain()

    async def use(db):
        await db.listen("c")
        return await take(db, count)

    tls, query = (server_of(), f"&root_certificate={trusted_file(tmp_path)}") if encrypted else (None, "")
    received = run(Peer(on_pubsub=write), use, tls=tls, query=query)
    assert [notification.text.decode() for notification in received] == texts


def test_what_comes_with_the_answer_to_pauth_is_heard():
    peer = Peer(pauth=OK + encode_json("first") + encode_json("second"))

    async def use(db):
        await db.listen("c")
        return [notification.text for notification in await take(db, 2)]

    assert run(peer, use) == [b"first", b"second"]


def test_a_listen_that_was_given_up_is_taken_up_by_the_next():
    answered = asyncio.Event()

    def first(statement):
        async def late(writer):
            answered.set()
            await asyncio.sleep(0.1)
            writer.write(TICKET)

        return OK if answered.is_set() else late

    peer = Peer({"LISTEN": first}, on_pubsub=writing(encode_json("heard")))

    async def use(db):
        task = asyncio.create_task(db.listen("c"))
        await answered.wait()
        task.cancel()
        await db.listen("c")
        return [notification.text for notification in await take(db, 1)]

    assert run(peer, use) == [b"heard"]


def test_a_reader_of_notifications_that_leaves_or_is_cancelled_loses_none():
    peer = Peer(on_pubsub=writing(*[encode_json(str(n)) for n in range(6)], pause=0.01))

    async def use(db):
        await db.listen("c")
        received = [notification.text for notification in await take(db, 2)]
        task = asyncio.create_task(take(db, 100))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return received + [notification.text for notification in await take(db, 4)]

    assert run(peer, use) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_slow_reader_of_notifications_lets_the_server_wait():
    written = []

    async def write(writer):
        for n in range(400):
            writer.write(encode_json(bytes(1 << 16)))
            await writer.drain()
            written.append(n)

    async def use(db):
        await db.listen("c")
        await take(db, 1)
        await asyncio.sleep(0.2)
        before = len(written)
        await take(db, 399)
        return before

    assert run(Peer(on_pubsub=write), use) < 300


def test_texts_as_strings_are_notifications_too():
    peer = Peer(on_pubsub=writing(b"+3 abc", b"!4 abc\0", b"#2 {}"))

    async def use(db):
        await db.listen("c")
        return [notification.text for notification in await take(db, 3)]

    assert run(peer, use) == [b"abc", b"abc", b"{}"]


def test_names_and_texts_are_bound_whatever_is_in_them():
    peer = Peer()
    odd = 'it\'s; DROP TABLE "x" --'

    async def use(db):
        await db.listen(odd)
        await db.listen_table(odd)
        await db.listen_table("*", "other.sqlite")
        await db.unlisten(odd)
        await db.unlisten_table(odd)
        await db.listen("*")
        await db.notify(odd, odd)
        await db.notify(odd, "")
        await db.notify(odd)
        await db.create_channel(odd, if_not_exists=True)
        await db.remove_channel(odd)
        await db.ping()
        with pytest.raises(InvalidValue):
            await db.notify("c", "a NUL \0 ends a text")
        await db.ping()

    run(peer, use)
    assert peer.commands[1:] == [
        f"LISTEN {odd!r};",
        f"PAUTH {UUID} {SECRET}",
        f"LISTEN TABLE {odd!r} DATABASE 'shop.sqlite';",
        "LISTEN TABLE * DATABASE 'other.sqlite';",
        f"UNLISTEN {odd!r};",
        f"UNLISTEN TABLE {odd!r} DATABASE 'shop.sqlite';",
        "LISTEN *;",
        f"NOTIFY {odd!r} {odd!r};",
        f"NOTIFY {odd!r} '';",
        f"NOTIFY {odd!r};",
        f"CREATE CHANNEL {odd!r} IF NOT EXISTS;",
        f"REMOVE CHANNEL {odd!r};",
        "PING;",
        "PING;",
    ]


def test_what_notifications_say_can_be_had_decoded_with_who_said_it():
    messages = [
        {"sender": UUID, "channel": "foo", "type": "TABLE", "pk": ["id"], "payload": [{"type": "DELETE", "pv": [13]}]},
        {"sender": "0", "channel": "foo", "type": "TABLE", "pk": ["id"], "payload": [
            {"type": "UPDATE", "id": 15, "a": None, "pv": [14]},
        ]},
        {"channel": "foo"},
        {"sender": "other", "channel": "news", "type": "MESSAGE"},
    ]  # fmt: skip
    peer = Peer(on_pubsub=writing(*(encode_json(json.dumps(each)) for each in messages)))

    async def use(db):
        await db.listen_table("foo")
        stream = decoded(db)
        updates = [await anext(stream), await anext(stream)]
        with pytest.raises(InvalidValue):
            await anext(stream)
        updates.append(await anext(decoded(db)))
        return [(is_mine(db, each), each) for each in updates]

    (mine, first), (from_server, second), (from_other, third) = run(peer, use)
    assert (mine, from_server, from_other) == (True, False, False)
    assert first == TableUpdate("foo", UUID, ("id",), [Change("delete", (13,), None, {})])
    assert second.changes == [Change("update", (15,), (14,), {"id": 15, "a": None})]
    assert third == ChannelMessage("news", "other", None)


def test_replies_of_every_kind_are_plain_values():
    rowset = Rowset((Column("chname"),), [("a",), ("b",)])
    peer = Peer(
        {
            "one": b":42 ",
            "array": encode_array([10, 0, 3, None, 2.5, b"x"]),
            "LIST CHANNELS": encode_rowset(rowset),
            "chunks": chunk(1, (1, "a")) + chunk(2, (2, None), version=2) + CHUNKS_END,
            "echo": lambda statement: b"^4 PING",
        }
    )

    async def use(db):
        found = [await db.exec("one"), await db.exec("array"), await db.exec("LIST CHANNELS;"), await db.exec("chunks")]
        return [*found, await db.list_channels()]

    assert run(peer, use) == [
        42,
        (10, 0, 3, None, 2.5, b"x"),
        rowset,
        Rowset((Column("id"), Column("name")), [(1, "a"), (2, None)], 1),
        ["a", "b"],
    ]


def test_a_text_the_server_wants_back_is_sent_back_and_answered():
    peer = Peer({"TEST COMMAND": b"^4 PING"})

    async def use(db):
        return await db.exec("TEST COMMAND;")

    assert run(peer, use) == "PONG"
    assert peer.commands[-1] == "PING"


def test_a_server_that_wants_texts_back_for_ever_has_no_answer_in_time():
    peer = Peer({"TEST COMMAND": b"^4 PING", "PING": b"^4 PING"})

    async def use(db):
        with pytest.raises(SourceUnavailable, match=r"no answer within 0\.5 s"):
            await db.exec("TEST COMMAND;")

    run(peer, use, timeout=0.5)


def test_rows_are_handed_out_while_the_rest_is_under_way():
    taken = asyncio.Event()

    async def halves(writer):
        writer.write(chunk(1, (1, "a"), (2, "b")))
        await taken.wait()
        writer.write(chunk(2, (3, "c")) + CHUNKS_END)

    async def use(db):
        rows = []
        async for row in db.select("SELECT"):
            rows.append(row)
            if len(rows) == 2:
                taken.set()
        return rows

    assert run(Peer({"SELECT": lambda statement: halves}), use) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_select_that_is_left_early_or_cancelled_does_not_spoil_the_next_request():
    answer = chunk(1, (1, "a")) + chunk(2, (2, "b")) + CHUNKS_END

    async def slow(writer):
        await asyncio.sleep(0.05)
        writer.write(b"+4 late")

    async def use(db):
        async with aclosing(db.select("SELECT")) as rows:
            first = await anext(rows)
        task = asyncio.create_task(db.exec("slow"))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return first, await db.exec("number"), await db.uuid()

    peer = Peer({"SELECT": answer, "number": b":7 ", "slow": lambda statement: slow})
    assert run(peer, use) == ((1, "a"), 7, UUID)


def test_requests_of_many_tasks_take_turns():
    peer = Peer({"number": lambda statement: f":{statement.parameters[0]} ".encode()})

    async def use(db):
        return await asyncio.gather(*[db.exec("number ?", n) for n in range(50)])

    assert run(peer, use) == list(range(50))


def test_a_task_that_asks_while_it_reads_rows_is_told_so_instead_of_waiting_for_itself():
    async def use(db):
        async for _row in db.select("SELECT"):
            await db.exec("other")

    with pytest.raises(LocalProtocolError, match="still being read"):
        run(Peer({"SELECT": chunk(1, (1, "a")) + CHUNKS_END}), use)


def test_a_refused_statement_has_all_codes_and_the_session_goes_on():
    peer = Peer({"SELECT x": encode_error(ServerError(1, 1, -1, "no such column: x")), "bad": b"-14 66666:333:7 no"})

    async def use(db):
        with pytest.raises(StatementRefused) as first:
            await db.exec("SELECT x")
        with pytest.raises(StatementRefused) as second:
            await anext(db.select("bad"))
        await db.ping()
        return [(e.value.code, e.value.extended, e.value.offset, e.value.text) for e in (first, second)]

    assert run(peer, use) == [("1", 1, None, "no such column: x"), ("66666", 333, 7, "no")]


def test_pubsub_only_ends_the_main_connection_and_notifications_go_on():
    go = asyncio.Event()

    async def write(writer):
        await go.wait()
        writer.write(b"#5 after")

    async def use(db):
        await db.listen("c")
        await db.pubsub_only()
        go.set()
        received = await take(db, 1)
        with pytest.raises(LocalProtocolError, match="no main connection"):
            await db.ping()
        return received[0].text

    peer = Peer(on_pubsub=write)
    assert run(peer, use) == b"after"
    assert peer.commands[-1] == "PUBSUB ONLY;"


def test_listening_before_hearing():
    async def use(db):
        await take(db, 1)

    with pytest.raises(LocalProtocolError, match="nothing was listened to"):
        run(Peer(), use)


def test_one_task_at_a_time_hears_notifications():
    async def use(db):
        await db.listen("c")
        first = asyncio.create_task(take(db, 1))
        await asyncio.sleep(0)
        with pytest.raises(LocalProtocolError, match="another task"):
            await take(db, 1)
        first.cancel()
        await asyncio.wait([first])

    run(Peer(), use)


def test_nothing_a_client_shows_of_itself_has_a_secret_in_it():
    async def use(db):
        await db.listen("c")
        return repr(db) + repr(vars(db)) + repr(vars(db._session))

    shown = run(Peer(), use)
    assert "s3cret" not in shown
    assert SECRET not in shown
