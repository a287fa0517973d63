"""Readers and writers of different versions: what is there, what is absent, and what is told about it."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.compare.findings import Severity
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import HEADER, frame, message_of, schema_of


def schema_at(version: int) -> Schema:
    """Return a schema as it stood at a version: each version added a field, a group and data at the allowed places."""

    def since(parts: str, first: int) -> str:
        return parts.replace("/>", f' sinceVersion="{first}"/>', 1) if version >= first and first else parts

    def part(first: int, parts: str) -> str:
        return since(parts, first) if version >= first else ""

    parts = (
        '<field name="a" id="1" type="uint16"/>'
        + part(1, '<field name="b" id="2" type="uint8"/>')
        + part(2, '<field name="c" id="3" type="int32" presence="optional"/>')
        + '<group name="g" id="10"><field name="x" id="11" type="uint8"/>'
        + part(1, '<field name="y" id="12" type="uint16"/>')
        + "</group>"
        + (
            '<group name="h" id="20" sinceVersion="2"><field name="z" id="21" type="uint8" sinceVersion="2"/></group>'
            if version >= 2
            else ""
        )
        + '<data name="d" id="30" type="blob"/>'
        + part(2, '<data name="e" id="31" type="blob"/>')
    )
    return message_of(parts, version=version)


WRITTEN = {
    0: frame("0a00  0100 0200 01 02  01 dd", block_length=2),
    1: frame("0a00 0b  0300 0200 01 0b00 02 0c00  01 dd", block_length=3, version=1),
    2: frame("0a00 0b 0c000000  0300 0200 01 0b00 02 0c00  0100 0100 0d  01 dd 01 ee", block_length=7, version=2),
}
VALUES = {
    0: {"a": 10, "g": [{"x": 1}, {"x": 2}], "d": b"\xdd"},
    1: {"a": 10, "b": 11, "g": [{"x": 1, "y": 11}, {"x": 2, "y": 12}], "d": b"\xdd"},
    2: {
        "a": 10,
        "b": 11,
        "c": 12,
        "g": [{"x": 1, "y": 11}, {"x": 2, "y": 12}],
        "h": [{"z": 13}],
        "d": b"\xdd",
        "e": b"\xee",
    },
}


@pytest.mark.parametrize("reader", [0, 1, 2])
@pytest.mark.parametrize("writer", [0, 1])
def test_every_version_reads_what_itself_and_its_neighbour_knew(reader: int, writer: int):
    decoded = decode(schema_at(reader), WRITTEN[writer])

    assert decoded.values == VALUES[min(reader, writer)]
    assert decoded.consumed == len(WRITTEN[writer])
    assert decoded.warnings == ()


def test_the_newest_version_reads_itself():
    assert decode(schema_at(2), WRITTEN[2]).values == VALUES[2]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_newer_schema_writes_as_an_older_version_what_that_one_would_have_written(version: int):
    assert encode(schema_at(2), "M", VALUES[2], version=version) == WRITTEN[version]
    assert encode(schema_at(2), "M", VALUES[version], version=version) == WRITTEN[version]
    assert encode(schema_at(version), "M", VALUES[version]) == WRITTEN[version]


def test_a_version_that_the_schema_does_not_have_cannot_be_written():
    with pytest.raises(InvalidValue) as caught:
        encode(schema_at(1), "M", VALUES[1], version=2)

    assert caught.value.reason == "template-newer-than-version"


def test_bytes_of_a_newer_sender_at_the_end_are_normal():
    decoded = decode(
        message_of('<field name="a" id="1" type="uint8"/>'), frame("01 0203 0400", block_length=3, version=9)
    )

    assert decoded.values == {"a": 1}
    assert (decoded.consumed, decoded.warnings) == (11, ())


def test_a_newer_field_is_absent_even_if_bytes_lie_at_its_place():
    schema = message_of(
        '<field name="a" id="1" type="uint8"/><field name="b" id="2" type="uint8" sinceVersion="2"/>', version=2
    )

    assert decode(schema, frame("01 02", block_length=2, version=1)).values == {"a": 1}


def test_a_field_beyond_the_block_is_absent_and_reported_although_the_version_has_it():
    schema = message_of(
        '<field name="a" id="1" type="uint8"/><field name="b" id="2" type="uint16"/>'
        '<group name="g" id="3"><field name="x" id="4" type="uint8"/><field name="y" id="5" type="uint8"/></group>'
    )

    decoded = decode(schema, frame("01 02  0100 0200 03 04", block_length=2))

    assert decoded.values == {"a": 1, "g": [{"x": 3}, {"x": 4}]}
    assert [(finding.reason, finding.element, finding.offset) for finding in decoded.warnings] == [
        ("short-block", "M", 8),
        ("short-block", "M.g", 14),
    ]


def test_a_member_newer_than_the_message_is_absent_and_its_bytes_stay():
    types = (
        '<composite name="c"><type name="p" primitiveType="uint8"/>'
        '<type name="q" primitiveType="uint8" sinceVersion="2"/><type name="r" primitiveType="uint8"/></composite>'
    )
    schema = message_of('<field name="c" id="1" type="c"/><field name="a" id="2" type="uint8"/>', types, version=2)

    decoded = decode(schema, frame("01 02 03 04", block_length=4, version=1))

    assert decoded.values == {"c": {"p": 1, "r": 3}, "a": 4}
    assert encode(schema, "M", decoded.values, version=1) == frame("01 00 03 04", block_length=4, version=1)


def test_a_newer_constant_is_absent():
    types = '<type name="k" primitiveType="int8" presence="constant">7</type>'
    schema = message_of('<field name="k" id="1" type="k" sinceVersion="2"/>', types, version=2)

    assert decode(schema, frame("", block_length=0, version=1)).values == {}
    assert decode(schema, frame("", block_length=0, version=2)).values == {"k": 7}


def test_a_group_without_a_version_whose_members_all_are_newer_is_not_read():
    schema = message_of(
        '<group name="g" id="1"><field name="x" id="2" type="uint8" sinceVersion="2"/></group>'
        '<data name="d" id="3" type="blob"/>',
        version=2,
    )

    assert decode(schema, frame("01 dd", block_length=0, version=1)).values == {"d": b"\xdd"}


def test_a_message_newer_than_its_version_is_decoded_and_reported():
    schema = schema_of(
        '<message name="M" id="1" sinceVersion="2"><field name="a" id="1" type="uint8"/></message>', version=2
    )

    decoded = decode(schema, frame("05", block_length=1, version=1))

    assert decoded.values == {"a": 5}
    assert [finding.reason for finding in decoded.warnings] == ["template-newer-than-version"]


def test_values_newer_than_the_message_are_named_and_reported():
    types = (
        '<enum name="e" encodingType="uint8"><validValue name="Old">1</validValue>'
        '<validValue name="New" sinceVersion="2">2</validValue></enum>'
        '<set name="s" encodingType="uint8"><choice name="old">0</choice>'
        '<choice name="new" sinceVersion="3">1</choice></set><composite name="c"><ref name="e" type="e"/></composite>'
    )
    schema = message_of(
        '<field name="s" id="1" type="s"/><group name="g" id="2"><field name="c" id="3" type="c"/></group>',
        types,
        version=3,
    )
    body = frame("03  0100 0200 01 02", block_length=1, version=1)

    decoded = decode(schema, body)

    assert decoded.values["s"].names == ["new", "old"]
    assert decoded.values["g"] == [{"c": {"e": "Old"}}, {"c": {"e": "New"}}]
    assert [(finding.reason, finding.element) for finding in decoded.warnings] == [
        ("value-newer-than-version", "M.s"),
        ("value-newer-than-version", "M.g.c.e"),
    ]
    assert decode(schema, frame("03  0100 0200 01 02", block_length=1, version=3)).warnings == ()


def test_versions_without_a_change_between_them_read_alike():
    schema = message_of(
        '<field name="a" id="1" type="uint8"/><field name="b" id="2" type="uint8" sinceVersion="5"/>', version=9
    )

    assert [len(decode(schema, frame("01 02", block_length=2, version=version)).values) for version in range(11)] == [
        1,
        1,
        1,
        1,
        1,
        2,
        2,
        2,
        2,
        2,
        2,
    ]


COUNTED_HEADER = (
    HEADER.replace(
        '<type name="version" primitiveType="uint16"/>',
        '<type name="version" primitiveType="uint16"/><type name="numGroups" primitiveType="uint16"/>'
        '<type name="numVarDataFields" primitiveType="uint16"/>',
    )
    .replace(
        '<type name="numInGroup" primitiveType="uint16"/>',
        '<type name="numInGroup" primitiveType="uint16"/><type name="numGroups" primitiveType="uint16"/>'
        '<type name="numVarDataFields" primitiveType="uint16"/>',
    )
    .partition('<composite name="text">')[0]
)
GROUP = '<group name="{0}" id="{1}"><field name="x" id="9" type="uint8"/></group>'
COUNTED = GROUP.format("g", 1) + GROUP.format("h", 2) + '<data name="d" id="3" type="blob"/>'
COUNTED += '<data name="e" id="4" type="blob"/>'


def counted_frame(body: str, *, groups: int, data: int, version: int = 0) -> bytes:
    numbers = (0, 1, 1, version, groups, data)
    return b"".join(number.to_bytes(2, "little") for number in numbers) + bytes.fromhex(body)


def test_counted_messages_are_written_with_their_counts():
    schema = message_of(COUNTED, header=COUNTED_HEADER)
    body = counted_frame("0100 0100 0000 0000 07  0100 0000 0000 0000  01 dd 00", groups=2, data=2)

    assert decode(schema, body).values == {"g": [{"x": 7}], "h": [], "d": b"\xdd", "e": b""}
    assert encode(schema, "M", decode(schema, body).values) == body


def test_a_counted_message_with_fewer_parts_lacks_the_last_ones():
    schema = message_of(COUNTED, header=COUNTED_HEADER)

    decoded = decode(schema, counted_frame("0100 0100 0000 0000 07  01 dd", groups=1, data=1))

    assert decoded.values == {"g": [{"x": 7}], "d": b"\xdd"}
    assert decoded.warnings == ()


def test_a_counted_message_with_more_parts_has_them_skipped_with_all_they_hold():
    schema = message_of(COUNTED, header=COUNTED_HEADER)
    known = "0100 0100 0000 0000 07  0100 0000 0000 0000"
    unknown = "0200 0200 0100 0100  aaaa 0100 0300 0000 0000 bbbbbb 02 cccc  aaaa 0100 0000 0000 0000 00"

    decoded = decode(schema, counted_frame(f"{known} {unknown} 01 dd 00 03 eeeeee", groups=3, data=3, version=1))

    assert decoded.values == {"g": [{"x": 7}], "h": [], "d": b"\xdd", "e": b""}
    assert decoded.consumed == 12 + (len(f"{known}{unknown}01dd0003eeeeee".replace(" ", "")) // 2)


def test_entries_of_a_counted_message_have_their_unknown_parts_skipped():
    schema = message_of(COUNTED, header=COUNTED_HEADER)
    groups = "0100 0200 0100 0100  07 0100 0100 0000 0000 99 01 88  08 0100 0000 0000 0000 00"

    decoded = decode(schema, counted_frame(f"{groups}  0100 0000 0000 0000  00 00", groups=2, data=2, version=1))

    assert decoded.values == {"g": [{"x": 7}, {"x": 8}], "h": [], "d": b"", "e": b""}


def test_unknown_data_is_skipped_by_the_types_for_data_while_the_schema_has_no_data_yet():
    schema = message_of(GROUP.format("g", 1), header=COUNTED_HEADER)
    entries = "0100 0200 0100 0100  07 0100 0100 0000 0100 99 01 aa 01 88  08 0100 0000 0000 0000 00"

    decoded = decode(schema, counted_frame(entries, groups=1, data=0, version=1))

    assert decoded.values == {"g": [{"x": 7}, {"x": 8}]}


def test_the_comparison_of_schemas_knows_that_such_data_is_skipped():
    old = message_of(GROUP.format("g", 1), header=COUNTED_HEADER)
    data = '<data name="d" id="3" type="blob" sinceVersion="1"/>'
    new = message_of(GROUP.format("g", 1).replace("</group>", f"{data}</group>"), header=COUNTED_HEADER, version=1)

    assert [(each.rule, each.forward) for each in compare(old, new).findings] == [("R66", Severity.NONE)]


def test_unknown_data_of_several_kinds_is_reported_if_nothing_follows_and_an_error_if_something_does():
    types = (
        '<composite name="wide"><type name="length" primitiveType="uint16"/>'
        '<type name="varData" primitiveType="uint8" length="0"/></composite>'
    )
    parts = GROUP.format("g", 1) + '<data name="d" id="3" type="blob"/><data name="e" id="4" type="wide"/>'
    schema = message_of(parts, types, header=COUNTED_HEADER)

    decoded = decode(schema, counted_frame("0100 0000 0000 0000 00 0000 05", groups=1, data=3, version=1))

    assert decoded.values == {"g": [], "d": b"", "e": b""}
    assert [finding.reason for finding in decoded.warnings] == ["unskippable"]
    with pytest.raises(InvalidValue) as caught:
        decode(schema, counted_frame("0100 0100 0000 0100 07 00 00 0000", groups=1, data=2, version=1))
    assert (caught.value.reason, caught.value.element) == ("unskippable", "M.g[0]")


def test_unknown_data_is_skipped_by_the_one_kind_of_length_whatever_its_limits():
    types = (
        '<composite name="short"><type name="length" primitiveType="uint8" maxValue="3"/>'
        '<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/></composite>'
    )
    parts = '<data name="d" id="3" type="blob"/><data name="e" id="4" type="short"/>'
    schema = message_of(parts, types, header=COUNTED_HEADER)

    decoded = decode(schema, counted_frame("00 00 05 0102030405", groups=0, data=3, version=1))

    assert decoded.values == {"d": b"", "e": ""}
    assert (decoded.consumed, decoded.warnings) == (20, ())


def test_unknown_groups_that_nest_without_end_are_not_followed():
    schema = message_of(COUNTED, header=COUNTED_HEADER)
    nest = "0000 0100 0100 0000" * 2000

    with pytest.raises(InvalidValue) as caught:
        decode(schema, counted_frame(f"0100 0000 0000 0000 0100 0000 0000 0000 {nest}", groups=3, data=2, version=1))

    assert caught.value.reason == "unskippable"


@pytest.mark.parametrize("reader", [0, 1, 2])
@pytest.mark.parametrize("writer", [0, 1, 2])
def test_with_counts_every_version_reads_every_other(reader: int, writer: int):
    def schema(version: int) -> Schema:
        return message_of(
            "".join(part for since, part in COUNTED_PARTS if since <= version), header=COUNTED_HEADER, version=version
        )

    decoded = decode(schema(reader), encode(schema(writer), "M", COUNTED_VALUES[writer]))

    assert decoded.values == COUNTED_VALUES[min(reader, writer)]
    assert decoded.warnings == ()


COUNTED_PARTS = [
    (0, '<field name="a" id="1" type="uint8"/>'),
    (1, '<field name="b" id="2" type="uint8" sinceVersion="1"/>'),
    (0, '<group name="g" id="3"><field name="x" id="4" type="uint8"/>'),
    (1, '<group name="i" id="5" sinceVersion="1"><field name="y" id="6" type="uint8" sinceVersion="1"/></group>'),
    (2, '<data name="t" id="7" type="blob" sinceVersion="2"/>'),
    (0, "</group>"),
    (2, '<group name="h" id="8" sinceVersion="2"><field name="z" id="9" type="uint8" sinceVersion="2"/></group>'),
    (0, '<data name="d" id="10" type="blob"/>'),
    (1, '<data name="e" id="11" type="blob" sinceVersion="1"/>'),
]
COUNTED_VALUES = [
    {"a": 1, "g": [{"x": 2}, {"x": 3}], "d": b"\xdd"},
    {"a": 1, "b": 4, "g": [{"x": 2, "i": [{"y": 5}]}, {"x": 3, "i": []}], "d": b"\xdd", "e": b"\xee\xee"},
    {
        "a": 1,
        "b": 4,
        "g": [{"x": 2, "i": [{"y": 5}], "t": b"\x06"}, {"x": 3, "i": [], "t": b""}],
        "h": [{"z": 7}],
        "d": b"\xdd",
        "e": b"\xee\xee",
    },
]


def test_a_known_part_that_the_counts_announce_must_be_there():
    schema = message_of(COUNTED, header=COUNTED_HEADER)

    with pytest.raises(TruncatedMessage):
        decode(schema, counted_frame("0100 0000 0000 0000", groups=2, data=0))


def test_a_counted_message_lacks_what_is_newer_than_itself_wherever_that_stands():
    parts = (
        '<group name="new" id="1" sinceVersion="1"><field name="x" id="9" type="uint8"/></group>'
        + GROUP.format("old", 2)
        + '<data name="fresh" id="3" type="blob" sinceVersion="1"/><data name="known" id="4" type="blob"/>'
    )
    schema = message_of(parts, header=COUNTED_HEADER, version=1)

    decoded = decode(schema, counted_frame("0100 0100 0000 0000 07  01 dd", groups=1, data=1))

    assert decoded.values == {"old": [{"x": 7}], "known": b"\xdd"}
    assert encode(schema, "M", decoded.values, version=0) == counted_frame(
        "0100 0100 0000 0000 07  01 dd", groups=1, data=1
    )
