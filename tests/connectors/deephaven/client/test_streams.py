"""Whole streams through session and listeners: updates, void updates and tables, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from silverfold.conf.errors import LocalProtocolError, RemoteProtocolError, SourceUnavailable
from silverfold.connectors.deephaven.client.listener import Listener, Notifier
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.messages import (
    ColumnInfo,
    ConnectionResponse,
    Event,
    SubscribeMode,
    UpdateBegan,
)
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.columns import encoded
from tests.support.deephaven.vectors import VECTORS, Vector, builtin_roles, of_kind

STREAMS = of_kind("stream")
ROLES = builtin_roles()


@dataclass
class Seen:
    """Row keys of one update."""

    snapshot: bool
    added: set[int] = field(default_factory=set)
    modified: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)

    def to_dict(self) -> dict[str, list[int]]:
        return {"added": sorted(self.added), "modified": sorted(self.modified), "removed": sorted(self.removed)}


class Recorder(Listener):
    """Writes down which rows each update touched."""

    def __init__(self) -> None:
        self.open: dict[int, Seen] = {}
        self.updates: list[dict[str, Any]] = []
        self.void: list[dict[str, Any]] = []

    def on_end_table_update(self, subscription_id: int) -> None:
        seen = self.open.pop(subscription_id)
        self.updates.append({"subscriptionId": subscription_id, "snapshot": seen.snapshot} | seen.to_dict())

    def on_void_table_update(self, subscription_id: int) -> None:
        self.void.append({"subscriptionId": subscription_id} | self.open.pop(subscription_id).to_dict())

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        self.open[subscription_id].added.update(row_keys.tolist())

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        self.open[subscription_id].modified.update(row_keys.tolist())

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        for first, last in ranges.tolist():
            self.open[subscription_id].removed.update(range(first, last + 1))


def events_of(octets: bytes, size: int) -> Iterator[tuple[Event, Session]]:
    """Feed a stream in chunks of a size; subscriptions 1 to 3 are asked for once the server has spoken."""
    session = Session(ROLES)
    for start in range(0, len(octets), size):
        session.receive(octets[start : start + size])
        yield from pulled(session)
    session.receive_eof()
    yield from pulled(session)


def pulled(session: Session) -> Iterator[tuple[Event, Session]]:
    while (event := session.next_event()) is not None:
        if isinstance(event, ConnectionResponse):
            for subscription_id in (1, 2, 3):
                session.subscribe(subscription_id, SubscribeMode.SNAPSHOT_WITH_UPDATES, "Table")
        yield event, session


def run(octets: bytes, size: int) -> tuple[Recorder, TableListener]:
    recorder, tables = Recorder(), TableListener()
    notifiers = [Notifier(recorder), Notifier(tables)]
    for event, session in events_of(octets, size):
        if isinstance(event, UpdateBegan):
            recorder.open[event.subscription_id] = Seen(event.snapshot)
        for notifier in notifiers:
            notifier.notify(event, session.roles)
    return recorder, tables


@pytest.mark.parametrize("size", [1, 3, 64, 1 << 20])
@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_a_stream_gives_the_updates_and_tables_of_its_vector(vector: Vector, size: int) -> None:
    recorder, tables = run(vector.octets, size)

    assert recorder.updates == vector.expect["updates"]
    assert recorder.void == vector.expect["void"]
    for subscription_id, rows in vector.expect["tables"].items():
        assert tables.rows(int(subscription_id)) == {int(key): row for key, row in rows.items()}


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_events_do_not_depend_on_where_chunks_end(vector: Vector) -> None:
    whole = [event for event, _ in events_of(vector.octets, 1 << 20)]

    for size in (1, 2, 5, 33):
        assert [event for event, _ in events_of(vector.octets, size)] == whole


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_a_stream_cut_after_any_frame_shows_whole_updates_only(vector: Vector) -> None:
    ends = []
    at = 0
    while at < len(vector.octets):
        at += 4 + int.from_bytes(vector.octets[at : at + 4], "little")
        ends.append(at)
    whole, _ = run(vector.octets, 1 << 20)

    for end in ends:
        recorder, tables = run(vector.octets[:end], 1 << 20)
        assert recorder.updates == whole.updates[: len(recorder.updates)]
        shown = {key for subscription_id in (1, 2) for key in tables.rows(subscription_id)}
        touched = {key for update in recorder.updates for key in update["added"]}
        assert shown <= touched


def listened(*bodies: bytes) -> TableListener:
    """A listener that was told updates of subscription 1 with columns A (0, Long) and B (1, Decimal)."""
    response = control.encode_subscribe_response(ROLES, 1, [(0, "A", TYPES["Long"]), (1, "B", TYPES["Decimal"])])
    frames = [VECTORS["connection-response"].body, response, *bodies]
    tables = TableListener()
    notifier = Notifier(tables)
    for event, session in events_of(b"".join(map(frame, frames)), 1 << 20):
        notifier.notify(event, session.roles)
    return tables


def values(column_id: int, keys: list[int], given: list[Any], *, modified: bool = False) -> bytes:
    name = ("Long", "Decimal")[column_id]
    (body,) = encoded(ROLES, name, given, *((key, key) for key in keys), modified=modified)
    return body.replace(bytes.fromhex("07000000 03000000"), bytes.fromhex(f"01000000 0{column_id}000000"))


def removed(first: int, last: int) -> bytes:
    return bytes.fromhex("0400 0900 0100 0100 01000000 1000 0100") + b"".join(
        key.to_bytes(8, "little", signed=True) for key in (first, last)
    )


BEGIN, END = control.encode_begin(ROLES, 1), control.encode_end(ROLES, 1)


def test_a_removed_row_that_comes_back_has_no_old_values() -> None:
    tables = listened(
        BEGIN,
        values(0, [1], [10]),
        values(1, [1], [None]),
        END,
        BEGIN,
        removed(1, 1),
        END,
        BEGIN,
        values(0, [1], [11]),
        END,
    )

    assert tables.rows(1) == {1: {"A": 11}}


def test_removal_goes_first_whatever_order_the_messages_have() -> None:
    tables = listened(BEGIN, values(0, [1, 2], [10, 20]), END, BEGIN, values(0, [1], [11]), removed(0, 5), END)

    assert tables.rows(1) == {1: {"A": 11}}


def test_of_two_values_for_one_cell_the_later_wins_and_modified_beats_added() -> None:
    tables = listened(
        BEGIN,
        values(0, [1], [12], modified=True),
        values(0, [1, 2], [10, 20]),
        values(0, [2], [21]),
        END,
    )

    assert tables.rows(1) == {1: {"A": 12}, 2: {"A": 21}}


def test_a_modified_row_keeps_the_columns_that_were_not_sent() -> None:
    tables = listened(
        BEGIN,
        values(0, [1], [10]),
        values(1, [1], [None]),
        END,
        BEGIN,
        values(0, [1], [11], modified=True),
        END,
    )

    assert tables.rows(1) == {1: {"A": 11, "B": None}}


def test_a_removed_range_far_wider_than_the_table_costs_nothing() -> None:
    tables = listened(BEGIN, values(0, [1, 2, 9], [10, 20, 90]), END, BEGIN, removed(2, 2**63 - 1), END)

    assert tables.rows(1) == {1: {"A": 10}}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            values(0, [1], [10]).replace(bytes.fromhex("01000000 00000000"), bytes.fromhex("01000000 05000000"), 1),
            "id 5",
        ),
        (
            values(1, [1], [None]).replace(bytes.fromhex("01000000 01000000"), bytes.fromhex("01000000 00000000"), 1),
            "A was",
        ),
    ],
)
def test_a_column_that_was_not_announced_so_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        listened(BEGIN, body, END)


def test_a_listener_that_overrides_nothing_is_told_everything() -> None:
    notifier = Notifier(Listener())

    notified = [
        notifier.notify(event, session.roles)
        for event, session in events_of(VECTORS["stream-two-subscriptions-torn-update"].octets, 1 << 20)
    ]

    assert len(notified) == 19


class Log(Listener):
    """Writes down what it is called with of subscriptions and updates."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_connection_response(self, message_buffer_size: int) -> None:
        self.calls.append(("connected", message_buffer_size))

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        self.calls.append(("subscribed", subscription_id))

    def on_begin_table_update(self, subscription_id: int) -> None:
        self.calls.append(("begin", subscription_id))

    def on_end_table_update(self, subscription_id: int) -> None:
        self.calls.append(("end", subscription_id))

    def on_void_table_update(self, subscription_id: int) -> None:
        self.calls.append(("void", subscription_id))


