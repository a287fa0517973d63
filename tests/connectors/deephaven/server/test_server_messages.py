"""What the table server makes of values and of its buffer size, over real sockets on loopback."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest

from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.control import decode_subscription_error
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.messages import (
    ErrorCode,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
)
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.session import ServerSession
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.deephaven.peer import Peer

SNAPSHOT, BOTH, UPDATES = SubscribeMode.SNAPSHOT_ONLY, SubscribeMode.SNAPSHOT_WITH_UPDATES, SubscribeMode.UPDATES_ONLY

ROWS_OF_ALL_TYPES: list[dict[str, Any]] = [
    {
        "Byte": -127,
        "Boolean": True,
        "Char": "é",
        "Short": 32_767,
        "Int": -(2**31) + 1,
        "Long": 2**63 - 1,
        "Float": 0.5,
        "Double": float("-inf"),
        "DateTime": 1_503_667_800_123_456_789,
        "String": "caf\u00e9 \U0001f600",
        "Decimal": Decimal("-12345678901234567890.1234567890"),
        "StringSet": ["a", "b"],
        "ByteArray": [1, None],
        "BooleanArray": [True, None, False],
        "CharArray": ["x", None],
        "ShortArray": [-1, None],
        "IntArray": [1, None],
        "LongArray": [2**62, None],
        "FloatArray": [1.5, None],
        "DoubleArray": [2.5, None],
        "DateTimeArray": [5, None],
        "StringArray": ["s", None, ""],
    },
    {
        **dict.fromkeys(TYPES, None),
        "String": "",
        "Decimal": Decimal("1E+3"),
        "StringSet": [],
        "LongArray": [],
        "StringArray": [],
    },
    dict.fromkeys(TYPES, None),
]


def as_sent(row: dict[str, Any]) -> dict[str, Any]:
    """Decimals are decoded to text."""
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in row.items()}


@pytest.mark.parametrize("buffer_size", [200, 65_536])
def test_every_type_and_its_null_arrive_as_they_are(buffer_size: int) -> None:
    table = LiveTable({name: name for name in TYPES})
    with table.update() as update:
        update.add(ROWS_OF_ALL_TYPES)
    with TableServer.start(msg_buffer_size=buffer_size) as server:
        server.export_table("All", table)
        with Peer(server.port) as peer:
            for subscription_id, column in enumerate(TYPES):
                peer.subscribe(subscription_id, "All", BOTH, [column])
                peer.update()
            with table.update() as update:
                update.modify({1: ROWS_OF_ALL_TYPES[0]})
            for _ in TYPES:
                peer.update()
            for subscription_id, column in enumerate(TYPES):
                found = [row[column] for row in peer.tables[subscription_id].values()]
                expected = [as_sent(ROWS_OF_ALL_TYPES[at])[column] for at in (0, 0, 2)]
                assert found == expected


def test_an_update_is_split_over_as_many_messages_as_the_buffer_asks_for() -> None:
    table = LiveTable({"n": "Long", "s": "String"})
    with table.update() as update:
        update.add([{"n": n, "s": "x" * (n % 5)} for n in range(100)], keys=[n + n // 7 for n in range(100)])
    with TableServer.start(msg_buffer_size=100) as server:
        server.export_table("T", table)
        with Peer(server.port) as peer:
            peer.subscribe(1, "T", BOTH)
            update = peer.update()
            assert peer.buffer_size == 100
            assert len(update.sizes) > 20
            assert max(update.sizes) <= 100
            assert peer.tables[1] == table.rows()
            with table.update() as update_of_table:
                update_of_table.remove([n + n // 7 for n in range(0, 100, 2)])
            removed = peer.update()
            assert len(removed.sizes) > 5
            assert max(removed.sizes) <= 100
            assert peer.tables[1] == table.rows()


def test_a_response_or_error_too_long_for_the_buffer_is_cut_short() -> None:
    table = LiveTable({f"column number {n}": "Long" for n in range(10)})
    with TableServer.start(msg_buffer_size=64) as server:
        server.export_table("T", table)
        with Peer(server.port) as peer:
            answer = peer.subscribe(1, "T")
            assert isinstance(answer, SubscriptionError)
            assert answer.code == "UNEXPECTED_ERROR"
            assert answer.text == "a response of 286 bytes does not fit the buffe"
            assert len(answer.body) == 64
            assert isinstance(peer.subscribe(2, "T", columns=["column number 3"]), SubscribeResponse)


def test_an_error_fits_the_buffer_in_a_charset_of_wide_characters() -> None:
    xml = (files("silverfold.connectors.deephaven") / "schema.xml").read_bytes()
    roles = bind(load_schema(xml.replace(b'characterEncoding="UTF-8"', b'characterEncoding="UTF-16LE"')))
    session = ServerSession(roles, {}, message_buffer_size=64, prefix_counts=PrefixCounts.MESSAGE)
    message = session.refusal(1, ErrorCode.UNKNOWN_TABLE, "no table is exported as " + "x" * 90)
    assert message is not None
    assert 60 < len(message) <= 64
    assert decode_subscription_error(roles, message, roles.read_header(message)).text == "no table is exported as"


@pytest.mark.parametrize(
    ("lacking", "request_of"),
    [
        ("TableUnsubscribeResponse", lambda session: session.unsubscribe(1)),
        ("TableSubscriptionError", lambda session: session.subscribe(2, BOTH, "no such table")),
    ],
)
def test_what_the_schema_has_no_message_for_is_not_answered_and_the_connection_goes_on(
    lacking: str, request_of: Callable[[Session], bytes]
) -> None:
    xml = (files("silverfold.connectors.deephaven") / "schema.xml").read_text("utf-8")
    schema = load_schema(re.sub(rf'<sbe:message name="{lacking}".*?</sbe:message>', "", xml, flags=re.DOTALL).encode())
    with TableServer.start(schema=schema) as server:
        server.export_table("T", LiveTable({"A": "Int"}))
        with Peer(server.port, schema=schema) as peer:
            peer.subscribe(1, "T")
            peer.update()
            peer.socket.sendall(request_of(peer.session))

            assert isinstance(peer.subscribe(3, "T", SNAPSHOT), SubscribeResponse)
