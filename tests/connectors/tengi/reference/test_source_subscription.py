"""A subscription of its own tells what the source holds, from its snapshot on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from silverfold.conf.errors import SilverfoldError, SourceRefused, SourceUnavailable
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiOptions
from silverfold.connectors.tengi.protocol.events import Closed
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.reference.source_subscription import TengiSourceSubscription
from silverfold.connectors.tengi.server.feed.tables import RowChanges
from silverfold.connectors.verification import ReferenceUpdate, SourceSubscription
from tests.support.peers import peer
from tests.support.tengi.landed import feed_of
from tests.support.tengi.receiving import feed, orders, rows, serving


def updates(subscription: SourceSubscription, count: int) -> list[ReferenceUpdate]:
    found, until = list[ReferenceUpdate](), time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += subscription.take(0.1)
    return found


@pytest.mark.parametrize("transport", ["tcp", "websocket", "http"])
def test_the_first_update_is_the_whole_table_and_changes_follow(transport: str) -> None:
    table = orders(3)
    with serving(table, transport, part_rows=2) as server:
        server.change(table, RowChanges(removed=[(0,)]))
        with CONNECTOR.subscribe(feed(server, transport), "orders") as subscription:
            assert subscription.keys == ("id",)
            (snapshot,) = updates(subscription, 1)
            server.change(table, RowChanges(modified=[((1,), {"id": 7, "price": None})], removed=[(2,)]))
            (change,) = updates(subscription, 1)
    assert snapshot.snapshot
    assert [dict(each.row) for each in snapshot.changes] == rows(3)[1:]
    assert not change.snapshot
    removed, moved = change.changes
    assert (removed.op, removed.key) == ("delete", (2,))
    assert (moved.op, moved.key, moved.old_key) == ("update", (7,), (1,))
    assert dict(moved.row) == {"id": 7, "price": None}


def test_a_table_that_is_not_published_is_refused() -> None:
    with serving(orders()) as server:
        shop = feed(server)
        other = replace(shop, tables={"others": shop.tables["orders"]})
        with pytest.raises(SourceRefused), CONNECTOR.subscribe(other, "others"):
            pass


def test_a_source_that_ends_ends_the_updates() -> None:
    with serving(orders()) as server, CONNECTOR.subscribe(feed(server), "orders") as subscription:
        updates(subscription, 1)
        server.close()
        with pytest.raises(SilverfoldError):
            updates(subscription, 1)


def test_nobody_there_is_unavailable_and_a_source_that_connects_cannot_be_asked() -> None:
    with serving(orders()) as server:
        shop = feed(server)
    with pytest.raises(SourceUnavailable), CONNECTOR.subscribe(shop, "orders"):
        pass
    listening = replace(shop, options=TengiOptions(transport="tcp", mode="listen"))
    with pytest.raises(SourceRefused, match="listen"), CONNECTOR.subscribe(listening, "orders"):
        pass


def test_pings_go_by_the_clock_however_busy_the_source_is() -> None:
    class BusyLink:
        pings = 0

        async def next_event(self) -> Closed:
            await asyncio.sleep(0.001)
            return Closed("one of many events")

        async def send(self, message: Message) -> None:
            self.pings += message.body.name == "ping"

        def check_alive(self, _silence: float) -> None: ...

    async def run() -> int:
        options = TengiOptions(transport="tcp", ping_interval=0.01)
        subscription, link = TengiSourceSubscription(replace(feed_of(), options=options), "orders"), BusyLink()
        subscription._loop = asyncio.get_running_loop()
        for _ in range(100):
            await subscription._next_event(link)
        return link.pings

    assert asyncio.run(run()) > 1


@pytest.mark.parametrize("answer", [b"\1\xff\x9b" + bytes(17), b"HTTP/1.1 503 x\r\n\r\n"], ids=["half", "a proxy's"])
def test_an_answer_that_is_no_handshake_concerns_no_table(answer: bytes) -> None:
    with peer(lambda connection: connection.recv(100) and connection.sendall(answer)) as port:
        shop = feed_of(f"tengi://127.0.0.1:{port}")
        with (
            pytest.raises(SourceUnavailable, match="something else than a handshake"),
            CONNECTOR.subscribe(shop, "orders"),
        ):
            pass
