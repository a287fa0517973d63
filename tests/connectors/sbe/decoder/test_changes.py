"""Change rows made of columns are those that a plain reading of each message gives."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from silverfold.conf.errors import SchemaError
from silverfold.connectors.sbe.decoder.layout import layout_of
from silverfold.connectors.sbe.options import SbeTable
from silverfold.connectors.sbe.protocol.schemas import feed_schema
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Body
from tests.support.sbe.basics import HEADER, message_of
from tests.support.sbe.changes import assert_as_reference, changes
from tests.support.sbe.feed import table
from tests.support.sbe.messages import messages
from tests.support.sbe.schemas import schemas
from tests.support.tries import a_third, half

GOLDEN = Path(__file__).parents[3] / "golden" / "sbe"
MARKET = feed_schema("builtin")
ORDER = load_schema(GOLDEN / "evolution" / "order-v3.xml")
ORDERS = [
    bytes.fromhex(body) for body in json.loads((GOLDEN / "evolution" / "order.json").read_text("utf-8"))["messages"]
]
SAMPLE = load_schema(GOLDEN / "sample.xml")
QUOTE = bytes.fromhex(json.loads((GOLDEN / "messages.json").read_text("utf-8"))[0]["hex"])
ACTIONS = {"keys": ["securityId", "side", "level"], "operation": "action"}


TABLES = {
    "whole": {},
    "numbers": {"decimals": True, "timestamps": True, "sets": "integer", "text": "replace"},
    "keyed": {"keys": ["seq"]},
    "legs": {"group": "legs"},
    "marks": {"group": "legs.marks", "with": ["seq", "legId", "text"]},
    "known": {"unknown_values": "error"},
    "known marks": {"group": "legs.marks", "keys": ["seq", "legId"], "unknown_values": "error"},
    "absent": {"absent": "listed"},
    "absent marks": {"group": "legs.marks", "absent": "listed"},
    "keyed marks": {"group": "legs.marks", "keys": ["seq", "legId", "mark"], "groups": "omit"},
}


@pytest.mark.parametrize("settings", TABLES.values(), ids=TABLES)
@half
@given(st.lists(st.tuples(st.integers(0, len(QUOTE) - 1), st.integers(0, 255)), max_size=3), st.integers(0, len(QUOTE)))
def test_any_message_becomes_what_it_is_read_as_plainly(settings, mutations, length):
    body = bytearray(QUOTE)
    for at, octet in mutations:
        body[at] = octet
    made = table(template="Quote", **settings)

    assert_as_reference(SAMPLE, "Quote", made, [QUOTE, bytes(body), bytes(body[:length]), QUOTE])


def paths(body: Body) -> list[str]:
    """Return the dotted paths of all groups, and the empty one."""
    inside = [(group.name, path) for group in body.groups for path in paths(group)]
    return ["", *(f"{name}.{path}" if path else name for name, path in inside)]


@a_third
@given(st.data())
def test_messages_of_any_schema_become_what_they_are_read_as_plainly(data):
    schema = load_schema(data.draw(schemas()), file="drawn")
    name, values = data.draw(messages(schema, tolerant=True))
    oldest = schema.messages[name].since_version
    versions = data.draw(st.lists(st.integers(oldest, schema.version), min_size=1, max_size=3))
    bodies = [encode(schema, name, values, version=version, tolerant=True) for version in versions]
    settings = data.draw(st.fixed_dictionaries({"decimals": st.booleans(), "timestamps": st.booleans()}))
    settings["group"] = data.draw(st.sampled_from(paths(schema.messages[name])))
    settings["sets"] = data.draw(st.sampled_from(["names", "integer"]))
    settings["groups"] = data.draw(st.sampled_from(["arrays", "omit"]))
    settings["text"] = "replace"
    settings["unknown_values"] = data.draw(st.sampled_from(["keep", "error"]))
    made = table(template=name, **settings)
    try:
        columns = layout_of(schema, schema.messages[name], made).row.names
    except SchemaError:  # an array would hold a group without members
        reject()
    assume(columns)
    if data.draw(st.booleans()):
        made = table(template=name, keys=columns[:1], **settings)
    elif "_sent" not in columns:
        made = table(template=name, absent=data.draw(st.sampled_from(["null", "listed"])), **settings)

    assert_as_reference(schema, name, made, bodies)


@pytest.mark.parametrize("settings", [{}, {"keys": ["orderId"]}, {"group": "legs"}, {"group": "fees"}])
def test_messages_of_every_version_become_what_they_are_read_as_plainly(settings):
    assert_as_reference(ORDER, "Order", table(template="Order", **settings), [*ORDERS, *ORDERS[::-1]])


def test_what_a_version_does_not_have_is_not_among_what_was_sent():
    found = changes(ORDER, "Order", table(template="Order", keys=["orderId"]), ORDERS)

    assert [change["present"] for change in found] == [
        ["orderId", "qty", "legs", "note"],
        ["orderId", "qty", "price", "legs", "note"],
        ["orderId", "qty", "price", "legs", "note", "memo"],
        None,
    ]
    assert {change["op"] for change in found} == {"update"}


def test_what_is_absent_can_be_told_from_what_was_sent_as_null():
    rows = [change["row"] for change in changes(ORDER, "Order", table(absent="listed"), ORDERS)]

    sent = [change["present"] for change in changes(ORDER, "Order", table(keys=["orderId"]), ORDERS)]
    names = [name for name in rows[0] if name != "_sent"]
    assert [row["_sent"] for row in rows] == [names if present is None else present for present in sent]
    assert names in [row["_sent"] for row in rows]
    assert any(row["_sent"] != names for row in rows)


def test_what_an_older_message_has_is_the_same_whatever_schema_it_is_read_by():
    oldest = load_schema(GOLDEN / "evolution" / "order-v0.xml")

    found = [changes(schema, "Order", table(absent="listed"), ORDERS[:1])[0]["row"] for schema in (oldest, ORDER)]

    assert found[0]["_sent"] == found[1]["_sent"] == [name for name in found[0] if name != "_sent"]


def test_a_value_that_the_schema_does_not_know_is_kept_or_waits_for_one_that_does():
    by_level = {"keys": ["securityId", "level"], "operation": "action"}
    fields = {"securityId": 1, "price": {"mantissa": 1}, "size": 1, "orders": None, "action": "New"}
    entries = [{**fields, "level": level, "side": side} for level, side in ((1, "Bid"), (2, "Z"))]
    body = encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": entries}, tolerant=True)
    retained = changes(MARKET, "BookUpdate", table(template="BookUpdate", group="entries", **by_level), [body])
    strict = table(template="BookUpdate", group="entries", unknown_values="error", **by_level)
    refused = changes(MARKET, "BookUpdate", strict, [body])

    assert [change["row"]["side"] for change in retained] == ["Bid", "Z"]
    (error,) = [change["error"] for change in refused if change["error"] is not None]
    assert error["reason"].endswith("'Z' is no value of the enum: a schema that names it is needed")
    assert_as_reference(MARKET, "BookUpdate", strict, [body, book((1, "New"))])


SIDES = """<s:messageSchema xmlns:s="http://fixprotocol.io/2016/sbe" id="1" version="0"><types>{header}
<enum name="Side" encodingType="char">
<validValue name="B">1</validValue><validValue name="S">2</validValue></enum></types>
<message name="M" id="1"><field name="k" id="1" type="int32"/><field name="side" id="2" type="Side"/></message>
</s:messageSchema>"""


def test_a_code_that_reads_as_the_name_of_another_is_no_value_of_the_enum():
    schema = load_schema(SIDES.format(header=HEADER).encode())
    bodies = [encode(schema, "M", {"k": 1, "side": side}, tolerant=True) for side in ("B", 0x42, 0x5A)]
    lenient, strict, keyed = table(template="M"), table(template="M", unknown_values="error"), table(keys=["side"])

    assert [change["row"]["side"] for change in changes(schema, "M", lenient, bodies)] == ["B", "66", "Z"]
    assert [bool(change["error"]) for change in changes(schema, "M", strict, bodies)] == [False, True, True]
    assert [bool(change["error"]) for change in changes(schema, "M", keyed, bodies)] == [False, True, True]
    for settings in (lenient, strict, keyed):
        assert_as_reference(schema, "M", settings, bodies)


def test_a_field_beyond_the_end_of_a_block_was_not_sent():
    short = encode(ORDER, "Order", {"orderId": 1, "qty": 2, "price": 3})
    short = b"\x06\x00" + short[2:14] + short[18:]

    (found,) = changes(ORDER, "Order", table(template="Order", keys=["orderId"]), [short])

    assert found["present"] == ["orderId", "qty", "legs", "fees", "note", "memo"]


GROWN = """<s:messageSchema xmlns:s="http://fixprotocol.io/2016/sbe" id="1" version="{version}"><types>{header}
<composite name="pair"><type name="x" primitiveType="int32"/>{member}</composite></types>
<message name="M" id="1"><field name="k" id="1" type="int32"/><field name="p" id="2" type="pair"/></message>
</s:messageSchema>"""


def test_a_composite_that_has_grown_since_a_message_was_written_was_sent():
    member = '<type name="z" primitiveType="int16" sinceVersion="1"/>'
    old = load_schema(GROWN.format(version=0, header=HEADER, member="").encode())
    new = load_schema(GROWN.format(version=1, header=HEADER, member=member).encode())
    body = encode(old, "M", {"k": 1, "p": {"x": 7}})
    assert encode(new, "M", {"k": 1, "p": {"x": 7}}, version=0) == body
    assert_as_reference(new, "M", table(template="M", keys=["k"]), [body])

    (found,) = changes(new, "M", table(template="M", keys=["k"]), [body])

    assert (found["row"], found["present"]) == ({"k": 1, "p": {"x": 7, "z": None}}, None)


def book(*entries: tuple[int, str]) -> bytes:
    known = {"securityId": 1, "side": "Bid", "price": {"mantissa": 1}, "size": 1, "orders": None}
    levels = [{**known, "level": level, "action": action} for level, action in entries]
    return encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": levels}, tolerant=True)


def entries(**settings: Any) -> SbeTable:
    return table(template="BookUpdate", group="entries", **ACTIONS, **settings)


def test_actions_are_what_settings_say_else_what_they_are_called():
    bodies = [book((0, "New"), (1, "Change"), (2, "Delete"))]

    usual = changes(MARKET, "BookUpdate", entries(), bodies)
    turned = changes(MARKET, "BookUpdate", entries(inserts=["Delete"], updates=["New"], deletes=["Change"]), bodies)

    assert [(change["ordinal"], change["op"]) for change in usual] == [(0, "insert"), (1, "update"), (2, "delete")]
    assert [(change["ordinal"], change["op"]) for change in turned] == [(0, "update"), (1, "delete"), (2, "insert")]
    assert usual[2]["key"] == {"securityId": 1, "side": "Bid", "level": 2}
    assert (usual[2]["row"], usual[0]["row"]["size"]) == (None, 1)


def test_an_action_without_a_meaning_is_an_error_of_its_message():
    settings = entries(inserts=["New"])

    found = changes(MARKET, "BookUpdate", settings, [book((0, "New"), (1, "Change")), book((5, "New"))])

    assert [(change["frame_seq"], change["op"]) for change in found] == [(10, "insert"), (10, None), (11, "insert")]
    assert found[1]["error"] == {
        "error_class": "INVALID_VALUE",
        "reason": "operation in BookUpdate.action: 'Change' is not among inserts, updates and deletes",
    }
    assert_as_reference(MARKET, "BookUpdate", settings, [book((0, "New"), (1, "Change")), book((5, "New"))])


def test_an_action_that_the_schema_does_not_know_has_no_meaning():
    body = bytearray(book((0, "New")))
    body[26] = 7

    (found,) = changes(MARKET, "BookUpdate", entries(), [bytes(body)])

    assert "'7' is not among" in found["error"]["reason"]


def test_decimals_and_times_are_numbers_and_moments_where_asked_for():
    body = encode(
        MARKET,
        "Trade",
        {
            "transactTime": 1_700_000_000_123_456_789,
            "tradeId": 2**64 - 2,
            "securityId": 1,
            "aggressor": "Bid",
            "price": {"mantissa": -12_345},
            "size": 1,
            "conditions": {"late"},
        },
    )

    (row,) = changes(MARKET, "Trade", table(), [body])
    (meant,) = changes(MARKET, "Trade", table(decimals=True, timestamps=True, sets="integer"), [body])

    assert row["row"]["price"] == {"mantissa": -12_345, "exponent": -4}
    assert row["row"]["transactTime"] == Decimal(1_700_000_000_123_456_789)
    assert meant["row"] | {"note": ""} == {
        "transactTime": datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
        "tradeId": Decimal(2**64 - 2),
        "securityId": 1,
        "aggressor": "Bid",
        "price": Decimal("-1.2345"),
        "size": 1,
        "conditions": 4,
        "note": "",
    }


NESTED = message_of(
    '<field name="id" id="1" type="uint8"/><field name="Size" id="2" type="uint8"/>'
    '<group name="outer" id="3"><field name="id" id="4" type="uint8"/>'
    '<group name="inner" id="5"><field name="size" id="6" type="uint8"/></group></group>'
)


def test_a_name_that_is_taken_further_in_is_told_by_its_level():
    (name,) = NESTED.messages
    (found,) = changes(
        NESTED,
        name,
        table(template=name, group="outer.inner"),
        [encode(NESTED, name, {"id": 1, "Size": 2, "outer": [{"id": 3, "inner": [{"size": 4}]}]})],
    )

    assert found["row"] == {f"{name}_id": 1, f"{name}_Size": 2, "id": 3, "size": 4}
    assert_as_reference(NESTED, name, table(template=name, group="outer.inner"), [])


def test_numbers_of_rows_count_through_all_entries_of_a_message():
    (name,) = NESTED.messages
    body = encode(
        NESTED, name, {"id": 1, "Size": 2, "outer": [{"id": n, "inner": [{"size": 0}] * n} for n in (2, 0, 1)]}
    )

    found = changes(NESTED, name, table(template=name, group="outer.inner"), [body, body])

    assert [(change["frame_seq"], change["ordinal"], change["row"]["id"]) for change in found] == [
        (10, 0, 2),
        (10, 1, 2),
        (10, 2, 1),
        (11, 0, 2),
        (11, 1, 2),
        (11, 2, 1),
    ]
    assert [change["key"] for change in found[:2]] == [
        {"_position": 10, "_ordinal": 0},
        {"_position": 10, "_ordinal": 1},
    ]