RESPONSES = [control.encode_subscribe_response(ROLES, number, [(0, "A", TYPES["Long"])]) for number in (1, 2)]
BEGIN_OTHER, END_OTHER = control.encode_begin(ROLES, 2), control.encode_end(ROLES, 2)


def notify(notifier: Notifier, events: Iterator[tuple[Event, Session]], count: int | None = None) -> None:
    for event, session in islice(events, count):
        notifier.notify(event, session.roles)


def stream_of(*bodies: bytes) -> Iterator[tuple[Event, Session]]:
    return events_of(b"".join(map(frame, [VECTORS["connection-response"].body, *bodies])), 1 << 20)


def test_a_listener_added_later_gets_what_is_confirmed_from_then_on_and_nothing_of_what_was_before() -> None:
    events = stream_of(RESPONSES[0], BEGIN, RESPONSES[1], END, BEGIN_OTHER, BEGIN, END_OTHER, BEGIN_OTHER)
    notifier, late = Notifier(Listener()), Log()

    notify(notifier, events, 3)
    notifier.add(late)
    notify(notifier, events, 6)
    notifier.connection_lost(SourceUnavailable("over"))

    assert late.calls == [("subscribed", 2), ("begin", 2), ("end", 2), ("begin", 2), ("void", 2)]


def test_a_listener_is_added_once() -> None:
    tables = TableListener()
    notifier = Notifier(tables)
    notify(notifier, stream_of(RESPONSES[0], BEGIN, values(0, [5], [7]), END))

    with pytest.raises(LocalProtocolError, match="added before"):
        notifier.add(tables)

    assert tables.rows(1) == {5: {"A": 7}}


@pytest.mark.parametrize(
    ("method", "others"),
    [
        ("on_begin_table_update", []),
        ("on_end_table_update", [("begin", 1), ("void", 1)]),
    ],
)
def test_where_a_listener_raises_an_update_is_void_for_those_who_got_its_beginning_only(
    method: str, others: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raising(Log):
        pass

    def fail(self: Listener, subscription_id: int) -> None:
        raise ValueError("of the listener's own")

    monkeypatch.setattr(Raising, method, fail)
    before, after = Log(), Log()
    notifier = Notifier(before)
    notifier.add(Raising())
    notifier.add(after)

    with pytest.raises(ValueError, match="own"):
        notify(notifier, stream_of(RESPONSES[0], BEGIN, END))
    notifier.connection_lost(SourceUnavailable("over"))

    whole = [("begin", 1), ("end" if method == "on_end_table_update" else "void", 1)]
    confirmed = [("connected", 1 << 16), ("subscribed", 1)]
    assert (before.calls, after.calls) == (confirmed + whole, confirmed + others)
