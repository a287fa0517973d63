"""What a program asks of what it was told: columns by name and type, counts of what came, several listeners."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from silverfold.conf.errors import LocalProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.listener import Listener
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo, SubscribeMode
from silverfold.connectors.deephaven.protocol.types import TYPES as COLUMN_TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from tests.support.peers import peer

NOON = 1_503_662_400_000_000_000
TYPES = {
    "Sym": "String",
    "Size": "Int",
    "Price": "Decimal",
    "At": "DateTime",
    "Raw": "ByteArray",
    "Times": "DateTimeArray",
}


@pytest.fixture
def quotes() -> LiveTable:
    table = LiveTable(TYPES)
    with table.update() as update:
        update.add(
            [
                {
                    "Sym": "AAPL",
                    "Size": 100,
                    "Price": Decimal("1.50"),
                    "At": NOON + 1_999,
                    "Raw": [0, 127, -128, -1],
                    "Times": [NOON + 1_999],
                },
                {"Sym": "IBM"},
            ]
        )
    return table


@pytest.fixture
def server(quotes: LiveTable) -> Iterator[TableServer]:
    with TableServer.start() as server:
        server.export_table("Quotes", quotes)
        yield server


def test_a_column_is_had_by_name_in_python_or_arrow_for_all_rows_or_some(server: TableServer) -> None:
    listener = TableListener()
    with TableClient("127.0.0.1", server.port, listener) as client:
        client.subscribe(7, SubscribeMode.SNAPSHOT_ONLY, "Quotes")
        listener.expect_updates()

    assert listener.row_keys(7) == [0, 1]
    assert listener.column_data(7, "Size") == [100, None]
    assert listener.column_data(7, "Sym", [1, 0, 9]) == ["IBM", "AAPL", None]
    assert listener.column_array(7, "Size").equals(pa.array([100, None], pa.int32()))
    assert listener.column_array(7, "Price", [0]).equals(pa.array(["1.50"]))
    assert listener.column_array(7, "At").equals(pa.array([NOON + 1_999, None], pa.int64()))
    assert listener.blobs(7, "Raw") == [b"\x00\x7f\x80\xff", None]
    with pytest.raises(LocalProtocolError, match="subscription 7 has no column Nope"):
        listener.column_data(7, "Nope")
    with pytest.raises(LocalProtocolError, match="column Sym has no arrays of bytes"):
        listener.blobs(7, "Sym")
    assert listener.row_keys(8) == []


def test_date_times_can_be_had_as_such(server: TableServer) -> None:
    listener = TableListener(date_times="datetime")
    with TableClient("127.0.0.1", server.port, listener) as client:
        client.subscribe(7, SubscribeMode.SNAPSHOT_ONLY, "Quotes")
        listener.expect_updates()

    at = datetime(2017, 8, 25, 12, 0, 0, 1, tzinfo=UTC)
    assert listener.column_data(7, "At") == [at, None]
    assert listener.column_array(7, "At").to_pylist() == [at, None]
    assert listener.column_data(7, "Times") == listener.column_array(7, "Times").to_pylist() == [[at], None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is what becomes of its error
def test_a_listener_that_raises_ends_the_connection_and_others_are_told(server: TableServer) -> None:
    class Raising(Listener):
        def on_begin_table_update(self, subscription_id: int) -> None:
            raise ValueError("of the listener's own")

        def on_connection_error(self, error: SilverfoldError) -> None:
            raise ValueError("and again")

    listener = TableListener()
    with TableClient("127.0.0.1", server.port, Raising()) as client:
        client.add_listener(listener)
        client.subscribe(7, SubscribeMode.SNAPSHOT_ONLY, "Quotes")
        with pytest.raises(SourceUnavailable, match="a listener raised an error"):
            listener.expect_updates()
        with pytest.raises(SourceUnavailable):
            client.subscribe(8, SubscribeMode.SNAPSHOT_ONLY, "Quotes")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_end_is_told_once_with_its_reason_though_a_listener_raises_at_it() -> None:
    reasons: list[SilverfoldError] = []

    class Raising(Listener):
        def on_connection_error(self, error: SilverfoldError) -> None:
            reasons.append(error)
            raise ValueError("of the listener's own")

    with peer(lambda connection: connection.sendall(b"\xff" * 9)) as port:
        client = TableClient("127.0.0.1", port, Raising())
        client._thread.join(10)
    late = TableListener()
    client.add_listener(late)
    assert ["frame-too-large" in str(error) for error in (*reasons, late.connection_error)] == [True, True]


def test_what_came_can_be_waited_for_and_the_last_answer_is_known(server: TableServer, quotes: LiveTable) -> None:
    listener = TableListener()
    with TableClient("127.0.0.1", server.port, listener) as client:
        assert (listener.last_subscription_id, listener.last_error) == (None, None)
        client.subscribe(7, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Quotes")
        listener.expect_begun_updates(1)
        listener.expect_rows_added(len(TYPES))
        with quotes.update() as update:
            update.remove([1])
            update.modify({0: {"Size": 5}})
        listener.expect_rows_modified(1)
        listener.expect_rows_removed(1)
        listener.expect_begun_updates(2)
        assert listener.last_subscription_id == 7
        client.subscribe(8, SubscribeMode.SNAPSHOT_ONLY, "Nope")
        listener.expect_subscription_errors(1)
        assert listener.last_error is not None
        assert listener.last_error[:2] == (8, "UNKNOWN_TABLE")
        client.subscribe(9, SubscribeMode.UPDATES_ONLY, "Quotes")
        listener.expect_subscribe_responses(2)
        client.unsubscribe(7)
        listener.expect_unsubscribe_responses(1)
        assert listener.last_subscription_id == 7


def test_a_listener_that_is_added_later_gets_the_subscriptions_that_are_confirmed_from_then_on(
    server: TableServer, quotes: LiveTable
) -> None:
    first, late = TableListener(), TableListener()
    with TableClient("127.0.0.1", server.port, first) as client:
        client.subscribe(7, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Quotes")
        first.expect_updates(1)
        client.add_listener(late)
        client.subscribe(8, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Quotes")
        first.expect_updates(2)
        with quotes.update() as update:
            update.add([{"Sym": "MSFT"}])
        first.expect_updates(4)
        late.expect_updates(2)
        client.unsubscribe(7)
        first.expect_unsubscribe_responses(1)
        client.unsubscribe(8)
        late.expect_unsubscribe_responses(1)

    assert (len(first.rows(7)), late.rows(7), late.columns(7)) == (3, {}, ())
    assert late.rows(8) == first.rows(8) == first.rows(7)
    assert late.last_subscription_id == 8


def test_all_listeners_are_told_that_the_connection_is_over_also_those_that_come_then(server: TableServer) -> None:
    listeners = [TableListener() for _ in range(3)]
    with TableClient("127.0.0.1", server.port, listeners[0]) as client:
        client.add_listener(listeners[1])
        client.subscribe(7, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Quotes")
        for each in listeners[:2]:
            each.expect_updates(1)
        server.disconnect_all()
        for each in listeners[:2]:
            with pytest.raises(SilverfoldError):
                each.expect_updates(9)
        client.add_listener(listeners[2])
        assert listeners[2].connection_error is not None


@pytest.mark.parametrize("seed", range(20))
def test_removed_ranges_may_be_wide_overlap_and_hold_keys_that_no_row_has(seed: int) -> None:
    random = Random(seed)
    keys = sorted(random.sample(range(200), 60))
    ranges = [(first, first + random.choice((0, 3, 50, 2**40))) for first in random.sample(range(200), seed % 7)]
    listener = TableListener()
    listener.on_subscribe_response(1, {0: ColumnInfo(0, 6, "Size", COLUMN_TYPES["Int"])})
    for added, removed in ((keys, []), ([], ranges)):
        listener.on_begin_table_update(1)
        if added:
            listener.on_rows_added(1, 0, np.array(added), pa.array(added, pa.int32()))
        listener.on_rows_removed(1, np.array(removed, np.int64).reshape(-1, 2))
        listener.on_end_table_update(1)

    assert listener.row_keys(1) == [key for key in keys if not any(first <= key <= last for first, last in ranges)]
