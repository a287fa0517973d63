"""A schema that differs wherever it may: client and server understand each other by it, without a change of code."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import RemoteProtocolError, UnknownTemplate
from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.listener import Notifier
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.columns.decode import check_column, decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.columns.encode import encode_removed
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import BadFrame, SubscribeMode, TableSubscribe, TableUnsubscribe
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.deephaven.columns import CASES, encoded, pairs, readable, written
from tests.support.deephaven.vectors import OTHER_SCHEMA, builtin_roles, other_roles

ROLES = other_roles()
BOTH = SubscribeMode.SNAPSHOT_WITH_UPDATES


def test_requests_are_read_as_they_were_written() -> None:
    subscribe = control.encode_subscribe(ROLES, -5, BOTH, "Quotes", columns=["Sym", "Größe"], row_filter="Bid > 1")

    assert control.decode_request(ROLES, subscribe) == TableSubscribe(
        subscribe, -5, BOTH, "Quotes", ("Sym", "Größe"), "Bid > 1"
    )
    unsubscribe = control.encode_unsubscribe(ROLES, 2**40)
    assert control.decode_request(ROLES, unsubscribe) == TableUnsubscribe(unsubscribe, 2**40)


def test_a_request_is_the_bytes_that_the_schema_says() -> None:
    request = control.encode_subscribe(ROLES, 7, BOTH, "Q", columns=["A"])

    assert request == bytes.fromhex(
        "01f6 1267 0003 0018 0000"  # template 502, schema 4711, version 3, block 24, reserved
        "012e 0000 80000000 00000000 0000000000000007 00000000"  # mode 302, priority null, id 7, padding
        "0001 0000 0001 00 0001 41"  # one field of block 1: rank 0, "A"
        "0000 0001 51 0000"  # filter, table, application
    )


def test_an_older_client_lacks_what_is_newer() -> None:
    request = bytearray(control.encode_subscribe(ROLES, 7, BOTH, "Q"))
    request[4:6] = b"\0\1"

    found = control.decode_request(ROLES, bytes(request[:-2]))

    assert isinstance(found, TableSubscribe)
    assert found.table == "Q"


def test_responses_are_read_as_they_were_written() -> None:
    columns = [(2**40 + at, f"c{at}", kind) for at, kind in enumerate(TYPES.values())]

    response = control.decode_subscribe_response(ROLES, control.encode_subscribe_response(ROLES, 7, columns))
    refusal = control.decode_subscription_error(
        ROLES, control.encode_subscription_error(ROLES, 7, "UNKNOWN_COLUMN", "é")
    )

    assert [(column.column_id, column.name, column.type) for column in response.columns] == columns
    assert refusal[1:] == (7, "UNKNOWN_COLUMN", "é")


def test_a_code_that_the_schema_lacks_is_told_as_unexpected() -> None:
    refusal = control.encode_subscription_error(ROLES, 7, "TEAPOT", "short")

    assert control.decode_subscription_error(ROLES, refusal).code == "UNEXPECTED_ERROR"


def test_removed_rows_are_read_as_they_were_written() -> None:
    ranges = pairs((0, 5), (9, 2**62))

    (body,) = encode_removed(ROLES, subscription_id=7, ranges=ranges, limit=1000)

    assert decode_removed(ROLES, body).ranges.tolist() == ranges.tolist()


@pytest.mark.parametrize("body", [control.encode_begin(ROLES, 7), control.encode_connection_response(ROLES, 100)])
def test_a_server_takes_requests_only(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a client sent"):
        control.decode_request(ROLES, body)


def test_a_request_of_an_unknown_template_is_told() -> None:
    with pytest.raises(UnknownTemplate):
        control.decode_request(ROLES, b"\xff\xff" + control.encode_begin(ROLES, 7)[2:])


@pytest.mark.parametrize("counts", list(PrefixCounts))
def test_a_whole_session_goes_by_the_schema(counts: PrefixCounts) -> None:
    session, tables = Session(ROLES), TableListener()
    notifier = Notifier(tables)
    names = list(CASES)

    def say(body: bytes) -> None:
        session.receive(frame(body, counts, header_size=10))
        while (event := session.next_event()) is not None:
            notifier.notify(event, session.roles)

    say(control.encode_connection_response(ROLES, 1 << 20))
    request = session.subscribe(7, BOTH, "Everything")
    say(control.encode_subscribe_response(ROLES, 7, [(3, name, TYPES[name]) for name in names[:1]]))
    say(control.encode_begin(ROLES, 7))
    for body in encoded(ROLES, names[0], written(names[0])):
        say(body)
    say(control.encode_end(ROLES, 7))

    assert int.from_bytes(request[:4], "little") == len(request) - 4 + counts.added(10)
    assert [row[names[0]] for row in tables.rows(7).values()] == CASES[names[0]]


@pytest.mark.parametrize("name", CASES)
def test_a_column_keeps_its_type(name: str) -> None:
    response = control.encode_subscribe_response(ROLES, 7, [(3, "c", TYPES[name])])
    columns = {column.column_id: column for column in control.decode_subscribe_response(ROLES, response).columns}

    (body,) = encoded(ROLES, name, written(name))
    found = decode_column(ROLES, body)

    assert check_column(found, columns).type is TYPES[name]
    assert readable(found.values.to_pylist()) == CASES[name]


def test_a_builtin_client_refuses_such_a_server_with_its_bytes() -> None:
    session = Session(builtin_roles())

    session.receive(frame(control.encode_connection_response(ROLES, 65536)))

    event = session.next_event()
    assert isinstance(event, BadFrame)
    with pytest.raises(RemoteProtocolError, match="first frame"):
        session.next_event()


def test_client_and_server_speak_it_over_a_socket() -> None:
    schema = load_schema(OTHER_SCHEMA)
    table = LiveTable({"Sym": "String", "Bid": "Double", "Tags": "StringSet"})
    with table.update() as update:
        update.add([{"Sym": "AAPL", "Bid": 1.5, "Tags": {"a", "b"}}, {"Sym": None, "Bid": None, "Tags": None}])
    listener = TableListener()

    with TableServer.start(schema=schema) as server:
        server.export_table("Quotes", table)
        with TableClient("127.0.0.1", server.port, listener, roles=ROLES) as client:
            client.subscribe(1, SubscribeMode.SNAPSHOT_ONLY, "Quotes")
            listener.expect_updates(1)

    assert list(listener.rows(1).values()) == [
        {"Sym": "AAPL", "Bid": 1.5, "Tags": ["a", "b"]},
        {"Sym": None, "Bid": None, "Tags": None},
    ]
