"""Layouts at the edge of what a schema can say, decoded and, unless the message is broken, encoded again."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.decode import MessageReader, decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from tests.support.sbe.basics import HEADER, assert_reads_and_writes, frame, message_of, schema_of

CONSTANT = '<type name="k" primitiveType="char" presence="constant">K</type>'


def test_newer_constants_before_the_first_field_leave_it_at_offset_0():
    schema = message_of(
        '<field name="a" id="1" type="k" sinceVersion="2"/><field name="b" id="2" type="uint16"/>', CONSTANT, version=2
    )

    assert decode(schema, frame("0700", block_length=2, version=1)).values == {"b": 7}
    assert decode(schema, frame("0700", block_length=2, version=2)).values == {"a": "K", "b": 7}


def test_a_constant_between_fields_does_not_move_the_next_one():
    schema = message_of(
        '<field name="a" id="1" type="int8"/><field name="k" id="2" type="k"/><field name="b" id="3" type="int8"/>',
        CONSTANT,
    )

    assert_reads_and_writes(schema, frame("01 02", block_length=2), {"a": 1, "k": "K", "b": 2})


def test_values_stand_in_the_order_of_the_schema_constants_included():
    schema = message_of(
        '<field name="z" id="1" type="int8"/><field name="k" id="2" type="k"/><field name="a" id="3" type="int8"/>',
        CONSTANT,
    )

    assert list(decode(schema, frame("01 02", block_length=2)).values) == ["z", "k", "a"]


def test_a_composite_of_constants_takes_no_bytes():
    types = f'<composite name="c">{CONSTANT}</composite>'
    schema = message_of('<field name="c" id="1" type="c"/><field name="a" id="2" type="int8"/>', types)

    assert_reads_and_writes(schema, frame("05", block_length=1), {"c": {"k": "K"}, "a": 5})


def test_nested_composites_and_references_lie_at_their_offsets():
    types = (
        '<enum name="e" encodingType="uint8"><validValue name="One">1</validValue></enum>'
        '<set name="s" encodingType="uint16"><choice name="low">0</choice></set>'
        '<type name="t" primitiveType="int8"/>'
        '<composite name="c"><composite name="deep" offset="1"><type name="x" primitiveType="int16"/></composite>'
        '<ref name="e" type="e" offset="4"/><ref name="s" type="s"/><ref name="p" type="t" offset="8"/>'
        '<ref name="q" type="t"/></composite>'
    )
    schema = message_of('<field name="c" id="1" type="c"/>', types)

    decoded = decode(schema, frame("ff 0200 ff 01 0100 ff 03 04", block_length=10))

    assert decoded.values == {"c": {"deep": {"x": 2}, "e": "One", "s": SetValue(1, {}), "p": 3, "q": 4}}
    assert encode(schema, "M", decoded.values) == frame("00 0200 00 01 0100 00 03 04", block_length=10)


def test_one_composite_may_be_optional_in_one_field_and_required_in_another():
    types = '<composite name="c"><type name="a" primitiveType="int8"/><type name="b" primitiveType="int8"/></composite>'
    schema = message_of('<field name="o" id="1" type="c" presence="optional"/><field name="r" id="2" type="c"/>', types)

    decoded = decode(schema, frame("80 01 80 02", block_length=4))

    assert decoded.values == {"o": {"a": None, "b": 1}, "r": {"a": -128, "b": 2}}
    assert encode(schema, "M", decoded.values, tolerant=True) == frame("80 01 80 02", block_length=4)
    assert encode(schema, "M", {"r": {"a": 1, "b": 2}}) == frame("80 00 01 02", block_length=4)


def test_the_null_of_a_composite_skips_constants_to_its_first_member_on_the_wire():
    types = (
        f'<composite name="inside"><type name="a" primitiveType="int8"/></composite><composite name="c">{CONSTANT}'
        '<ref name="i" type="inside"/><type name="b" primitiveType="uint8"/></composite>'
    )
    schema = message_of('<field name="c" id="1" type="c" presence="optional"/>', types)

    values = decode(schema, frame("80 ff", block_length=2)).values

    assert values == {"c": {"k": "K", "i": {"a": None}, "b": 255}}
    assert encode(schema, "M", {"c": None}) == frame("80 00", block_length=2)


def test_a_group_without_fields_may_hold_data_only():
    schema = message_of('<group name="g" id="1"><data name="d" id="2" type="blob"/></group>')

    values = {"g": [{"d": b"\x01"}, {"d": b""}, {"d": b"\x02\x03"}]}
    assert_reads_and_writes(schema, frame("0000 0300 01 01 00 02 0203", block_length=0), values)


def test_a_message_may_have_no_fields_but_data_or_nothing_at_all():
    schema = schema_of(
        '<message name="D" id="1"><data name="d" id="1" type="text"/></message><message name="N" id="2"/>'
    )

    assert_reads_and_writes(schema, frame("0200 6869", block_length=0), {"d": "hi"})
    assert_reads_and_writes(schema, frame("", block_length=0, template=2), {})


def test_an_empty_group_has_dimensions_but_none_for_what_is_nested_in_it():
    schema = message_of(
        '<group name="g" id="1"><field name="a" id="2" type="int8"/>'
        '<group name="h" id="3"><field name="b" id="4" type="int8"/></group><data name="d" id="5" type="blob"/></group>'
        '<data name="e" id="6" type="blob"/>'
    )

    assert_reads_and_writes(schema, frame("0100 0000 01 aa", block_length=0), {"g": [], "e": b"\xaa"})


def test_groups_of_one_message_may_have_different_dimensions_with_gaps():
    types = (
        '<composite name="wide"><type name="blockLength" primitiveType="uint16"/>'
        '<type name="numInGroup" primitiveType="uint8" offset="7"/></composite>'
        '<composite name="turned"><type name="numInGroup" primitiveType="uint16"/>'
        '<type name="blockLength" primitiveType="uint8"/></composite>'
    )
    field = '<field name="a" id="9" type="int8"/>'
    schema = message_of(
        f'<group name="g" id="1">{field}</group><group name="h" id="2" dimensionType="wide">{field}</group>'
        f'<group name="i" id="3" dimensionType="turned">{field}</group>',
        types,
    )

    values = {"g": [{"a": 1}], "h": [{"a": 2}, {"a": 3}], "i": [{"a": 4}]}
    body = frame("0100 0100 01  0100 0000000000 02 02 03  0100 01 04", block_length=0)
    assert_reads_and_writes(schema, body, values)


@pytest.mark.parametrize(
    ("members", "body", "extras"),
    [
        ("version:uint16 schemaId:uint16 templateId:uint16 blockLength:uint16", "0000 0100 0100 0200 2a00", {}),
        ("blockLength:uint16 templateId:uint8 schemaId:uint8 version:uint16", "0200 01 01 0000 2a00", {}),
        (
            "blockLength:uint16 templateId:uint16 schemaId:uint16 version:uint16 numGroups:uint16 "
            "numVarDataFields:uint16",
            "0200 0100 0100 0000 0000 0000 2a00",
            {"numGroups": 0, "numVarDataFields": 0},
        ),
        (
            "sequence:uint32 blockLength:uint32 templateId:uint64 schemaId:int8 version:uint8",
            "0d000000 02000000 0100000000000000 01 00 2a00",
            {"sequence": 13},
        ),
    ],
    ids=["other order", "6 bytes", "12 bytes", "other widths and more"],
)
def test_headers_may_have_any_order_width_and_further_members(members, body, extras):
    pairs = [member.split(":") for member in members.split()]
    types = "".join(f'<type name="{name}" primitiveType="{primitive}"/>' for name, primitive in pairs)
    schema = message_of(
        '<field name="a" id="1" type="uint16"/>', header=f'<composite name="messageHeader">{types}</composite>'
    )

    decoded = decode(schema, bytes.fromhex(body))

    assert decoded.values == {"a": 42}
    assert decoded.header[:4] == (2, 1, 1, 0)
    assert decoded.header.extras == extras
    assert encode(
        schema, "M", {"a": 42}, header={"sequence": 13} if "sequence" in extras else {}
    ).hex() == body.replace(" ", "")


def test_further_members_of_a_header_may_be_sets_and_enums():
    header = HEADER.replace(
        '<type name="templateId" primitiveType="uint16"/>',
        '<ref name="flags" type="flags"/><type name="templateId" primitiveType="uint16"/>'
        '<type name="venue" primitiveType="char" length="2"/>',
    )
    types = '<set name="flags" encodingType="uint8"><choice name="resent">1</choice></set>'
    schema = message_of('<field name="a" id="1" type="uint8"/>', types, header=header)
    body = bytes.fromhex("0100 02 0100 584c 0100 0000 07")

    decoded = decode(schema, body)

    assert decoded.header.extras == {"flags": SetValue(2, {}), "venue": "XL"}
    assert encode(schema, "M", {"a": 7}, header=decoded.header.extras) == body


def test_members_of_a_header_may_be_constant():
    header = HEADER.replace(
        '<type name="schemaId" primitiveType="uint16"/>',
        '<type name="schemaId" primitiveType="uint16" presence="constant">1</type>',
    )
    schema = message_of('<field name="a" id="1" type="uint8"/>', header=header)

    assert decode(schema, bytes.fromhex("0100 0100 0000 07")).header[:4] == (1, 1, 1, 0)
    assert encode(schema, "M", {"a": 7}).hex() == "01000100000007"


def test_everything_is_swapped_in_a_big_endian_schema():
    schema = message_of(
        '<field name="f" id="1" type="float"/><field name="s" id="2" type="s"/>'
        '<group name="g" id="3"><field name="a" id="4" type="int32"/></group><data name="d" id="5" type="text"/>',
        '<set name="s" encodingType="uint16"><choice name="low">0</choice></set>',
        order="bigEndian",
    )
    body = bytes.fromhex("0006 0001 0001 0000 3f800000 0001 0004 0001 00000005 0001 78")

    values = {"f": 1.0, "s": SetValue(1, {}), "g": [{"a": 5}], "d": "x"}
    assert_reads_and_writes(schema, body, values)


def test_data_may_be_empty_or_as_long_as_its_length_can_say_but_not_longer():
    schema = message_of('<data name="d" id="1" type="blob"/>')

    assert_reads_and_writes(schema, frame("00", block_length=0), {"d": b""})
    assert_reads_and_writes(schema, frame("fe" + "07" * 254, block_length=0), {"d": b"\x07" * 254})
    with pytest.raises(InvalidValue) as null_length:
        decode(schema, frame("ff" + "07" * 255, block_length=0))
    with pytest.raises(TruncatedMessage) as short:
        decode(schema, frame("05 0102", block_length=0))
    assert (null_length.value.reason, null_length.value.element) == ("length-max", "M.d")
    assert (short.value.reason, short.value.element, short.value.offset) == ("truncated", "M.d", 8)


def test_a_group_is_read_up_to_the_whole_range_of_its_count_and_written_up_to_one_less():
    types = (
        '<composite name="tiny"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="uint8"/></composite>'
    )
    schema = message_of(
        '<group name="g" id="1" dimensionType="tiny"><field name="a" id="2" type="uint8"/></group>', types
    )

    assert len(decode(schema, frame("01 ff" + "00" * 255, block_length=0)).values["g"]) == 255
    with pytest.raises(InvalidValue) as caught:
        encode(schema, "M", {"g": [{"a": 0}] * 255})
    assert (caught.value.reason, caught.value.element) == ("count-range", "M.g")


def test_a_count_outside_the_limits_of_the_schema_is_refused():
    types = (
        '<composite name="few"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="uint8" minValue="1" maxValue="2"/></composite>'
    )
    schema = message_of(
        '<group name="g" id="1" dimensionType="few"><field name="a" id="2" type="uint8"/></group>', types
    )

    for body in ("01 03 010203", "01 00"):
        with pytest.raises(InvalidValue, match="allowed are 1 to 2"):
            decode(schema, frame(body, block_length=0))


def test_a_limit_that_is_the_default_one_still_is_a_limit():
    types = (
        '<composite name="full"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="uint8" maxValue="254"/></composite>'
    )
    schema = message_of(
        '<group name="g" id="1" dimensionType="full"><field name="a" id="2" type="uint8"/></group>', types
    )

    with pytest.raises(InvalidValue, match="255 entries, allowed are 0 to 254"):
        decode(schema, frame("01 ff" + "00" * 255, block_length=0))


def test_more_entries_than_the_bytes_can_hold_are_refused_before_any_is_read():
    schema = message_of('<group name="g" id="1"><field name="a" id="2" type="int64"/></group>')

    with pytest.raises(InvalidValue) as caught:
        decode(schema, frame("0800 ffff" + "00" * 64, block_length=0))

    assert (caught.value.reason, caught.value.element, caught.value.offset) == ("count-range", "M.g", 8)


def test_entries_without_bytes_are_read_up_to_a_limit_for_the_whole_message():
    schema = message_of('<group name="g" id="1"/><group name="h" id="2"/>')
    reader = MessageReader(schema, max_empty_entries=5)

    assert reader.read(frame("0000 0300 0000 0200", block_length=0)).values == {"g": [{}] * 3, "h": [{}] * 2}
    with pytest.raises(InvalidValue) as caught:
        reader.read(frame("0000 0300 0000 0300", block_length=0))
    assert (caught.value.reason, caught.value.element) == ("count-range", "M.h")


def test_padding_of_a_block_is_skipped_and_written_as_zeros():
    schema = schema_of(
        '<message name="M" id="1" blockLength="4"><field name="a" id="1" type="int8" offset="1"/>'
        '<data name="d" id="2" type="blob"/></message>'
    )

    decoded = decode(schema, frame("ff 05 ff ff 01 09", block_length=4))

    assert decoded.values == {"a": 5, "d": b"\x09"}
    assert encode(schema, "M", decoded.values) == frame("00 05 00 00 01 09", block_length=4)


def test_two_messages_in_one_input_are_found_by_the_bytes_consumed():
    schema = message_of('<field name="a" id="1" type="int8"/><data name="d" id="2" type="blob"/>')
    both = frame("01 02 aabb", block_length=1) + frame("02 00", block_length=1)

    first = decode(schema, both)
    second = decode(schema, both[first.consumed :])

    assert first.values == {"a": 1, "d": b"\xaa\xbb"}
    assert second.values == {"a": 2, "d": b""}
    assert first.consumed + second.consumed == len(both)


def test_bytes_behind_a_message_are_an_error_if_one_is_strict():
    schema = message_of('<field name="a" id="1" type="int8"/>')

    with pytest.raises(InvalidValue) as caught:
        decode(schema, frame("01 02", block_length=1), strict=True)

    assert (caught.value.reason, caught.value.offset) == ("trailing-bytes", 9)


def test_a_memoryview_is_decoded_like_bytes():
    schema = message_of(
        '<field name="t" id="1" type="t"/><data name="d" id="2" type="blob"/><data name="e" id="3" type="text"/>',
        '<type name="t" primitiveType="char" length="2"/>',
    )
    body = frame("4142 01 07 0100 78", block_length=2)

    assert decode(schema, memoryview(body)).values == {"t": "AB", "d": b"\x07", "e": "x"}
    assert decode(schema, bytearray(body)).values == {"t": "AB", "d": b"\x07", "e": "x"}
