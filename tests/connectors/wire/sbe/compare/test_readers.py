"""Verdicts on pairs that no case of the table has, each beside what a reader of the old schema makes of a message."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import TruncatedMessage
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.compare.findings import Severity
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

SIDE = '<enum name="Side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
COUNTS = ("numGroups", "numVarDataFields")


def members(*names: str, primitive: str = "uint16") -> str:
    return "".join(f'<type name="{name}" primitiveType="{primitive}"/>' for name in names)


def data_type(name: str, length: str) -> str:
    return (
        f'<composite name="{name}"><type name="length" primitiveType="{length}"/>'
        f'<type name="varData" primitiveType="uint8" length="0"/></composite>'
    )


def schema(version: int, messages: str, *, counted: bool = False, types: str = "") -> Schema:
    header, counts = members("blockLength", "templateId", "schemaId", "version"), members(*COUNTS) if counted else ""
    return load_schema(
        f"""<messageSchema id="7" version="{version}"><types>
        <composite name="messageHeader">{header}{counts}</composite>
        <composite name="groupSizeEncoding">{members("blockLength", "numInGroup")}{counts}</composite>
        <composite name="short">{members("blockLength", "numInGroup", primitive="uint8")}{counts}</composite>
        {data_type("long", "uint16")}{data_type("brief", "uint8")}{types}</types>{messages}</messageSchema>""".encode()
    )


def message(more: str) -> str:
    return f'<message name="M" id="1"><field name="a" id="1" type="uint8"/>{more}</message>'


def rules(old: Schema, new: Schema) -> list[tuple[str, Severity, Severity]]:
    return [(found.rule, found.backward, found.forward) for found in compare(old, new).findings]


def test_old_readers_refuse_data_at_the_end_whose_length_is_not_that_of_theirs():
    known = '<data name="d" id="2" type="long"/>'
    old = schema(1, message(known), counted=True)
    new = schema(2, message(f'{known}<data name="e" id="3" type="brief" sinceVersion="2"/>'), counted=True)
    assert rules(old, new) == [("R65", Severity.NONE, Severity.BREAKING)]
    body = bytes.fromhex("0100 0100 0700 0200 0000 0200 2a 0200 6869 03 616263")
    assert decode(new, body).values["e"] == b"abc"
    with pytest.raises(TruncatedMessage):
        decode(old, body)
    assert rules(new, schema(3, message(known), counted=True))[0][0] == "R69"


def test_old_readers_refuse_a_group_at_the_end_whose_dimensions_are_not_the_usual():
    group = '<group name="g" id="2" dimensionType="{}" sinceVersion="2"><field name="x" id="3" type="uint8"/></group>'
    old = schema(1, message(""), counted=True)
    unusual, usual = (schema(2, message(group.format(name)), counted=True) for name in ("short", "groupSizeEncoding"))
    assert rules(old, unusual) == [("R50", Severity.NONE, Severity.BREAKING)]
    assert rules(old, usual) == [("R50", Severity.NONE, Severity.NONE)]


def test_what_replaces_the_last_part_is_taken_for_it_by_old_readers_only():
    group = '<group name="{}" id="{}" {}><field name="x" id="3" type="{}"/></group>'
    data = '<data name="{}" id="{}" type="{}" {}/>'
    before = message(group.format("fees", 2, "", "uint16") + data.format("memo", 5, "long", ""))
    new = 'sinceVersion="2"'
    after = message(group.format("taxes", 6, new, "uint32") + data.format("memo", 5, "long", ""))
    other = message(group.format("fees", 2, "", "uint16") + data.format("note", 7, "brief", new))
    old = schema(1, before, counted=True)
    body = bytes.fromhex("0100 0100 0700 0100 0100 0100 2a 0200 0100 0000 0000 0700 0200 6869")
    found = rules(old, schema(2, after, counted=True))
    assert found == [("R51", Severity.NONE, Severity.BREAKING), ("R55", Severity.WARNING, Severity.BREAKING)]
    unlike = rules(old, schema(2, other, counted=True))
    assert unlike == [("R65", Severity.NONE, Severity.BREAKING), ("R69", Severity.BREAKING, Severity.BREAKING)]
    assert decode(schema(2, after, counted=True), body).values["memo"] == b"hi"
    unversioned = message(group.format("taxes", 6, "", "uint32") + data.format("memo", 5, "long", ""))
    assert ("R55", Severity.BREAKING, Severity.BREAKING) in rules(old, schema(2, unversioned, counted=True))
    classic = schema(1, before), schema(2, after)
    assert ("R55", Severity.BREAKING, Severity.BREAKING) in rules(*classic)


def test_templates_that_exchange_their_names_are_read_as_each_other():
    field = '<field name="a" id="1" type="uint8"/>'
    names = ((1, "Order", "Cancel"), (2, "Cancel", "Order"), (2, "Order", "Stop"), (2, "Stop", "Cancel"))
    old, new, other, fewer = (
        schema(version, f'<message name="{one}" id="1">{field}</message><message name="{two}" id="2">{field}</message>')
        for version, one, two in names
    )
    added = f'<message name="Order" id="3" sinceVersion="2">{field}</message>'
    more = f'<message name="Stop" id="1">{field}</message><message name="Cancel" id="2">{field}</message>{added}'
    taken, renamed = ("R15", Severity.BREAKING, Severity.BREAKING), ("R15", Severity.INFORMATION, Severity.INFORMATION)
    assert rules(old, new) == [taken, taken]
    assert rules(old, other) == rules(old, fewer) == [renamed]
    assert rules(old, schema(2, more))[0] == taken


def test_the_type_of_a_constant_counts_though_it_takes_no_bytes():
    old, wider = (
        schema(
            version,
            message(f'<field name="k" id="2" type="{kind}" presence="constant" valueRef="{ref}"/>'),
            types=types,
        )
        for version, kind, ref, types in ((1, "Side", "Side.Buy", SIDE), (2, "uint8", "Side.Buy", SIDE))
    )
    assert rules(old, wider) == [("R32", Severity.BREAKING, Severity.BREAKING)]


@pytest.mark.parametrize(
    ("names", "constant", "expected"),
    [
        (("Sell", "Buy"), "Sell", ("R32", Severity.BREAKING, Severity.BREAKING)),
        (("Bid", "Ask"), "Bid", ("R85", Severity.WARNING, Severity.WARNING)),
    ],
)
def test_the_name_of_a_constant_counts_beside_its_number(
    names: tuple[str, str], constant: str, expected: tuple[str, Severity, Severity]
):
    def with_constant(version: int, first: str, second: str, chosen: str) -> Schema:
        values = f'<validValue name="{first}">1</validValue><validValue name="{second}">2</validValue>'
        field = f'<field name="k" id="2" type="Side" presence="constant" valueRef="Side.{chosen}"/>'
        return schema(version, message(field), types=f'<enum name="Side" encodingType="uint8">{values}</enum>')

    assert rules(with_constant(1, "Buy", "Sell", "Buy"), with_constant(2, *names, constant)) == [expected]


def test_a_constant_that_is_no_number_is_equal_to_itself():
    def with_constant(version: int, value: str, group: str) -> Schema:
        constant = f'<type name="K" primitiveType="double" presence="constant">{value}</type>'
        types = f'{constant}<composite name="C">{members("x")}{constant}</composite>'
        parts = (
            f'<field name="c" id="3" type="C"/><group name="{group}" id="4"><field name="c" id="5" type="C"/></group>'
        )
        return schema(version, message(f'<field name="k" id="2" type="K"/>{parts}'), types=types)

    assert rules(with_constant(1, "NaN", "g"), with_constant(1, "NaN", "g")) == []
    assert rules(with_constant(1, "NaN", "g"), with_constant(2, "NaN", "h")) == [
        ("R60", Severity.INFORMATION, Severity.INFORMATION)
    ]
    breaking = ("R32", Severity.BREAKING, Severity.BREAKING)
    assert rules(with_constant(1, "NaN", "g"), with_constant(2, "0", "g")) == [breaking, breaking]
