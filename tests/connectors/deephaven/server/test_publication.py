"""What a subscription is sent: random histories and filters, decoded again, against a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.server.filters.filters import bind_filter
from silverfold.connectors.deephaven.server.publication import Publication
from silverfold.connectors.deephaven.server.table_subscription import TableSubscription
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

ROLES = load_roles()
LARGEST = 96

KEYS = st.integers(0, 30)
VALUES = st.none() | st.integers(-5, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, VALUES),
        st.tuples(st.just("modify a"), KEYS, VALUES),
        st.tuples(st.just("modify b"), KEYS, VALUES),
        st.tuples(st.just("remove"), KEYS, st.none()),
    ),
    max_size=15,
)


def replayed(rows: dict[int, dict[str, Any]], messages: list[bytes]) -> None:
    """Apply one update's messages: removed first, added, modified, each row known or not as it must be."""
    if not messages:
        return
    templates = [ROLES.template_id(message) for message in messages]
    assert (templates[0], templates[-1]) == (ROLES.begin.message.id, ROLES.end.message.id)
    assert max(map(len, messages)) <= LARGEST
    before = set(rows)
    for message in messages[1:-1]:
        if ROLES.template_id(message) == ROLES.removed.message.id:
            for first, last in decode_removed(ROLES, message).ranges.tolist():
                for key in range(first, last + 1):
                    del rows[key]
                    before.discard(key)
            continue
        found = decode_column(ROLES, message)
        for key, value in zip(found.row_keys.tolist(), found.values.to_pylist(), strict=True):
            assert (key in before) is found.modified
            rows.setdefault(key, {})["ab"[found.column_id]] = value


def apply(table: LiveTable, steps: list[tuple[str, int, int | None]]) -> None:
    alive = set(table.rows())
    with table.update() as update:
        for kind, key, value in steps:
            if kind == "add" and key not in alive:
                update.add([{"a": value, "b": str(value)}], keys=[key])
                alive.add(key)
            elif kind == "modify a" and key in alive:
                update.modify({key: {"a": value}})
            elif kind == "modify b" and key in alive:
                update.modify({key: {"b": str(value)}})
            elif kind == "remove" and key in alive:
                update.remove([key])
                alive.discard(key)


@given(st.lists(STEPS, min_size=1, max_size=6), st.sampled_from(["", "a > 0", "isNull(a) || b = `2`"]), st.booleans())
def test_a_client_that_applies_what_it_is_sent_has_the_rows_that_satisfy_the_filter(
    history: list[list[tuple[str, int, int | None]]], row_filter: str, partial: bool
) -> None:
    table = LiveTable({"a": "Long", "b": "String"}, partial_columns=partial)
    apply(table, history[0])
    bound = bind_filter(row_filter, table.columns) if row_filter else None
    publication = Publication(
        id=1,
        table=table,
        mode=SubscribeMode.SNAPSHOT_WITH_UPDATES,
        columns=("a", "b"),
        filter=bound,
        roles=ROLES,
        largest=LARGEST,
    )
    rows: dict[int, dict[str, Any]] = {}
    tap = TableSubscription(publication, lambda _, delta: replayed(rows, list(publication.update(delta))))
    replayed(rows, list(publication.snapshot(tap.open_with_snapshot())))
    for steps in history[1:]:
        apply(table, steps)
        wanted = {"": lambda row: True, "a > 0": lambda row: (row["a"] or 0) > 0}.get(
            row_filter, lambda row: row["a"] is None or row["b"] == "2"
        )
        assert rows == {key: row for key, row in table.rows().items() if wanted(row)}


def test_a_tap_shut_while_it_is_opened_lets_nothing_flow() -> None:
    table = LiveTable({"a": "Long"})
    publication = Publication(1, table, SubscribeMode.UPDATES_ONLY, ("a",), None, ROLES, LARGEST)
    flowed: list[object] = []
    tap = TableSubscription(publication, lambda _, delta: flowed.append(delta))
    tap.detach()
    tap.open()
    with table.update() as update:
        update.add([{"a": 1}])
    assert flowed == []
