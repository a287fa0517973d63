"""The table server and clients that are slow, many, rude or gone: what one does is not felt by another."""

from __future__ import annotations

import re
import socket
import threading
import time
from importlib.resources import files
from random import Random

import pytest

from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol.control import encode_begin, encode_connection_response
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode, SubscribeResponse, SubscriptionError
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.deephaven.peer import PATIENCE, Peer
from tests.support.polling import wait_until

BOTH = SubscribeMode.SNAPSHOT_WITH_UPDATES
TEXT = "x" * 1000


def texts(rows: int) -> LiveTable:
    table = LiveTable({"n": "Long", "text": "String"})
    with table.update() as update:
        update.add_columns({"n": list(range(rows)), "text": [f"{n} {TEXT}" for n in range(rows)]})
    return table


def update_texts(table: LiveTable, number: int) -> None:
    """Write a thousand rows, about a megabyte."""
    with table.update() as update:
        update.modify_columns(range(1000), {"n": [number] * 1000, "text": [f"{number} {TEXT}"] * 1000})


def test_a_client_that_does_not_drain_its_queue_is_dropped_and_another_gets_everything() -> None:
    table = texts(1000)
    with TableServer.start(msg_queue_size=4, send_wait_time_millis=200) as server:
        server.export_table("T", table)
        with Peer(server.port, receive_buffer=4096) as slow, Peer(server.port) as quick:
            slow.subscribe(1, "T", BOTH)
            slow.update()
            quick.subscribe(1, "T", BOTH)
            quick.update()
            for number in range(20):
                update_texts(table, number)
                assert quick.update().modified["n"][999] == number
            wait_until(lambda: server.dropped_count == 1, "a client to be dropped")
            assert server.client_count == 1
            assert quick.tables[1] == table.rows()
            events = slow.rest()
            assert 0 < len(events) < 20 * 17


def test_more_clients_than_allowed_are_turned_away_until_one_leaves() -> None:
    with TableServer.start(max_clients=1) as server:
        server.export_table("T", texts(1))
        with Peer(server.port) as first:
            first.subscribe(1, "T", BOTH)
            first.update()
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as second:
                second.settimeout(PATIENCE)
                assert second.recv(1) == b""
        wait_until(lambda: server.client_count == 0, "the clients to be gone")
        with Peer(server.port) as third:
            third.subscribe(1, "T", BOTH)
            third.update()


def test_updates_that_wait_for_a_slow_client_are_bounded_in_bytes() -> None:
    table = texts(1000)
    with TableServer.start(msg_queue_size=4, send_wait_time_millis=600_000) as server:
        server.export_table("T", table)
        with Peer(server.port, receive_buffer=4096) as slow:
            slow.subscribe(1, "T", BOTH)
            slow.update()
            for number in range(100):
                update_texts(table, number)
            wait_until(lambda: server.dropped_count == 1, "a client to be dropped")


def test_a_client_that_reads_slowly_but_in_time_gets_everything() -> None:
    table = texts(1000)
    with TableServer.start(msg_queue_size=2) as server:
        server.export_table("T", table)
        with Peer(server.port, receive_buffer=4096) as peer:
            peer.subscribe(1, "T", BOTH)
            peer.update()
            for number in range(5):
                update_texts(table, number)
            for number in range(5):
                time.sleep(0.05)
                assert peer.update().modified["n"][0] == number
            assert server.dropped_count == 0


def test_clients_that_come_while_a_table_changes_all_arrive_at_its_state() -> None:
    table = LiveTable({"s": "String", "n": "Long", "x": "Double"})
    changer = Changer(table, 11)
    for _ in range(50):
        changer.change()
    with TableServer.start(msg_buffer_size=512) as server:
        server.export_table("T", table)
        stop = threading.Event()

        def keep_on() -> None:
            while not stop.is_set():
                changer.change()

        writer = threading.Thread(target=keep_on)
        writer.start()
        peers = [Peer(server.port) for _ in range(4)]
        try:
            for number, peer in enumerate(peers):
                peer.subscribe(1, "T", BOTH, row_filter="n > 0" if number % 2 else "")
                for _ in range(10):
                    peer.update()
        finally:
            stop.set()
            writer.join()
        with table.update() as update:
            update.add([{"s": "last", "n": 1}])
        try:
            for number, peer in enumerate(peers):
                while not any(row["s"] == "last" for row in peer.tables[1].values()):
                    peer.update()
                rows = table.rows()
                assert peer.tables[1] == {
                    key: row for key, row in rows.items() if not number % 2 or (row["n"] or 0) > 0
                }
        finally:
            for peer in peers:
                peer.socket.close()


