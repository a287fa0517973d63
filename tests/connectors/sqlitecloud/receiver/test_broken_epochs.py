"""Answers that break an epoch; and a table whose snapshots break one after another, beside one that is well."""

import asyncio
import time
from dataclasses import replace

import pytest

from silverfold.conf.errors import RemoteProtocolError
from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Resume
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Rowset
from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver
from tests.support.chance import Highest
from tests.support.sqlitecloud.receiving import Sink, receiver_at
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
