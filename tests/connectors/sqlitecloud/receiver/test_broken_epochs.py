"""Answers that break an epoch; and a table whose snapshots break one after another, beside one that is well."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceUnavailable, StatementRefused
from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Resume
from silverfold.connectors.sqlitecloud.client.client import Client, connect
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_error, encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset, ServerError
from silverfold.connectors.sqlitecloud.receiver import capture_tasks
from silverfold.connectors.sqlitecloud.receiver.introspection import describe
from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver
from tests.support.chance import Highest
from tests.support.sqlitecloud.receiving import Sink, database, receiver_at, receiving
from tests.support.sqlitecloud.scsp_peer import OK, TICKET, Peer, bound_text, scripted

XINFO = Rowset(
    tuple(map(Column, ("name", "type", "notnull", "pk", "hidden"))),
    [("id", "INTEGER", 0, 1, 0), ("a", "TEXT", 0, 0, 0)],
)


@pytest.mark.parametrize("answer", [OK, b"no frame "], ids=["no rowset", "no frame"])
def test_a_table_whose_select_breaks_every_epoch_is_read_later_each_time_and_the_others_at_once(answer: bytes) -> None:
    rows = encode_rowset(Rowset((Column("id"), Column("a")), []))
    answers = {
        "SELECT name, type": encode_rowset(XINFO),
        'SELECT "id", "a" FROM "bad"': answer,
        "SELECT": rows,
        "LISTEN": lambda statement: TICKET if "'bad'" in bound_text(statement) else OK,
    }
    feed = Feed(
        "shop",
        "sqlitecloud",
        "",
        SqliteCloudOptions(fence=False, settle_seconds=0.02, canary_seconds=0),
        {"bad": SqliteCloudTable(), "good": SqliteCloudTable()},
        reconnect=Reconnect(first=0.8, longest=10),
    )
    sinks = [Sink() for _ in range(4)]

    async def receiving() -> None:
        async with scripted(Peer(answers)) as address, asyncio.timeout(30):
            at = replace(feed, address=address)
            receiver = SqliteCloudReceiver(at, rng=Highest(), clock=time.monotonic, environ={})
            for number, sink in enumerate(sinks):
                with pytest.raises(RemoteProtocolError):
                    await receiver.run(sink, Resume(number))

    asyncio.run(receiving())
    first, second, third, fourth = ([each["seconds"] for each in sink.marks("stream suspended")] for sink in sinks)
    assert (first, second) == ([], [])
    assert 0.1 < third[0] <= 0.8 < fourth[0] <= 1.6
    assert [len(sink.marks("snapshot complete", "good")) for sink in sinks[2:]] == [1, 1]


NOT_A_ROW = ["+2 OK", ":1 ", "_ ", "#2 {}", "=5 1 :1 "]


@pytest.mark.parametrize("answer", [*NOT_A_ROW, "three columns"])
@pytest.mark.parametrize("described", [True, False], ids=["the columns", "the rows"])
def test_a_select_that_is_answered_with_something_else_is_a_fault_of_the_peer(answer: str, described: bool) -> None:
    odd = Rowset((Column("x"), Column("y"), Column("z")), [("a", 1, 2)])
    reply = answer.encode() if answer in NOT_A_ROW else encode_rowset(odd)
    xinfo = reply if described else encode_rowset(XINFO)

    async def receiving():
        async with scripted(Peer({"SELECT name, type": xinfo, "SELECT": reply})) as address, asyncio.timeout(30):
            await receiver_at(address, fence=False, settle_seconds=0.02).run(Sink(), Resume(1))

    with pytest.raises(RemoteProtocolError):
        asyncio.run(receiving())


def refusing(monkeypatch: pytest.MonkeyPatch, call: str, code: str) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise StatementRefused(code=code, text="not now")

    monkeypatch.setattr(Client, call, refused)


@pytest.mark.parametrize(("call", "shown"), [("ping", "PING"), ("notify", "NOTIFY on our own channel")])
@pytest.mark.parametrize("code", ["10005", "10004"])
def test_a_statement_refused_once_all_was_well_ends_the_epoch_and_only_for_a_privilege_the_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, shown: str, code: str
) -> None:
    pings, ping = list[Client](), Client.ping

    async def counted(db: Client) -> None:
        pings.append(db)
        await ping(db)

    async def use() -> BaseException | None:
        async with receiving(database(tmp_path), canary_seconds=0.1) as at:
            await at.until(lambda: len(pings) >= 2, "a canary to come back")
            refusing(monkeypatch, call, code)
            return await at.ended()

    monkeypatch.setattr(Client, "ping", counted)
    error = asyncio.run(use())
    assert isinstance(error, StatementRefused if code == "10004" else SourceUnavailable)
    assert f"{code}: {shown}: not now" in str(error)
    assert ("was not refused before" in str(error)) is (code != "10004")


def test_a_statement_refused_from_the_start_ends_the_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, "ping", "10005")

    async def use() -> BaseException | None:
        async with receiving(database(tmp_path), canary_seconds=0.2) as at:
            return await at.ended()

    assert isinstance(asyncio.run(use()), StatementRefused)


def test_a_channel_that_may_not_be_written_to_is_told_with_what_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "notify", "10004")

    async def use() -> str:
        async with receiving(database(tmp_path)) as at:
            await at.until(lambda: bool(at.sink.marks("snapshot void")), "a void snapshot")
            return str(at.sink.marks("snapshot void")[0]["reason"])

    assert "not now: fence = false" in asyncio.run(use())


def test_a_table_made_later_that_is_busy_at_first_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_tasks, "CANDIDATES_AGAIN", 0.2)
    listened, listen_as = list[str](), Client.listen_as

    async def busy_at_first(db: Client, kind: Literal["table", "channel"], table: str) -> None:
        listened.append(table)
        if listened.count("bar") == 1 and table == "bar":
            raise StatementRefused(code="5", text="database is locked")
        await listen_as(db, kind, table)

    async def use() -> Sink:
        async with receiving(
            database(tmp_path), {"foo": SqliteCloudTable(), "bar": SqliteCloudTable()}, canary_seconds=0.2
        ) as at:
            await at.complete("foo")
            monkeypatch.setattr(Client, "listen_as", busy_at_first)
            await at.db.exec("CREATE TABLE bar(id INTEGER PRIMARY KEY)")
            await at.complete("bar")
            return at.sink

    sink = asyncio.run(use())
    assert listened.count("bar") >= 2
    assert len(sink.marks("table left out", "bar")) == 1  # before there was one


@pytest.mark.parametrize("code", ["5", "10003"])
def test_a_pragma_that_is_refused_for_now_is_no_server_without_it(code: str) -> None:
    refuse = encode_error(ServerError(int(code), 0, -1, "not now"))
    peer = Peer({"SELECT name, type": refuse, "LIST METADATA": encode_rowset(XINFO)})

    async def describing() -> None:
        async with scripted(peer) as address, await connect(address) as db:
            await describe(db, "foo", SqliteCloudTable())

    with pytest.raises(StatementRefused, match="not now"):
        asyncio.run(describing())
    assert not any(command.startswith("LIST METADATA") for command in peer.commands)
