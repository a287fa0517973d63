"""The client over real sockets on loopback: against our server, and against peers that misbehave."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from silverfold.conf.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    SilverfoldError,
    SourceUnavailable,
    WireError,
)
from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.listener import Listener
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from tests.support.deephaven.columns import encoded
from tests.support.deephaven.vectors import builtin_roles
from tests.support.peers import peer

SNAPSHOT, BOTH, UPDATES = SubscribeMode.SNAPSHOT_ONLY, SubscribeMode.SNAPSHOT_WITH_UPDATES, SubscribeMode.UPDATES_ONLY
ROLES = builtin_roles()
GREETING = frame(control.encode_connection_response(ROLES, 65536))
RESPONSE = frame(control.encode_subscribe_response(ROLES, 7, [(3, "Size", TYPES["Int"])]))
BEGIN, END = frame(control.encode_begin(ROLES, 7)), frame(control.encode_end(ROLES, 7))
COLUMN = frame(encoded(ROLES, "Int", [1, 2])[0])


@pytest.fixture
def quotes() -> LiveTable:
    table = LiveTable({"Sym": "String", "Bid": "Double", "Price": "Decimal"})
    with table.update() as update:
        update.add(
            [
                {"Sym": "AAPL", "Bid": 1.5, "Price": Decimal("1.50")},
                {"Sym": "IBM", "Bid": 2.5, "Price": None},
            ]
        )
    return table


@pytest.fixture
def server(quotes: LiveTable) -> Iterator[TableServer]:
    with TableServer.start() as server:
        server.export_table("Quotes", quotes)
        yield server


@pytest.fixture
def listener() -> TableListener:
    return TableListener()


@pytest.fixture
def client(server: TableServer, listener: TableListener) -> Iterator[TableClient]:
    with TableClient("127.0.0.1", server.port, listener) as client:
        yield client


def read_request(connection: socket.socket) -> bytes:
    """Read one request whole."""
    octets = b""
    while len(octets) < 4 or len(octets) < 4 + int.from_bytes(octets[:4], "little"):
        chunk = connection.recv(1 << 16)
        assert chunk, "the client has left"
        octets += chunk
    return octets


def script(*octets: bytes) -> Callable[[socket.socket], None]:
    """Greet, wait for a request, then say the rest and close."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(GREETING)
        read_request(connection)
        connection.sendall(b"".join(octets))

    return talk


def end_of(*octets: bytes) -> tuple[TableListener, SilverfoldError]:
    """Subscribe at a peer that says these bytes and closes; return what was heard and why it ended."""
    listener = TableListener()
    with peer(script(*octets)) as port, TableClient("127.0.0.1", port, listener) as client:
        client.subscribe(7, BOTH, "Quotes")
        with pytest.raises(SilverfoldError):
            listener.expect_updates(99)
    assert listener.connection_error is not None
    return listener, listener.connection_error


def test_a_snapshot_is_the_table(client: TableClient, listener: TableListener) -> None:
    client.subscribe(1, SNAPSHOT, "Quotes")

    listener.expect_updates(1)

    assert list(listener.rows(1).values()) == [
        {"Sym": "AAPL", "Bid": 1.5, "Price": Decimal("1.50")},
        {"Sym": "IBM", "Bid": 2.5, "Price": None},
    ]
    assert [column.name for column in listener.columns(1)] == ["Sym", "Bid", "Price"]


def test_updates_reach_the_listener(client: TableClient, listener: TableListener, quotes: LiveTable) -> None:
    client.subscribe(1, BOTH, "Quotes", ["Sym", "Bid"])
    listener.expect_updates(1)
    first, second = listener.rows(1)

    with quotes.update() as update:
        update.remove([first])
        update.modify({second: {"Bid": 9.0}})

    listener.expect_rows(1, lambda rows: rows == {second: {"Sym": "IBM", "Bid": 9.0}})


def test_several_subscriptions_share_a_connection(client: TableClient, listener: TableListener) -> None:
    client.subscribe(1, SNAPSHOT, "Quotes")
    client.subscribe(2, SNAPSHOT, "Quotes", filter="Sym = `IBM`")

    listener.expect_subscribe_responses(2)
    listener.expect_updates(2)

    assert [len(listener.rows(1)), len(listener.rows(2))] == [2, 1]


def test_an_unsubscription_is_confirmed(client: TableClient, listener: TableListener) -> None:
    client.subscribe(1, BOTH, "Quotes")
    listener.expect_updates(1)

    client.unsubscribe(1)

    listener.expect_unsubscribe_responses(1)
    assert client.is_alive()


