"""The table server over real sockets on loopback: what a client is sent for what it asks."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import pytest

from silverfold.conf.errors import LocalProtocolError, SourceUnavailable
from silverfold.connectors.deephaven.protocol.control import encode_subscribe, encode_unsubscribe
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.messages import (
    ErrorCode,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
    UnsubscribeResponse,
)
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.deephaven.peer import Peer

SNAPSHOT, BOTH, UPDATES = SubscribeMode.SNAPSHOT_ONLY, SubscribeMode.SNAPSHOT_WITH_UPDATES, SubscribeMode.UPDATES_ONLY


@pytest.fixture
def quotes() -> LiveTable:
    table = LiveTable({"Sym": "String", "Bid": "Double", "Size": "Int"})
    with table.update() as update:
        update.add(
            [
                {"Sym": "AAPL", "Bid": 1.5, "Size": 100},
                {"Sym": "IBM", "Bid": 2.5, "Size": None},
                {"Sym": None, "Bid": None, "Size": 300},
            ]
        )
    return table


@pytest.fixture
def server(quotes: LiveTable) -> Iterator[TableServer]:
    with TableServer.start() as server:
        server.export_table("Quotes", quotes)
        yield server


@pytest.fixture
def peer(server: TableServer) -> Iterator[Peer]:
    with Peer(server.port) as peer:
        yield peer


def change(table: LiveTable, **bids: float) -> None:
    keys = {row["Sym"]: key for key, row in table.rows().items()}
    with table.update() as update:
        update.modify({keys[symbol]: {"Bid": bid} for symbol, bid in bids.items()})


def refused(answer: object) -> tuple[int, str]:
    assert isinstance(answer, SubscriptionError), answer
    return answer.subscription_id, answer.code


def test_the_first_message_announces_the_buffer_size(peer: Peer) -> None:
    assert peer.buffer_size == 65_536


def test_a_response_names_the_columns_with_their_types_in_the_order_of_the_table(peer: Peer) -> None:
    answer = peer.subscribe(7, "Quotes")
    assert isinstance(answer, SubscribeResponse)
    assert answer.subscription_id == 7
    assert [(column.column_id, column.name, column.type) for column in answer.columns] == [
        (0, "Sym", TYPES["String"]),
        (1, "Bid", TYPES["Double"]),
        (2, "Size", TYPES["Int"]),
    ]


def test_a_snapshot_is_one_update_that_adds_every_row(peer: Peer) -> None:
    peer.subscribe(1, "Quotes", SNAPSHOT)
    update = peer.update()
    assert update.added == {
        "Sym": {0: "AAPL", 1: "IBM", 2: None},
        "Bid": {0: 1.5, 1: 2.5, 2: None},
        "Size": {0: 100, 1: None, 2: 300},
    }
    assert (update.modified, update.removed, update.order) == ({}, [], ["added"] * 3)


def test_a_snapshot_only_subscription_is_gone_afterwards_and_its_id_free(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", SNAPSHOT)
    peer.update()
    change(quotes, AAPL=9.0)
    peer.unsubscribe(1)
    assert refused(peer.event()) == (1, "INVALID_SUBSCRIPTION_ID")
    peer.send(encode_subscribe(load_roles(), 1, SNAPSHOT, "Nowhere"))
    assert refused(peer.event()) == (1, "UNKNOWN_TABLE")


def test_updates_follow_a_snapshot_each_as_one_update(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH)
    assert peer.update().snapshot
    with quotes.update() as update:
        update.modify({0: {"Bid": 9.5}})
        update.remove([1, 2])
        update.add([{"Sym": "T"}, {"Sym": "GE"}], keys=[50, 51])
    change(quotes, T=1.0)
    first, second = peer.update(), peer.update()
    assert (first.snapshot, first.removed) == (False, [(1, 2)])
    assert first.added == {"Sym": {50: "T", 51: "GE"}, "Bid": {50: None, 51: None}, "Size": {50: None, 51: None}}
    assert first.modified == {"Sym": {0: "AAPL"}, "Bid": {0: 9.5}, "Size": {0: 100}}
    assert first.order == ["removed"] + ["added"] * 3 + ["modified"] * 3
    assert second.modified == {"Sym": {50: "T"}, "Bid": {50: 1.0}, "Size": {50: None}}
    assert peer.tables[1] == quotes.rows()


def test_updates_only_begins_with_the_first_update_after_the_response(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", UPDATES)
    with quotes.update() as update:
        update.remove([2])
        update.add([{"Sym": "T"}])
    update = peer.update()
    assert (update.snapshot, update.removed, update.added["Sym"]) == (False, [(2, 2)], {3: "T"})


def test_an_empty_tables_snapshot_is_an_update_without_rows(server: TableServer, peer: Peer) -> None:
    server.export_table("Empty", LiveTable({"a": "Long"}))
    peer.subscribe(1, "Empty", BOTH)
    update = peer.update()
    assert (update.snapshot, update.order) == (True, [])


def test_only_the_columns_asked_for_come_in_the_order_asked_for(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH, columns=["Size", "Sym"])
    assert peer.columns[1] == ["Size", "Sym"]
    assert peer.update().added == {"Size": {0: 100, 1: None, 2: 300}, "Sym": {0: "AAPL", 1: "IBM", 2: None}}
    with quotes.update() as update:
        update.modify({0: {"Sym": "X"}})
    assert peer.update().modified == {"Size": {0: 100}, "Sym": {0: "X"}}


def test_rows_come_and_go_as_they_satisfy_the_filter(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH, columns=["Sym"], row_filter="Bid > 2 && !isNull(Sym)")
    assert peer.update().added == {"Sym": {1: "IBM"}}
    with quotes.update() as update:
        update.modify({0: {"Bid": 3.0}, 1: {"Bid": 0.0}})
        update.add([{"Sym": "T", "Bid": 5.0}, {"Sym": "GE", "Bid": 1.0}])
    crossed = peer.update()
    assert (crossed.removed, crossed.added, crossed.modified) == ([(1, 1)], {"Sym": {0: "AAPL", 3: "T"}}, {})
    with quotes.update() as update:
        update.remove([1])
        update.modify({4: {"Bid": 1.5}})  # neither was sent, nor is this update
    with quotes.update() as update:
        update.modify({0: {"Bid": 4.0}})
        update.remove([3])
    inside = peer.update()
    assert (inside.removed, inside.added, inside.modified) == ([(3, 3)], {}, {"Sym": {0: "AAPL"}})


def test_a_filter_on_updates_only_knows_what_rows_were_before(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", UPDATES, columns=["Sym"], row_filter="Bid > 2")
    change(quotes, AAPL=3.0, IBM=1.0)
    update = peer.update()
    assert (update.removed, update.added, update.modified) == ([(1, 1)], {"Sym": {0: "AAPL"}}, {})


def test_a_row_replaced_in_one_update_is_removed_and_added(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH, columns=["Sym"])
    peer.update()
    with quotes.update() as update:
        update.remove([1])
        update.add([{"Sym": "new"}], keys=[1])
    replaced = peer.update()
    assert (replaced.removed, replaced.added) == ([(1, 1)], {"Sym": {1: "new"}})


def test_a_table_of_partial_columns_sends_only_what_was_written(server: TableServer, peer: Peer) -> None:
    table = LiveTable({"a": "Long", "b": "Long", "c": "Long"}, partial_columns=True)
    with table.update() as update:
        update.add([{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}])
    server.export_table("Partial", table)
    peer.subscribe(1, "Partial", BOTH, columns=["a", "b"])
    peer.update()
    with table.update() as update:
        update.modify({0: {"a": 10}, 1: {"a": 20, "b": 21}})
    with table.update() as update:
        update.modify({0: {"c": 30}})  # not subscribed: no update
    with table.update() as update:
        update.modify({1: {"b": 22}})
    assert peer.update().modified == {"a": {0: 10, 1: 20}, "b": {1: 21}}
    assert peer.update().modified == {"b": {1: 22}}
    assert peer.tables[1] == {0: {"a": 10, "b": 1}, 1: {"a": 20, "b": 22}}


def test_rows_are_named_by_ranges_whatever_their_keys(server: TableServer, peer: Peer) -> None:
    table = LiveTable({"a": "Long"})
    with table.update() as update:
        update.add([{"a": n} for n in range(5)], keys=[3, 4, 5, 2**62, 0])
    server.export_table("Sparse", table)
    peer.subscribe(1, "Sparse", BOTH)
    assert peer.update().added == {"a": {0: 4, 3: 0, 4: 1, 5: 2, 2**62: 3}}
    with table.update() as update:
        update.remove_range(0, 2**63 - 1)
    assert peer.update().removed == [(0, 0), (3, 5), (2**62, 2**62)]


def test_two_clients_and_two_subscriptions_all_hear_of_an_update(server: TableServer, quotes: LiveTable) -> None:
    with Peer(server.port) as one, Peer(server.port) as other:
        one.subscribe(1, "Quotes", BOTH)
        assert one.update().subscription_id == 1
        one.subscribe(2, "Quotes", BOTH, columns=["Bid"])
        assert one.update().subscription_id == 2
        other.subscribe(1, "Quotes", BOTH)
        other.update()
        change(quotes, IBM=7.0)
        assert [one.update().modified["Bid"], one.update().modified["Bid"]] == [{1: 7.0}, {1: 7.0}]
        assert other.update().modified["Bid"] == {1: 7.0}
        assert server.client_count == 2


def test_after_unsubscribing_no_update_comes_and_the_id_is_free(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH)
    peer.update()
    peer.unsubscribe(1)
    answer = peer.event()
    assert isinstance(answer, UnsubscribeResponse)
    assert answer.subscription_id == 1
    change(quotes, AAPL=9.0)
    peer.send(encode_unsubscribe(load_roles(), 1))
    assert refused(peer.event()) == (1, "INVALID_SUBSCRIPTION_ID")


def test_an_unexported_table_takes_no_new_subscriptions_and_keeps_the_old(
    server: TableServer, peer: Peer, quotes: LiveTable
) -> None:
    peer.subscribe(1, "Quotes", BOTH)
    peer.update()
    server.unexport_table("Quotes")
    assert refused(peer.subscribe(2, "Quotes")) == (2, "UNKNOWN_TABLE")
    change(quotes, AAPL=9.0)
    assert peer.update().modified["Bid"] == {0: 9.0}


def test_a_name_exported_again_means_the_new_table(server: TableServer, peer: Peer) -> None:
    other = LiveTable({"n": "Long"})
    server.export_table("Quotes", other)
    peer.subscribe(1, "Quotes")
    assert peer.columns[1] == ["n"]


@pytest.mark.parametrize(
    ("request_of", "code", "text"),
    [
        (("Nowhere", (), ""), "UNKNOWN_TABLE", "no table is exported as Nowhere"),
        (("Quotes", ("Sym", "Nope"), ""), "UNKNOWN_COLUMN", "table Quotes has no column Nope"),
        (("Quotes", ("Sym", "Sym"), ""), "UNEXPECTED_ERROR", "a column is asked for twice"),
        (("Quotes", (), "Bid >"), "UNEXPECTED_ERROR", "found the end"),
        (("Quotes", (), "Nope = 1"), "UNEXPECTED_ERROR", "no column Nope"),
        (("Quotes", (), "Sym = 1"), "UNEXPECTED_ERROR", "String values do not compare with 1"),
    ],
)
def test_a_request_that_cannot_be_met_is_answered_with_its_error(
    peer: Peer, request_of: tuple[str, tuple[str, ...], str], code: str, text: str
) -> None:
    table, columns, row_filter = request_of
    answer = peer.subscribe(3, table, BOTH, columns, row_filter)
    assert refused(answer) == (3, code)
    assert text in answer.text
    assert isinstance(peer.subscribe(4, "Quotes"), SubscribeResponse)


@pytest.mark.parametrize(
    ("where", "instead", "why"),
    [(slice(12, 13), b"\x09", "mode is 9"), (slice(21, 23), b"\xff\xfe", "utf"), (slice(-4, None), b"", "")],
    ids=["no such mode", "no text", "no filter"],
)
def test_a_subscribe_of_which_only_the_id_can_be_read_is_answered_too(
    peer: Peer, quotes: LiveTable, where: slice, instead: bytes, why: str
) -> None:
    peer.subscribe(1, "Quotes", BOTH)
    peer.update()
    body = bytearray(encode_subscribe(load_roles(), 7, BOTH, "Quotes"))
    body[where] = instead
    peer.send(bytes(body))
    answer = peer.event()
    assert refused(answer) == (7, ErrorCode.UNEXPECTED_ERROR)
    assert why in answer.text.casefold()
    change(quotes, AAPL=9.0)
    assert peer.update().modified["Bid"] == {0: 9.0}


def test_a_blank_filter_means_all_rows(peer: Peer) -> None:
    peer.subscribe(1, "Quotes", SNAPSHOT, ["Size"], "  ")
    assert peer.update().added == {"Size": {0: 100, 1: None, 2: 300}}


def test_a_duplicate_id_is_refused_and_the_subscription_goes_on(peer: Peer, quotes: LiveTable) -> None:
    peer.subscribe(1, "Quotes", BOTH)
    peer.update()
    peer.send(encode_subscribe(load_roles(), 1, BOTH, "Quotes"))
    assert refused(peer.event()) == (1, ErrorCode.DUPLICATE_SUBSCRIPTION_ID)
    change(quotes, AAPL=9.0)
    assert peer.update().modified["Bid"] == {0: 9.0}


def test_a_value_larger_than_the_buffer_ends_its_subscription_only(server: TableServer, peer: Peer) -> None:
    table = LiveTable({"n": "Long", "text": "String"})
    with table.update() as update:
        update.add([{"n": 1, "text": "short"}])
    server.export_table("Texts", table)
    peer.subscribe(1, "Texts", BOTH)
    peer.update()
    with table.update() as update:
        update.add([{"n": 2, "text": "x" * 70_000}])
    assert refused(peer.failure()) == (1, "OBJECT_OVERFLOW")
    assert refused(peer.subscribe(2, "Nowhere")) == (2, "UNKNOWN_TABLE")
    peer.subscribe(3, "Texts", BOTH, columns=["n"])
    assert peer.update().added == {"n": {0: 1, 1: 2}}
    with table.update() as update:
        update.remove([1])
    assert peer.update().removed == [(1, 1)]


def test_a_snapshot_that_does_not_fit_is_refused_too(server: TableServer, peer: Peer) -> None:
    table = LiveTable({"text": "String"})
    with table.update() as update:
        update.add([{"text": "x" * 70_000}])
    server.export_table("Texts", table)
    peer.subscribe(1, "Texts", SNAPSHOT)
    assert refused(peer.failure()) == (1, "OBJECT_OVERFLOW")
    peer.send(encode_unsubscribe(load_roles(), 1))
    assert refused(peer.event()) == (1, "INVALID_SUBSCRIPTION_ID")


@pytest.mark.parametrize("counts", list(PrefixCounts))
def test_the_length_may_count_whatever_a_client_can_learn(counts: PrefixCounts, quotes: LiveTable) -> None:
    with TableServer.start(prefix_counts=counts) as server:
        server.export_table("Quotes", quotes)
        with Peer(server.port) as peer:
            assert peer.session.calibration is not None
            assert peer.session.calibration.prefix_counts is counts
            peer.subscribe(1, "Quotes")
            peer.update()
            assert peer.tables[1] == quotes.rows()


def test_a_port_in_use_is_named(server: TableServer) -> None:
    with pytest.raises(SourceUnavailable, match=f"cannot listen on 127.0.0.1:{server.port}"):
        TableServer.start(server.port)


def test_a_host_that_cannot_be_encoded_is_named():
    with pytest.raises(SourceUnavailable, match=r"cannot listen on é\.\.é:0"):
        TableServer.start(host="é..é")


def test_no_host_is_not_taken_for_all():
    with pytest.raises(SourceUnavailable, match="cannot listen on port 0 of no host"):
        TableServer.start(0, host="")


@pytest.mark.parametrize("size", [{"msg_queue_size": 0}, {"msg_buffer_size": 63}, {"send_wait_time_millis": -1}])
def test_a_size_too_small_to_serve_anything_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError, match="at least 1 frame"):
        TableServer.start(**size)


def test_a_buffer_that_the_schema_cannot_announce_is_refused() -> None:
    own = files("silverfold.connectors.deephaven").joinpath("schema.xml").read_text("utf-8")
    size = 'name="messageBufferSize" id="1" type='
    assert f'{size}"int32"' in own
    schema = load_schema(own.replace(f'{size}"int32"', f'{size}"uint16"').encode())

    with pytest.raises(LocalProtocolError, match=r"cannot announce a buffer of 65536 bytes, .*messageBufferSize"):
        TableServer.start(schema=schema)
    TableServer.start(schema=schema, msg_buffer_size=65_000).close()
