"""A table published over tengi lands whole and in order, over each transport, whatever happens in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Kind, Resume
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiOptions
from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.protocol.events import Closed, MessageReceived, Transport
from silverfold.connectors.tengi.protocol.feed.packets import Newest, Pong, Position
from silverfold.connectors.tengi.protocol.registry import BUILT_IN
from silverfold.connectors.tengi.receiver.receiver import TengiReceiver
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.server import FeedServer
from silverfold.connectors.tengi.server.feed.source import FeedSource
from silverfold.connectors.tengi.server.feed.tables import RowChanges
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder, Tls
from tests.support.certificates import AUTHORITY, trusted_file
from tests.support.epochs import in_background
from tests.support.memory import MemorySink
from tests.support.tengi.landed import COLUMNS, CONNECTION, EPOCH, MESSAGE, feed_of, frame_of, schema
from tests.support.tengi.played import BODY_AT
from tests.support.tengi.receiving import (
    QUICK,
    change_of,
    feed,
    folded,
    free_port,
    landed_positions,
    newest,
    orders,
    position_of,
    receiving,
    resume_of,
    serving,
)

TRANSPORTS = ("tcp", "websocket", "http")


class PlayedLink:
    """A link that brings packets, and ends."""

    transport, peer_address, connection_id = Transport.TCP, "127.0.0.1:1", CONNECTION

    def __init__(self, *packets: Packet) -> None:
        self.events = [MessageReceived(CONNECTION, MESSAGE, frame_of(each), BODY_AT, BUILT_IN) for each in packets]

    async def next_event(self) -> MessageReceived | Closed:
        return self.events.pop(0) if self.events else Closed("")

    async def send(self, _message: object) -> None: ...

    def check_alive(self, _silence: float) -> None: ...


def source_rows(table: Any) -> list[dict[str, Any]]:
    return sorted(map(dict, table.rows.values()), key=lambda row: row["id"])


def progress(sink: MemorySink) -> list[dict[str, Any]]:
    return [mark["parts"] for _, mark in sink.mark_details() if mark["mark"] == "progress"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_table_lands_with_its_snapshot_and_changes(transport: str) -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table, transport, part_rows=2) as server:
            shop = feed(server, transport)
            async with receiving(shop, sink) as until:
                await until(lambda: newest(sink) == position_of(table))
                for number in range(20):
                    await asyncio.to_thread(server.change, table, change_of(number))
                await until(lambda: newest(sink) == position_of(table))
            assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_table_lands_whole_however_its_packets_are_lost_repeated_and_reordered(transport: str) -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        faults = FeedFaults(lose=0.1, repeat=0.1, reorder=0.2, drop_parts=0.1, close=0.02)
        with serving(table, transport, faults=faults, part_rows=2) as server:
            shop = feed(server, transport, resubscribe_idle=1.0)
            async with receiving(shop, sink) as until:
                for number in range(60):
                    await asyncio.to_thread(server.change, table, change_of(number))
                await until(lambda: newest(sink) == position_of(table))
            assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


def test_a_receiver_resumes_behind_what_landed_and_what_is_committed_is_acknowledged() -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table) as server:
            shop = feed(server)
            async with receiving(shop, sink) as until:
                await until(lambda: newest(sink) == position_of(table))
            for number in range(5):
                await asyncio.to_thread(server.change, table, change_of(number))
            before = len(sink.frames)
            async with receiving(shop, sink, resume_of(sink)) as until:
                await until(lambda: newest(sink) == position_of(table))
            kinds = [frame.kind for frame in sink.frames[before:]]
            assert Kind.SNAPSHOT not in kinds
            assert kinds.count(Kind.DATA) == 5
            assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_source_reports_how_far_ahead_it_is(transport: str) -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        measures = ("updates_behind", "updates_held", "packets_repeated", "seconds_behind")
        with serving(table, transport) as server:
            async with receiving(feed(server, transport, ping_interval=0.1), sink) as until:
                await until(lambda: bool(progress(sink)))
                await asyncio.to_thread(server.change, table, change_of(1))
                await until(lambda: newest(sink) == position_of(table))
                await until(lambda: progress(sink)[-1] == {"table orders": dict.fromkeys(measures, 0)})

    asyncio.run(run())


def test_a_source_that_begins_a_new_epoch_sends_a_snapshot() -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table) as server:
            shop = feed(server)
            async with receiving(shop, sink) as until:
                await until(lambda: newest(sink) == position_of(table))
        again = orders(3)
        with serving(again) as server:
            shop = feed(server)
            async with receiving(shop, sink, resume_of(sink)) as until:
                await until(lambda: newest(sink) == position_of(again))
            assert folded(shop, sink.frames) == source_rows(again)

    asyncio.run(run())


def test_new_columns_are_followed_by_a_snapshot_that_tells_what_older_rows_have() -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table) as server:
            shop = feed(server)
            async with receiving(shop, sink) as until:
                await until(lambda: newest(sink) == position_of(table))
                wider = {**{name: str(kind) for name, kind in table.columns.items()}, "note": "string"}
                await asyncio.to_thread(server.run, lambda _: table.set_columns(wider))
                await asyncio.to_thread(server.change, table, RowChanges(modified=[((1,), {"note": "new"})]))
                await until(lambda: sum(frame.kind is Kind.SNAPSHOT for frame in sink.frames) == 2)
                await until(lambda: newest(sink) == position_of(table))
            assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


def test_a_column_that_came_while_no_receiver_ran_is_followed_by_a_snapshot() -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table) as server:
            async with receiving(feed(server), sink) as until:
                await until(lambda: newest(sink) == position_of(table))
            wider = {**{name: str(kind) for name, kind in table.columns.items()}, "note": "string"}
            await asyncio.to_thread(server.run, lambda _: table.set_columns(wider))
            await asyncio.to_thread(server.change, table, RowChanges(modified=[((1,), {"note": "new"})]))
            begun = len(sink.frames)
            async with receiving(feed(server), sink, resume_of(sink)) as until:
                await until(lambda: any(frame.kind is Kind.SNAPSHOT for frame in sink.frames[begun:]))

    asyncio.run(run())


def test_a_snapshot_may_be_asked_for_at_the_start() -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table) as server:
            async with receiving(feed(server), sink) as until:
                await until(lambda: newest(sink) == position_of(table))
            again = MemorySink()
            async with receiving(feed(server, snapshot_at_start=True), again, resume_of(sink)) as until:
                await until(lambda: newest(again) == position_of(table))

    asyncio.run(run())


def test_updates_that_bronze_lost_and_silver_has_come_in_a_snapshot_as_the_receiver_starts() -> None:
    async def run() -> None:
        table, first, second = orders(), MemorySink(), MemorySink()
        silver = {
            "orders": f"{table.epoch}:{9:019d}"
        }  # and the source has lost some as well: bronze stays behind silver
        resume = Resume(1, {"orders": position_of(table)}, silver_positions=silver)
        table.apply(change_of(1))
        with serving(table) as server:
            receiver = CONNECTOR.receiver(feed(server))
            async with in_background(receiver.run(first, resume)):
                while table.oldest <= table.seq:  # until it is acknowledged
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(server.change, table, change_of(2))
            later = replace(resume, epoch=2, source_positions=landed_positions(first.frames))
            async with in_background(receiver.run(second, later)):
                while newest(second) != position_of(table):
                    await asyncio.sleep(0.01)
        kinds = [[frame.kind for frame in sink.frames if frame.kind is not Kind.MARK] for sink in (first, second)]
        assert kinds == [[Kind.CONTROL, Kind.SNAPSHOT], [Kind.CONTROL, Kind.DATA]]

    asyncio.run(asyncio.wait_for(run(), 20))


def certificate(folder: Path) -> str:
    path = folder / "server.pem"
    AUTHORITY.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_table_lands_encrypted(transport: str, tmp_path: Path) -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        with serving(table, transport, settings={"tls": Tls(certificate=certificate(tmp_path))}) as server:
            shop = feed(server, transport, tls=True, tls_ca=trusted_file(tmp_path))
            async with receiving(shop, sink) as until:
                await until(lambda: newest(sink) == position_of(table))
                await asyncio.to_thread(server.change, table, change_of(1))
                await until(lambda: newest(sink) == position_of(table))
            assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_in_listen_mode_a_source_connects(transport: str, tmp_path: Path, *, encrypted: bool) -> None:
    async def run() -> None:
        table, sink = orders(), MemorySink()
        port = free_port()
        tls = {"tls": True, "tls_certificate": certificate(tmp_path)} if encrypted else {}
        options = TengiOptions(transport=transport, mode="listen", handshake={"token": "t"}, **QUICK, **tls)
        shop = replace(feed_of(f"tengi://127.0.0.1:{port}"), options=options)
        builder = ConfigurationBuilder().add_transport(transport).set(handshake={"token": "t"})
        configuration = (builder.ssl(ca=trusted_file(tmp_path)) if encrypted else builder).build()
        async with receiving(shop, sink) as until:
            address = Address("127.0.0.1", port)
            server = await asyncio.to_thread(FeedServer.start, FeedSource([table]), configuration, dial=[address])
            try:
                await until(lambda: newest(sink) == position_of(table))
                await asyncio.to_thread(server.change, table, RowChanges(removed=[(0,)]))
                await until(lambda: newest(sink) == position_of(table))
            finally:
                await asyncio.to_thread(server.close)
        assert folded(shop, sink.frames) == source_rows(table)

    asyncio.run(run())


def test_a_lag_is_shown_on_each_connection_while_a_snapshot_is_asked_for() -> None:
    receiver, sink = TengiReceiver(feed_of(), rng=Random(1), environ={}), MemorySink()
    wider = schema({**COLUMNS, "note": "string"})
    report = Pong(1, {"orders": Newest(Position(EPOCH, 9), None)}).to_packet()

    async def run() -> None:
        begins = {"orders": str(Position(EPOCH, 4))}
        resume = Resume(1, begins, stream_controls={"orders": frame_of(schema())})
        await receiver._serve(PlayedLink(wider, report), sink, resume)
        assert landed_positions(sink.frames) == {"orders": "none"}
        for epoch in (2, 3):
            await receiver._serve(PlayedLink(wider, report), sink, Resume(epoch, landed_positions(sink.frames)))

    asyncio.run(run())
    assert [each["table orders"]["updates_behind"] for each in progress(sink)] == [5, 5, 5]


def test_what_another_connector_landed_is_no_position_and_costs_nothing() -> None:
    shop = replace(feed_of(), options=TengiOptions(transport="tcp", snapshot_at_start=True))
    receiver, sink = TengiReceiver(shop, rng=Random(1), environ={}), MemorySink()
    asyncio.run(receiver._serve(PlayedLink(schema()), sink, Resume(1, {"orders": "17", "others": "x"})))
    assert [frame.kind for frame in sink.frames].count(Kind.CONTROL) == 1
