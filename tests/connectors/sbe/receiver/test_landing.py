"""What lands of an epoch: messages by template, and marks of what is odd, each once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silverfold.connectors.sbe.protocol.schemas import feed_schema, read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.landing import Landing
from silverfold.connectors.sbe.receiver.schema_change import what_changed
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

EVOLUTION = Path(__file__).parents[3] / "golden" / "sbe" / "evolution"
TEXTS = [(EVOLUTION / f"order-v{version}.xml").read_bytes() for version in range(4)]
ORDERS = [bytes.fromhex(body) for body in json.loads((EVOLUTION / "order.json").read_text("utf-8"))["messages"]]
MARKET = feed_schema("builtin")


def landing(schema: Schema, *, has_positions: bool = False, reported: set[str] | None = None) -> Landing:
    reported = set() if reported is None else reported
    return Landing(schema, Session(schema, FRAMINGS["sofh"]), has_positions=has_positions, reported=reported)


def framed(*bodies: bytes) -> bytes:
    return FrameWriter(FRAMINGS["sofh"]).write(bodies)


def shown(frames: list) -> list:
    return [
        json.loads(frame.body)["mark"]
        if frame.kind == "mark"
        else (frame.stream, frame.boundary.value, len(frame.body))
        for frame in frames
    ]


def test_a_message_lands_whole_in_the_stream_of_its_template_id():
    body = encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": []})

    (frame,) = landing(MARKET, has_positions=True).receive(framed(body))

    assert frame.body == body
    assert (frame.kind.value, frame.boundary.value, frame.stream, frame.source_position) == ("data", "whole", "2", "26")


def test_unknown_templates_and_schemas_land_in_streams_of_their_own_and_are_told_once():
    body = encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": []})
    unknown, foreign = body[:2] + b"\x63\x00" + body[4:], body[:4] + b"\x07\x00" + body[6:]

    frames = landing(MARKET).receive(framed(unknown, body, unknown, foreign))

    assert shown(frames) == [
        "unknown template",
        ("99", "whole", 20),
        ("2", "whole", 20),
        ("99", "whole", 20),
        "unknown template",
        ("schema 7", "whole", 20),
    ]
    assert json.loads(frames[0].body) == {
        "mark": "unknown template",
        "template_id": 99,
        "schema_id": 901,
        "version": 1,
    }


def test_frames_of_another_encoding_land_in_a_stream_of_their_own_and_are_told_once():
    body = encode(MARKET, "BookUpdate", {"transactTime": 0, "entries": []})
    other = bytes.fromhex("00000009 f000 383d46")

    frames = landing(MARKET, has_positions=True).receive(other + framed(body) + other)

    assert shown(frames) == [
        "unknown encoding",
        ("encoding 0xf000", "whole", 3),
        ("2", "whole", 20),
        ("encoding 0xf000", "whole", 3),
    ]
    assert json.loads(frames[0].body) == {"mark": "unknown encoding", "encoding": "0xf000"}
    assert [(frame.body, frame.source_position) for frame in frames[1:]] == [
        (b"8=F", "9"),
        (body, "35"),
        (b"8=F", "44"),
    ]


def test_messages_newer_than_the_schema_are_told_once_in_an_epoch():
    frames = landing(load_schema(TEXTS[1])).receive(framed(*ORDERS, *ORDERS))

    assert shown(frames)[:4] == [("1", "whole", 25), ("1", "whole", 31), "newer version", ("1", "whole", 35)]
    assert [json.loads(f.body) for f in frames if f.kind == "mark"] == [
        {"mark": "newer version", "template": "Order", "version": 2, "schema_version": 1}
    ]


def test_deprecated_elements_in_use_are_told_once_for_all_epochs():
    xml = (
        TEXTS[3]
        .replace(b'name="price"', b'deprecated="2" name="price"')
        .replace(b'name="ratio"', b'deprecated="3" name="ratio"')
    )
    schema, reported = load_schema(xml), set[str]()

    first = landing(schema, reported=reported).receive(framed(ORDERS[3], ORDERS[3]))
    second = landing(schema, reported=reported).receive(framed(ORDERS[3]))

    assert shown(first) == ["deprecated", ("1", "whole", 41), ("1", "whole", 41)]
    assert json.loads(first[0].body)["elements"] == ["Order.price", "Order.legs.ratio"]
    assert shown(second) == [("1", "whole", 41)]


def test_what_has_a_type_or_members_that_are_deprecated_is_told_too():
    text = SIDES.replace('name="Side" enc', 'name="Side" deprecated="4" enc')
    text = text.replace('<ref name="marks"', '<ref name="marks" deprecated="3"')
    schema = load_schema(text.replace('<composite name="note"', '<composite name="note" deprecated="4"').encode())
    older = order("Buy")[:6] + b"\x03\x00" + order("Buy")[8:]

    frames = landing(schema).receive(framed(older, order("Buy")))

    assert [json.loads(frame.body)["elements"] for frame in frames if frame.kind == "mark"] == [
        ["Order.legs.leg.marks"],
        ["Order.side", "Order.memo", "Order.legs.note"],
    ]


SIDES = """<messageSchema id="5" version="4" byteOrder="littleEndian"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint8"/></composite>
<composite name="note"><type name="length" primitiveType="uint8"/>
<type name="varData" length="0" primitiveType="uint8" characterEncoding="UTF-8"/></composite>
<enum name="Side" encodingType="uint8"><validValue name="Buy">1</validValue>
<validValue name="Cross" deprecated="3">2</validValue><validValue name="Sell" deprecated="4">3</validValue></enum>
<set name="Marks" encodingType="uint8"><choice name="late">0</choice><choice name="old" deprecated="2">1</choice></set>
<composite name="Leg"><type name="n" primitiveType="uint16"/><ref name="marks" type="Marks"/></composite></types>
<message name="Order" id="1"><field name="n" id="1" type="uint16"/><field name="side" id="2" type="Side"/>
<group name="legs" id="3"><field name="leg" id="4" type="Leg"/><data name="note" id="5" type="note"/></group>
<group name="fees" id="6"><field name="fee" id="7" type="uint16"/></group>
<data name="memo" id="8" type="note"/></message>
<message name="Ping" id="2"><field name="n" id="1" type="uint16"/></message></messageSchema>"""


def order(side: str, *marks: set[str]) -> bytes:
    legs = [{"leg": {"n": 7, "marks": each}, "note": "n"} for each in marks]
    return encode(SIDED, "Order", {"n": 1, "side": side, "legs": legs, "fees": [{"fee": 2}], "memo": "m"})


SIDED = load_schema(SIDES.encode())


def test_deprecated_values_and_choices_that_messages_hold_are_told_once_for_all_epochs():
    reported, ping = set[str](), encode(SIDED, "Ping", {"n": 1})
    first = [order("Buy", {"late"}), ping, order("Sell", {"late"}, {"late", "old"}), order("Sell", {"old"})]

    frames = landing(SIDED, reported=reported).receive(framed(*first))
    again = landing(SIDED, reported=reported).receive(framed(*first, order("Cross"), order("Cross")))

    assert [name for name in shown(frames) if isinstance(name, str)] == ["deprecated"]
    assert shown(frames)[2] == "deprecated"
    assert json.loads(frames[2].body) == {
        "mark": "deprecated",
        "template": "Order",
        "version": 4,
        "elements": ["Order.side.Sell", "Order.legs.leg.marks.old"],
    }
    assert [json.loads(frame.body)["elements"] for frame in again if frame.kind == "mark"] == [["Order.side.Cross"]]


def test_a_value_that_is_deprecated_later_than_its_message_was_written_is_not_told():
    older = order("Sell")[:6] + b"\x03\x00" + order("Sell")[8:]

    assert shown(landing(SIDED).receive(framed(older))) == [("1", "whole", len(older))]


def test_a_message_that_cannot_be_read_lands_and_tells_nothing_of_its_values():
    broken = order("Sell", {"old"})[:14]

    assert shown(landing(SIDED).receive(framed(broken))) == [("1", "whole", 14)]


def test_what_is_deprecated_later_than_a_message_was_written_is_not_told():
    xml = TEXTS[3].replace(b'name="price"', b'deprecated="2" name="price"')

    frames = landing(load_schema(xml)).receive(framed(ORDERS[1], ORDERS[2]))

    assert shown(frames) == [("1", "whole", 31), "deprecated", ("1", "whole", 35)]


def test_an_epoch_begins_with_the_schema_unless_it_landed_before():
    schema = load_schema(TEXTS[3])

    first = landing(schema).begin(TEXTS[3], None)
    same = landing(schema).begin(TEXTS[3], TEXTS[3])
    other = landing(schema).begin(TEXTS[3], TEXTS[0])

    assert [(frame.kind.value, frame.stream, frame.body) for frame in first] == [("control", None, TEXTS[3])]
    assert same == []
    assert other[0].body == TEXTS[3]
    assert json.loads(other[1].body) == {
        "mark": "schema changed",
        "version_before": 0,
        "version": 3,
        "breaks": False,
        "changes": [
            "Order.price: field added at the end (R20): now: int32 at 6, since 1",
            "Order.legs.ratio: field added at the end (R20): now: uint8 at 2, since 1",
            "Order.fees: group added before data (R51): now: group with entries of 2 bytes, since 3",
            "Order.memo: data added at the end (R65): now: UTF-8 after a uint8 length, since 2",
        ],
    }


def test_a_schema_lands_with_the_files_it_includes_and_is_compared_with_its_next(tmp_path: Path):
    schema = tmp_path / "order.xml"
    types = b'<types xmlns:v="urn:venue"><type name="Tag" primitiveType="uint16" v:note="a &lt; b"/></types>'
    (tmp_path / "types.xml").write_bytes(types)
    include = b'<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="types.xml"/></sbe:messageSchema>'
    schema.write_bytes(TEXTS[0].replace(b"</sbe:messageSchema>", include))
    read = read_schema(str(schema))
    before, first = read.text, read.load()
    (tmp_path / "types.xml").write_bytes(types.replace(b"uint16", b"uint32"))

    assert b"include" not in before
    assert load_schema(before).encodings == first.encodings
    assert load_schema(before).messages == first.messages
    assert what_changed(before, feed_schema(str(schema)))["changes"] == [
        "schema: version not raised, descriptions differ (R7): version 0 → version 0",
        "Tag: unused encoding changed (R97): scalar → scalar",
    ]


@pytest.mark.parametrize(
    ("part", "names", "sizes"),
    [("", [], []), ('<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="types.xml"/>', ["Tag"], [2, 2])],
)
def test_a_schema_is_what_was_read_even_if_its_files_are_replaced_before_it_is_loaded(
    tmp_path: Path, part: str, names: list[str], sizes: list[int]
):
    schema, types = tmp_path / "order.xml", tmp_path / "types.xml"
    text = TEXTS[0].replace(b"</sbe:messageSchema>", part.encode() + b"</sbe:messageSchema>")
    schema.write_bytes(text)
    types.write_text('<types><type name="Tag" primitiveType="uint16"/></types>')

    read = read_schema(str(schema))
    schema.write_bytes(text.replace(b'version="0"', b'version="1"'))
    types.write_text('<types><type name="Tag" primitiveType="uint32"/></types>')

    assert read.load().version == 0
    assert feed_schema(str(schema)).version == 1
    assert [loaded.encodings[name].size for loaded in (read.load(), load_schema(read.text)) for name in names] == sizes


def test_a_schema_that_misreads_what_landed_before_is_told_to_break():
    retyped = TEXTS[0].replace(b'name="qty" id="2" type="uint16"', b'name="qty" id="2" type="int16"')

    outcome = what_changed(TEXTS[0], load_schema(retyped))

    assert outcome["breaks"] is True
    assert [line.split(" (")[0] for line in outcome["changes"]] == [
        "schema: version not raised",
        "Order.qty: type of a field changed",
    ]


def test_a_schema_that_cannot_be_read_alone_is_not_compared():
    (line,) = what_changed(b"<", load_schema(TEXTS[0]))["changes"]

    assert line.startswith("the last schema cannot be compared: ")


def test_bytes_that_are_no_messages_end_the_epoch_and_are_kept():
    epoch = landing(MARKET)

    (frame,) = epoch.receive(b"\xff" * 10)

    assert json.loads(frame.body) == {
        "mark": "bad bytes",
        "error_class": "OVERSIZED_MESSAGE",
        "reason": str(epoch.error),
        "offset": 0,
        "left": 10,
        "body": "/////////////w==",
    }
    assert epoch.receive(framed(read_schema("builtin").text)) == []


def test_part_of_a_message_is_wrong_at_the_end_of_a_connection_and_right_at_that_of_a_file():
    part = framed(ORDERS[0])[:-3]
    schema, reported = load_schema(TEXTS[0]), set[str]()

    connection = landing(schema)
    assert connection.receive(part) == []
    assert shown(connection.receive_eof()) == ["bad bytes"]
    assert "truncated at byte 0" in str(connection.error)
    for expected in (["part of a message"], []):
        file = landing(schema, reported=reported)
        assert file.receive(part) == []
        assert shown(file.receive_end_of_file()) == expected
        assert file.error is None


def test_a_schema_that_misreads_what_landed_is_a_warning():
    schema = load_schema(TEXTS[0].replace(b'id="2" type="uint16"', b'id="2" type="int16"'), file="x")
    _, changed = landing(schema).begin(b"", TEXTS[0])
    details = json.loads(changed.body)
    assert (details["breaks"], details["level"]) == (True, "warning")
