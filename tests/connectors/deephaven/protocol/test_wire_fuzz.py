"""Any bytes: only errors of ours come out, and memory follows the bytes that came in."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import ProtocolError, WireError
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.handshake import calibrate, roles_of_epoch
from silverfold.connectors.deephaven.protocol.messages import BadFrame, SubscribeMode
from silverfold.connectors.deephaven.protocol.session import Session
from tests.support.deephaven.columns import CASES, encoded, written
from tests.support.deephaven.vectors import VECTORS, builtin_roles, other_roles
from tests.support.mutations import mutated

ROLES = builtin_roles()
BODIES = [vector.body for vector in VECTORS.values()] + [
    body for roles in (ROLES, other_roles()) for name in CASES for body in encoded(roles, name, written(name))
]
STREAM = VECTORS["stream-two-subscriptions-torn-update"].octets


@pytest.mark.parametrize("schema", [builtin_roles, other_roles])
@given(octets=st.binary(max_size=200) | mutated(BODIES))
def test_any_message_is_decoded_or_refused_with_an_error_of_ours(schema: object, octets: bytes) -> None:
    roles = builtin_roles() if schema is builtin_roles else other_roles()

    for decode in (
        decode_column,
        decode_removed,
        control.decode_request,
        control.decode_subscribe_response,
        control.decode_subscription_error,
        roles_of_epoch,
    ):
        with suppress(WireError, ProtocolError):
            decode(roles, octets)


@given(octets=mutated(BODIES))
def test_what_is_decoded_is_sound(octets: bytes) -> None:
    try:
        found = decode_column(ROLES, octets)
    except WireError:
        return

    found.values.validate(full=True)
    assert len(found.values) == len(found.row_keys)


@given(octets=st.binary(max_size=80))
def test_any_first_bytes_are_read_or_refused(octets: bytes) -> None:
    with suppress(WireError, ProtocolError):
        calibrate(ROLES, octets)


@given(octets=mutated([STREAM, *(vector.octets for vector in VECTORS.values())]), size=st.integers(1, 64))
def test_any_stream_ends_in_order_or_with_one_bad_frame(octets: bytes, size: int) -> None:
    session, bad = Session(ROLES), 0
    session.receive(frame(control.encode_connection_response(ROLES, 4096)))
    session.next_event()
    for subscription_id in (1, 2, 7):
        session.subscribe(subscription_id, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Table")

    try:
        for start in range(0, len(octets), size):
            session.receive(octets[start : start + size])
            bad += sum(isinstance(event, BadFrame) for event in iter(session.next_event, None))
        session.receive_eof()
        bad += sum(isinstance(event, BadFrame) for event in iter(session.next_event, None))
    except (WireError, ProtocolError):
        assert session.ended

    assert bad <= 1


@pytest.mark.parametrize(
    "body",
    [
        bytes.fromhex("0900 6b00 0100 0100 07000000 03000000 00 1000 0100 0000000000000000 ffffffffffffff7f 0800 ffff"),
        bytes.fromhex("0900 6b00 0100 0100 07000000 03000000 00 0000 ffff 0000 ffff"),
        bytes.fromhex("0900 7500 0100 0100 07000000 03000000 00 1000 0000 0100 0100 00 0000 ffff"),
        bytes.fromhex("0900 6400 0100 0100 07000000 03000000 00 1000 0000 0100 0100 00 00000040"),
        bytes.fromhex("0400 0900 0100 0100 07000000 0000 ffff"),
    ],
)
def test_announced_sizes_allocate_nothing(body: bytes) -> None:
    tracemalloc.start()

    with pytest.raises(WireError):
        (decode_removed if body[2] == 9 else decode_column)(ROLES, body)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_an_announced_frame_allocates_nothing() -> None:
    session = Session(ROLES)
    session.receive(frame(control.encode_connection_response(ROLES, 1 << 26)))
    session.next_event()
    tracemalloc.start()

    session.receive((1 << 26).to_bytes(4, "little") + b"\0" * 100)
    session.next_event()

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