def test_the_projects_own_client_follows_a_changing_table_of_every_type() -> None:
    table = LiveTable({name.lower(): name for name in TYPES})
    changer = Changer(table, 5)
    for _ in range(20):
        changer.change()
    with TableServer.start(msg_buffer_size=1000) as server:
        server.export_table("T", table)
        listener = TableListener()
        with TableClient("127.0.0.1", server.port, listener) as client:
            client.subscribe(1, BOTH, "T")
            listener.expect_updates(1)
            for _ in range(20):
                changer.change()
            listener.expect_updates(21)
            assert listener.rows(1) == table.rows()
            client.unsubscribe(1)
            listener.expect_unsubscribe_responses(1)
            changer.change()
            client.subscribe(2, SubscribeMode.SNAPSHOT_ONLY, "T")
            listener.expect_updates(22)
            assert listener.rows(2) == table.rows()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\x00",
        frame(b"\x00\x00\x63\x03\x01\x00\x01\x00", PrefixCounts.MESSAGE),
        frame(b"\x05\x00\x02\x00\x01\x00\x01\x00\x01\x00\x00", PrefixCounts.MESSAGE),
        frame(b"\x05\x00\x02\x00\x09\x00\x01\x00" + bytes(17), PrefixCounts.MESSAGE),
        frame(encode_begin(load_roles(), 1), PrefixCounts.MESSAGE),
        frame(encode_connection_response(load_roles(), 5), PrefixCounts.MESSAGE),
        frame(Random(1).randbytes(500), PrefixCounts.MESSAGE),
    ],
    ids=[
        "another protocol",
        "oversized",
        "shorter than a header",
        "unknown template",
        "truncated",
        "another schema",
        "a server's message",
        "the greeting",
        "noise",
    ],
)
def test_a_client_that_does_not_speak_the_protocol_is_disconnected_alone(sent: bytes) -> None:
    table = texts(1000)
    with TableServer.start() as server:
        server.export_table("T", table)
        with Peer(server.port) as polite, Peer(server.port) as rude:
            polite.subscribe(1, "T", BOTH)
            polite.update()
            rude.socket.sendall(sent)
            assert rude.rest() == []
            wait_until(lambda: server.client_count == 1, "one client to be left")
            update_texts(table, 5)
            assert polite.update().modified["n"][0] == 5
            assert server.dropped_count == 0


def test_half_a_request_waits_for_the_other_half() -> None:
    with TableServer.start() as server, Peer(server.port) as peer:
        request = peer.session.subscribe(1, BOTH, "Nowhere")
        for octet in request:
            peer.socket.sendall(bytes([octet]))
        answer = peer.event()
        assert isinstance(answer, SubscriptionError)
        assert answer.code == "UNKNOWN_TABLE"


def test_a_client_that_leaves_while_it_is_served_is_forgotten() -> None:
    table = texts(20_000)
    with TableServer.start() as server:
        server.export_table("T", table)
        for _ in range(5):
            with Peer(server.port) as peer:
                peer.subscribe(1, "T", BOTH)
        wait_until(lambda: server.client_count == 0, "the clients to be gone")
        update_texts(table, 1)
        with Peer(server.port) as peer:
            peer.subscribe(1, "T", BOTH, columns=["n"])
            assert peer.update().added["n"][0] == 1


def test_all_connections_can_be_broken_and_made_again() -> None:
    table = texts(1000)
    with TableServer.start() as server:
        server.export_table("T", table)
        with Peer(server.port) as one, Peer(server.port) as other:
            one.subscribe(1, "T", BOTH)
            one.update()
            server.disconnect_all()
            assert server.client_count == 0
            assert one.rest() == []
            assert other.rest() == []
        update_texts(table, 3)
        with Peer(server.port) as again:
            again.subscribe(1, "T", BOTH)
            assert again.update().added["n"][0] == 3


def test_closing_ends_every_connection_and_may_be_repeated() -> None:
    table = texts(20_000)
    server = TableServer.start()
    server.export_table("T", table)
    with Peer(server.port) as idle, Peer(server.port) as busy:
        busy.subscribe(1, "T", BOTH)
        server.close()
        assert idle.rest() == []
        busy.rest()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", idle.socket.getpeername()[1]))
    server.close()
    server.disconnect_all()
    update_texts(table, 1)


def test_a_client_has_a_bounded_number_of_subscriptions() -> None:
    with TableServer.start() as server, Peer(server.port) as peer:
        server.export_table("T", LiveTable({"n": "Long"}))
        for number in range(1000):
            assert isinstance(peer.subscribe(number, "T", SubscribeMode.UPDATES_ONLY), SubscribeResponse)
        answer = peer.subscribe(1000, "T", SubscribeMode.UPDATES_ONLY)
        assert isinstance(answer, SubscriptionError)
        assert answer.text == "a client has at most 1000 subscriptions"


def test_a_users_own_schema_is_spoken_with_its_ids_and_byte_order() -> None:
    xml = (files("silverfold.connectors.deephaven") / "schema.xml").read_text()
    xml = xml.replace('byteOrder="littleEndian"', 'byteOrder="bigEndian"')
    xml = re.sub(r'(<sbe:message name="\w+" id=")(\d+)', lambda found: f"{found[1]}{int(found[2]) + 1000}", xml)
    xml = xml.replace('<validValue name="SNAPSHOT_ONLY">2<', '<validValue name="SNAPSHOT_ONLY">9<')
    xml = xml.replace('<validValue name="UNKNOWN_TABLE">1<', '<validValue name="UNKNOWN_TABLE">77<')
    schema = load_schema(xml.encode())
    with TableServer.start(schema=schema) as server:
        table = texts(10)
        server.export_table("T", table)
        with Peer(server.port, schema=schema) as peer:
            answer = peer.subscribe(1, "T", SubscribeMode.SNAPSHOT_ONLY)
            assert isinstance(answer, SubscribeResponse)
            assert answer.columns[0].template_id == 1107
            assert answer.body[:8] == bytes.fromhex("0004 03eb 0001 0001")
            peer.update()
            assert peer.tables[1] == table.rows()
            refused = peer.subscribe(2, "Nowhere")
            assert isinstance(refused, SubscriptionError)
            assert (refused.code, refused.body[12:14]) == ("UNKNOWN_TABLE", b"\x00\x4d")