def test_a_refusal_reaches_the_listener_and_others_go_on(client: TableClient, listener: TableListener) -> None:
    client.subscribe(1, SNAPSHOT, "Nope")
    listener.expect_subscription_errors(1)

    client.subscribe(2, SNAPSHOT, "Quotes")

    listener.expect_updates(1)
    assert [(refused, code) for refused, code, _ in listener.errors] == [(1, "UNKNOWN_TABLE")]


def test_an_id_can_be_used_once(client: TableClient) -> None:
    client.subscribe(1, SNAPSHOT, "Quotes")

    with pytest.raises(LocalProtocolError):
        client.subscribe(1, SNAPSHOT, "Quotes")


def test_closing_before_the_server_said_anything_is_no_error(listener: TableListener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        TableClient("127.0.0.1", silent.getsockname()[1], listener).close()

    assert listener.connection_error is None


def test_closing_is_no_error_and_can_be_repeated(client: TableClient, listener: TableListener) -> None:
    client.close()
    client.close()

    assert not client.is_alive()
    assert listener.connection_error is None
    with pytest.raises(SourceUnavailable):
        client.subscribe(1, SNAPSHOT, "Quotes")


def test_closing_inside_an_update_voids_it_and_ends_what_waits() -> None:
    class Locking(TableListener):
        """Holds a lock while an update is open, as a program does that shows tables to others."""

        def __init__(self) -> None:
            super().__init__()
            self.lock, self.began = threading.Lock(), threading.Event()

        def on_begin_table_update(self, subscription_id: int) -> None:
            super().on_begin_table_update(subscription_id)
            self.lock.acquire()
            self.began.set()

        def on_void_table_update(self, subscription_id: int) -> None:
            super().on_void_table_update(subscription_id)
            self.lock.release()

    def talk(connection: socket.socket) -> None:
        script(RESPONSE, BEGIN, COLUMN[:-1])(connection)
        done.wait()

    done, listener = threading.Event(), Locking()
    with peer(talk) as port:
        client = TableClient("127.0.0.1", port, listener)
        client.subscribe(7, BOTH, "Quotes")
        assert listener.began.wait(20)
        client.close()
        done.set()

    assert not listener.lock.locked()
    with pytest.raises(SourceUnavailable, match="closed here, inside an update"):
        listener.expect_updates(1)


@pytest.mark.parametrize("within", [False, True])
def test_a_listener_that_closes_hears_no_more_though_more_has_arrived(within: bool) -> None:
    class Closing(TableListener):
        def on_begin_table_update(self, subscription_id: int) -> None:
            super().on_begin_table_update(subscription_id)
            called.append("begin")
            if within:
                client.close()

        def on_end_table_update(self, subscription_id: int) -> None:
            super().on_end_table_update(subscription_id)
            called.append("end")
            client.close()

        def on_void_table_update(self, subscription_id: int) -> None:
            super().on_void_table_update(subscription_id)
            called.append("void")

    called = list[str]()
    with peer(script(RESPONSE, BEGIN, COLUMN, END, BEGIN, COLUMN, END)) as port:
        client = TableClient("127.0.0.1", port, Closing())
        client.subscribe(7, BOTH, "Quotes")
        client._thread.join(20)

    assert not client.is_alive()
    assert called == ["begin", "void" if within else "end"]


def test_an_update_whose_rows_cannot_be_decoded_is_void() -> None:
    class Voided(TableListener):
        def on_void_table_update(self, subscription_id: int) -> None:
            super().on_void_table_update(subscription_id)
            voided.append(subscription_id)

    voided: list[int] = []
    listener = Voided()
    with (
        peer(script(RESPONSE, BEGIN, frame(encoded(ROLES, "Int", [1, 2])[0][:-3]))) as port,
        TableClient("127.0.0.1", port, listener) as client,
    ):
        client.subscribe(7, BOTH, "Quotes")
        with pytest.raises(WireError):
            listener.expect_updates(1)

    assert voided == [7]


def test_a_listener_may_ask_for_more_and_close(server: TableServer) -> None:
    class Curious(TableListener):
        client: TableClient

        def on_connection_response(self, message_buffer_size: int) -> None:
            ready.wait()
            self.client.subscribe(1, SNAPSHOT, "Quotes")

        def on_end_table_update(self, subscription_id: int) -> None:
            super().on_end_table_update(subscription_id)
            self.client.close()

    ready = threading.Event()
    listener = Curious()
    listener.client = TableClient("127.0.0.1", server.port, listener)
    ready.set()

    listener.expect_updates(1)
    listener.client.close()

    assert len(listener.rows(1)) == 2


def test_listeners_may_close_the_clients_of_each_other_when_both_connections_have_ended(server: TableServer) -> None:
    class Closing(TableListener):
        other: TableClient

        def on_connection_error(self, error: SilverfoldError) -> None:
            both.wait(10)
            self.other.close()

    both = threading.Barrier(2)
    listeners = [Closing(), Closing()]
    one, other = (TableClient("127.0.0.1", server.port, each) for each in listeners)
    listeners[0].other, listeners[1].other = other, one
    for client, listener in zip((one, other), listeners, strict=True):
        client.subscribe(1, SNAPSHOT, "Quotes")
        listener.expect_updates(1)

    server.disconnect_all()

    for client in (one, other):
        client._thread.join(10)
        assert not client.is_alive()


def test_a_server_that_closes_is_told(server: TableServer, client: TableClient, listener: TableListener) -> None:
    client.subscribe(1, BOTH, "Quotes")
    listener.expect_updates(1)

    server.disconnect_all()

    with pytest.raises(SourceUnavailable, match=r"the server closed the connection|the connection broke"):
        listener.expect_updates(2)
    assert len(listener.rows(1)) == 2


def test_nobody_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

    with pytest.raises(SourceUnavailable, match=f"127.0.0.1:{port}"):
        TableClient("127.0.0.1", port, TableListener())


def test_a_peer_that_sends_nothing_is_told_when_something_is_asked() -> None:
    done = threading.Event()

    with peer(lambda _: done.wait()) as port, TableClient("127.0.0.1", port, TableListener(), timeout=0.05) as client:
        with pytest.raises(SourceUnavailable, match=r"sent nothing within 0\.05 s"):
            client.subscribe(1, SNAPSHOT, "Quotes")
        done.set()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", GREETING[:9]])
def test_a_peer_that_speaks_something_else_is_told(greeting: bytes) -> None:
    listener = TableListener()

    with (
        peer(lambda connection: connection.sendall(greeting)) as port,
        TableClient("127.0.0.1", port, listener),
        pytest.raises(SilverfoldError),
    ):
        listener.expect_updates(1)

    assert listener.connection_error is not None


@pytest.mark.parametrize(
    ("octets", "error", "text"),
    [
        ([RESPONSE, END], RemoteProtocolError, "EndTableUpdate without BeginTableUpdate"),
        ([RESPONSE, BEGIN, COLUMN[:-1]], RemoteProtocolError, "bytes into a frame"),
        ([BEGIN], RemoteProtocolError, "which is requested"),
        ([RESPONSE, BEGIN, COLUMN.replace(b"\3\0\0\0\0", b"\4\0\0\0\0")], RemoteProtocolError, "no column id 4"),
        ([RESPONSE, b"\xff\xff\xff\xff"], SilverfoldError, "frame-too-large"),
        ([RESPONSE, BEGIN, COLUMN], SourceUnavailable, "closed the connection"),
    ],
)
def test_a_server_that_breaks_the_protocol_ends_the_connection_with_a_named_error(
    octets: list[bytes], error: type[SilverfoldError], text: str
) -> None:
    listener, found = end_of(*octets)

    assert isinstance(found, error)
    assert text in str(found)
    assert listener.rows(7) == {}


def test_a_request_of_a_listener_that_learns_of_the_end_fails_at_once_with_the_end() -> None:
    reasons = queue.SimpleQueue[str]()

    class Asking(Listener):
        def on_connection_error(self, error: SilverfoldError) -> None:
            with pytest.raises(SourceUnavailable) as raised:
                clients.get().subscribe(1, SNAPSHOT, "Quotes")
            reasons.put(str(raised.value))

    clients = queue.SimpleQueue[TableClient]()
    with (
        peer(lambda connection: connection.sendall(b"\xff" * 64)) as port,
        TableClient("127.0.0.1", port, Asking(), timeout=0.5) as client,
    ):
        clients.put(client)
        assert reasons.get(timeout=20) == "the connection is over"


def test_whole_updates_before_the_break_stay() -> None:
    listener, _ = end_of(RESPONSE, BEGIN, COLUMN, END, BEGIN, COLUMN, END[:5])

    assert listener.rows(7) == {0: {"Size": 1}, 1: {"Size": 2}}


def test_what_does_not_come_by_the_deadline_is_told(client: TableClient, listener: TableListener) -> None:
    with pytest.raises(SourceUnavailable, match=r"waited 0\.01 s for 1 updates"):
        listener.expect_updates(1, timeout=0.01)
