"""Each rule a schema can break, with the line it is broken on: the line that carries the marker ``<!--x-->``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import HEADER

MARK = "<!--x-->"
MEMBERS = (
    '<type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>'
    '<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>'
)


def document(types: str = "", messages: str = "", *, header: str = HEADER, root: str = 'id="1" version="2"') -> str:
    return (
        f'<s:messageSchema xmlns:s="http://fixprotocol.io/2016/sbe" {root}>\n'
        f"<types>{header}</types>\n<types>\n{types}\n</types>\n{messages}\n</s:messageSchema>"
    )


def rooted(attributes: str, types: str = "") -> str:
    return document(types, root=f'id="1" {attributes}').replace("<s:", f"{MARK}<s:", 1)


def message(parts: str) -> str:
    return document(messages=f'<message name="M" id="1">\n{parts}\n</message>')


def typed(types: str) -> str:
    return document(types)


def using(types: str, parts: str) -> str:
    return document(types, f'<message name="M" id="1">\n{parts}\n</message>')


def header(members: str) -> str:
    return document(header=f'\n<composite name="messageHeader">{members}</composite>').replace(
        "<s:messageSchema", f"{MARK}<s:messageSchema"
    )


def dimensions(members: str) -> str:
    return using(
        f'<composite name="dims">{members}</composite>',
        f'{MARK}<group name="g" id="1" dimensionType="dims"><field name="f" id="2" type="int8"/></group>',
    )


def data(members: str, attributes: str = "") -> str:
    return using(
        f'<composite name="raw">{members}</composite>', f'{MARK}<data name="d" id="1" type="raw"{attributes}/>'
    )


def link(number: int) -> str:
    return f'<composite name="c{number}"><ref name="r" type="c{number - 1}"/></composite>'


def chain(numbers: Iterable[int]) -> str:
    return '<composite name="c0"/>\n' + "\n".join(link(number) for number in numbers)


ENUM = '<enum name="Side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
OTHER_ENUM = '<enum name="Other" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
VARIABLE = '<type name="varData" primitiveType="uint8" length="0"/>'

BROKEN = {
    "E01 root": f"{MARK}<schema id='1' version='0'/>",
    **{
        f"E01 document type {rest}": f"<!DOCTYPE x {rest}>{MARK}<messageSchema id='1' version='0'/>"
        for rest in ("[]", "SYSTEM 'x.dtd'", "PUBLIC 'x' 'x.dtd'", "[<!ENTITY y 'z'>]")
    },
    "E01 not well-formed": f"<messageSchema id='1'>\n{MARK}<types></messageSchema>",
    "E01 include from bytes": document(
        messages=f'{MARK}<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="other.xml"/>'
    ),
    "E02 id missing": rooted('version="0"').replace(' id="1"', "", 1),
    "E02 id too large": rooted('version="0"').replace(' id="1"', ' id="65536"', 1),
    "E02 version not a number": rooted('version="one"'),
    "E02 version negative": rooted('version="-1"'),
    "E02 version does not fit": rooted('version="65536"'),
    "E03 byte order": rooted('version="0" byteOrder="little"'),
    "E04 no such header": rooted('version="0" headerType="h"'),
    "E04 header is a type": rooted('version="0" headerType="h"', '<type name="h" primitiveType="int8"/>'),
    "E05 header member missing": header('<type name="blockLength" primitiveType="uint16"/>'),
    "E05 signed block length": header(MEMBERS.replace("uint16", "int16", 1)),
    **{
        f"E05 {kind} count of groups": header(f'{MEMBERS}<type name="numGroups" primitiveType="{kind}"/>')
        for kind in ("int16", "double", "char")
    },
    "E05 member of no fixed size": header(f'{MEMBERS}<type name="e" primitiveType="char" length="0"/>'),
    "E06 primitive": typed(f'{MARK}<type name="t" primitiveType="int128"/>'),
    "E07 field": message(f'{MARK}<field name="f" id="1" type="nope"/>'),
    "E07 ref": typed(f'<composite name="c">\n{MARK}<ref name="r" type="nope"/></composite>'),
    "E07 encoding type": typed(f'{MARK}<enum name="e" encodingType="nope"/>'),
    "E07 dimensions": message(
        f'{MARK}<group name="g" id="1" dimensionType="nope"><field name="f" id="2" type="int8"/></group>'
    ),
    "E07 data": message(f'{MARK}<data name="d" id="1" type="nope"/>'),
    "E08 circle": typed(
        '<composite name="a"><ref name="b" type="b"/></composite>\n'
        f'<composite name="b">\n{MARK}<ref name="a" type="a"/></composite>'
    ),
    "E08 itself": typed(f'<composite name="a">\n{MARK}<ref name="b" type="a"/></composite>'),
    "E08 too deep": typed(chain(range(1, 100))).replace(link(64), f"{MARK}{link(64)}"),
    "E08 too deep, last first": typed(chain(range(99, 0, -1))).replace(
        '<ref name="r" type="c35"/>', f'{MARK}<ref name="r" type="c35"/>'
    ),
    "E09 constant without value": typed(f'{MARK}<type name="t" primitiveType="int8" presence="constant"/>'),
    "E09 constant too long": typed(
        f'{MARK}<type name="t" primitiveType="char" length="2" presence="constant">abc</type>'
    ),
    "E09 constant list": typed(f'{MARK}<type name="t" primitiveType="int8" length="2" presence="constant">1</type>'),
    "E09 value reference": typed(
        ENUM + f'\n{MARK}<type name="t" primitiveType="uint8" presence="constant" valueRef="Side.Nope"/>'
    ),
    "E09 malformed value reference": typed(
        ENUM + f'\n{MARK}<type name="t" primitiveType="uint8" presence="constant" valueRef="Side"/>'
    ),
    "E09 value reference of another primitive": typed(
        ENUM + f'\n{MARK}<type name="t" primitiveType="int8" presence="constant" valueRef="Side.Buy"/>'
    ),
    "E09 value reference on a variable": using(
        ENUM, f'{MARK}<field name="f" id="1" type="uint8" valueRef="Side.Buy"/>'
    ),
    "E09 value reference on a required type": typed(
        ENUM + f'\n{MARK}<type name="t" primitiveType="uint8" valueRef="Side.Buy"/>'
    ),
    "E09 constant field of a plain type": message(f'{MARK}<field name="f" id="1" type="uint8" presence="constant"/>'),
    "E10 constant enum without reference": using(
        ENUM, f'{MARK}<field name="f" id="1" type="Side" presence="constant"/>'
    ),
    "E10 constant enum of another enum": using(
        ENUM + OTHER_ENUM, f'{MARK}<field name="f" id="1" type="Side" presence="constant" valueRef="Other.Buy"/>'
    ),
    "E10 constant enum as a member": using('<enum name="e" encodingType="uint8" presence="constant"/>', "").replace(
        "<types>\n<enum", f'<types>\n<composite name="c">\n{MARK}<ref name="r" type="e"/></composite>\n<enum'
    ),
    "E11 minimum": typed(f'{MARK}<type name="t" primitiveType="int8" minValue="x"/>'),
    "E11 maximum": typed(f'{MARK}<type name="t" primitiveType="int8" maxValue="128"/>'),
    "E11 null": typed(f'{MARK}<type name="t" primitiveType="uint16" presence="optional" nullValue="65536"/>'),
    "E11 constant": typed(f'{MARK}<type name="t" primitiveType="int8" presence="constant">200</type>'),
    "E11 text beyond its charset": typed(f'{MARK}<type name="t" primitiveType="char" presence="constant">né</type>'),
    "E11 valid value": typed(f'<enum name="e" encodingType="char">\n{MARK}<validValue name="a">ab</validValue></enum>'),
    "E11 choice": typed(f'<set name="s" encodingType="uint8">\n{MARK}<choice name="a">first</choice></set>'),
    "E11 presence": typed(f'{MARK}<type name="t" primitiveType="int8" presence="maybe"/>'),
    "E12 duplicate member": typed(
        '<composite name="c"><type name="a" primitiveType="int8"/>\n'
        f'{MARK}<type name="a" primitiveType="int8"/></composite>'
    ),
    "E12 offset": typed(
        '<composite name="c"><type name="a" primitiveType="int32"/>\n'
        f'{MARK}<type name="b" primitiveType="int8" offset="3"/></composite>'
    ),
    "E12 explicit offset 0": typed(
        '<composite name="c"><type name="a" primitiveType="int32"/>\n'
        f'{MARK}<type name="b" primitiveType="int8" offset="0"/></composite>'
    ),
    "E12 group inside": typed(f'<composite name="c">\n{MARK}<group name="g" id="1"/></composite>'),
    "E12 data inside": typed(f'<composite name="c">\n{MARK}<data name="d" id="1" type="blob"/></composite>'),
    "E12 too many values": typed(
        '<composite name="c0"><type name="t" primitiveType="int8"/></composite>\n'
        + "\n".join(
            f'<composite name="c{n}"><ref name="a" type="c{n - 1}"/><ref name="b" type="c{n - 1}"/></composite>'
            for n in range(1, 11)
        )
        + f'\n{MARK}<composite name="last"><ref name="a" type="c10"/><ref name="b" type="c10"/></composite>'
    ),
    "E13 float enum": typed(f'{MARK}<enum name="e" encodingType="float"/>'),
    "E13 array enum": typed(
        f'<type name="t" primitiveType="uint8" length="2"/>\n{MARK}<enum name="e" encodingType="t"/>'
    ),
    "E14 no value": typed(f'<enum name="e" encodingType="uint8">\n{MARK}<validValue name="a"/></enum>'),
    "E14 null value": typed(
        f'<enum name="e" encodingType="uint8">\n{MARK}<validValue name="a">255</validValue></enum>'
    ),
    "E14 out of range": typed(
        '<type name="t" primitiveType="uint8" maxValue="3"/><enum name="e" encodingType="t">\n'
        f'{MARK}<validValue name="a">4</validValue></enum>'
    ),
    "E15 signed set": typed(f'{MARK}<set name="s" encodingType="int8"/>'),
    "E15 array set": typed(
        f'<type name="t" primitiveType="uint8" length="2"/>\n{MARK}<set name="s" encodingType="t"/>'
    ),
    "E15 bit": typed(f'<set name="s" encodingType="uint8">\n{MARK}<choice name="a">8</choice></set>'),
    "E15 negative bit": typed(f'<set name="s" encodingType="uint8">\n{MARK}<choice name="a">-1</choice></set>'),
    "E16 field offset": message(
        f'<field name="a" id="1" type="int32"/>\n{MARK}<field name="b" id="2" type="int8" offset="3"/>'
    ),
    "E17 message block length": document(
        messages=f'{MARK}<message name="M" id="1" blockLength="3"><field name="a" id="1" type="int32"/></message>'
    ),
    "E17 group block length": message(
        f'{MARK}<group name="g" id="1" blockLength="3"><field name="a" id="2" type="int32"/></group>'
    ),
    "E18 field after data": message(f'<data name="d" id="1" type="blob"/>\n{MARK}<field name="f" id="2" type="int8"/>'),
    "E18 group after data": message(
        '<data name="d" id="1" type="blob"/>\n'
        f'{MARK}<group name="g" id="2"><field name="f" id="3" type="int8"/></group>'
    ),
    "E18 field after group": message(
        '<group name="g" id="2"><field name="f" id="3" type="int8"/></group>\n'
        f'{MARK}<field name="h" id="4" type="int8"/>'
    ),
    "E19 template id": document(messages=f'<message name="M" id="1"/>\n{MARK}<message name="N" id="1"/>'),
    "E19 message name": document(messages=f'<message name="M" id="1"/>\n{MARK}<message name="M" id="2"/>'),
    "E20 field name": message(f'<field name="f" id="1" type="int8"/>\n{MARK}<field name="f" id="2" type="int8"/>'),
    "E20 name of field and group": message(
        '<field name="f" id="1" type="int8"/>\n'
        f'{MARK}<group name="f" id="2"><field name="f" id="3" type="int8"/></group>'
    ),
    "E20 id of field and data": message(
        f'<field name="f" id="1" type="int8"/>\n{MARK}<data name="d" id="1" type="blob"/>'
    ),
    "E21 not a composite": message(
        f'{MARK}<group name="g" id="1" dimensionType="uint8"><field name="f" id="2" type="int8"/></group>'
    ),
    "E21 no count": dimensions('<type name="blockLength" primitiveType="uint16"/>'),
    "E21 signed block length": dimensions(
        '<type name="blockLength" primitiveType="int16"/><type name="numInGroup" primitiveType="uint8"/>'
    ),
    "E21 signed count of data": dimensions(
        '<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/>'
        '<type name="numVarDataFields" primitiveType="int8"/>'
    ),
    "E21 signed count": dimensions(
        '<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="int16"/>'
    ),
    "E21 wide count": dimensions(
        '<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint32"/>'
    ),
    "E21 minimum above maximum": dimensions(
        '<type name="blockLength" primitiveType="uint16"/>'
        '<type name="numInGroup" primitiveType="uint8" minValue="5" maxValue="4"/>'
    ),
    "E21 maximum above the primitive's": dimensions(
        '<type name="blockLength" primitiveType="uint16"/>'
        '<type name="numInGroup" primitiveType="uint8" maxValue="255"/>'
    ),
    "E22 not a composite": message(f'{MARK}<data name="d" id="1" type="uint8"/>'),
    "E22 no length": data(VARIABLE),
    "E22 no data member": data('<type name="length" primitiveType="uint8"/>'),
    "E22 signed length": data('<type name="length" primitiveType="int16"/>' + VARIABLE),
    "E22 wide length": data('<type name="length" primitiveType="uint32"/>' + VARIABLE),
    "E22 data before its length": data(VARIABLE + '<type name="length" primitiveType="uint16"/>'),
    "E22 optional": data('<type name="length" primitiveType="uint8"/>' + VARIABLE, ' presence="optional"'),
    "E23 since": message(f'{MARK}<field name="f" id="1" type="int8" sinceVersion="3"/>'),
    "E23 deprecated choice": typed(
        f'<set name="s" encodingType="uint8">\n{MARK}<choice name="a" deprecated="3">1</choice></set>'
    ),
    "E24 semantic type": using(
        '<type name="t" primitiveType="int64" semanticType="Price"/>',
        f'{MARK}<field name="f" id="1" type="t" semanticType="Qty"/>',
    ),
    "E25 length": typed(f'{MARK}<type name="t" primitiveType="int8" length="two"/>'),
    "E25 negative offset": message(f'{MARK}<field name="f" id="1" type="int8" offset="-1"/>'),
    "E25 huge length": typed(f'{MARK}<type name="t" primitiveType="int8" length="2147483648"/>'),
    "E25 huge field id": message(f'{MARK}<field name="f" id="2147483648" type="int8"/>'),
    "E25 message id": document(messages=f'{MARK}<message name="M" id="65536"/>'),
    "E26 field without a name": message(f'{MARK}<field id="1" type="int8"/>'),
    "E26 empty name": message(f'{MARK}<field name=" " id="1" type="int8"/>'),
    "E26 field without a type": message(f'{MARK}<field name="f" id="1"/>'),
    "E26 message without an id": document(messages=f'{MARK}<message name="M"/>'),
    "E26 enum without an encoding": typed(f'{MARK}<enum name="e"/>'),
    "E27 array of length 0": message(f'{MARK}<field name="f" id="1" type="t"/>').replace(
        "<types>\n\n", '<types><type name="t" primitiveType="uint8" length="0"/>\n\n'
    ),
    "E27 data composite": message(f'{MARK}<field name="f" id="1" type="blob"/>'),
}


@pytest.mark.parametrize(("rule", "text"), BROKEN.items(), ids=BROKEN.keys())
def test_a_broken_rule_is_reported_with_its_code_and_line(rule, text):
    line = 1 + text[: text.index(MARK)].count("\n")

    with pytest.raises(SchemaError) as caught:
        load_schema(text.encode(), file="a.xml")

    assert (caught.value.code, caught.value.line, caught.value.file) == (rule[:3], line, "a.xml")
    assert caught.value.errors == (caught.value,)


def test_all_errors_of_the_encodings_are_reported_together_and_those_of_messages_later():
    text = document(
        '<type name="a" primitiveType="int7"/>\n<type name="b" primitiveType="int8" minValue="x"/>',
        '<message name="M" id="1"><field name="f" id="1" type="nope"/></message>',
    )

    with pytest.raises(SchemaError) as caught:
        load_schema(text.encode())

    assert [(error.code, error.line) for error in caught.value.errors] == [("E06", 23), ("E11", 24)]
    assert "int7" in str(caught.value)
    assert "minValue" in str(caught.value)


def test_all_errors_of_the_messages_are_reported_together():
    with pytest.raises(SchemaError) as caught:
        load_schema(
            message('<field name="f" id="1" type="a"/>\n<field name="f" id="2" type="int8" offset="x"/>').encode()
        )

    assert [error.code for error in caught.value.errors] == ["E25"]

    with pytest.raises(SchemaError) as caught:
        load_schema(message('<field name="f" id="1" type="a"/>\n<field name="f" id="2" type="int8"/>').encode())

    assert [error.code for error in caught.value.errors] == ["E07", "E20"]
    assert caught.value.errors[0].detail == "field f: there is no encoding called a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document(root='version="0"'), "the schema has no id"),
        (
            header('<type name="blockLength" primitiveType="uint16"/><type name="version" primitiveType="float"/>'),
            "header messageHeader has no integer templateId, schemaId, version",
        ),
    ],
)
def test_what_is_missing_is_told_as_missing(text: str, message: str):
    with pytest.raises(SchemaError) as caught:
        load_schema(text.encode())

    assert [error.detail for error in caught.value.errors] == [message]


def test_an_enum_that_lists_its_null_value_is_accepted_on_request():
    text = typed('<enum name="e" encodingType="uint8"><validValue name="Null">255</validValue></enum>')

    schema = load_schema(text.encode(), accept=["E14"])

    assert [warning.split(": ")[1] for warning in schema.warnings] == ["E14", "W07"]


@pytest.mark.parametrize(
    ("href", "detail"),
    [
        ("../other.xml", "outside"),
        ("%2e%2e/other.xml", "outside"),
        ("/etc/hostname", "outside"),
        ("http://127.0.0.1/x.xml", "outside"),
        ("file:///etc/hostname", "outside"),
        ("missing.xml", "cannot be read"),
        ("main.xml", "includes itself"),
        ("", "must name a whole XML file"),
    ],
)
def test_an_include_that_is_not_a_file_beside_the_schema_is_refused(tmp_path: Path, href: str, detail: str):
    include = f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{href}"/>'
    folder = tmp_path / "schema"
    folder.mkdir()
    (tmp_path / "other.xml").write_text("<types/>")
    (folder / "main.xml").write_text(document(messages=include))

    with pytest.raises(SchemaError, match=detail) as caught:
        load_schema(folder / "main.xml")

    assert (caught.value.code, caught.value.line) == ("E01", 25)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path):
    include = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="link.xml"/>'
    folder = tmp_path / "schema"
    folder.mkdir()
    (tmp_path / "other.xml").write_text("<types/>")
    (folder / "link.xml").symlink_to(tmp_path / "other.xml")
    (folder / "main.xml").write_text(document(messages=include))

    with pytest.raises(SchemaError, match="outside"):
        load_schema(folder / "main.xml")


def test_a_missing_file_is_a_schema_error(tmp_path: Path):
    with pytest.raises(SchemaError, match="cannot be read"):
        load_schema(tmp_path / "nope.xml")


def test_an_error_in_an_included_file_names_that_file_and_its_line(tmp_path: Path):
    include = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="types/more.xml"/>'
    (tmp_path / "types").mkdir()
    (tmp_path / "types" / "more.xml").write_text('<types>\n\n<type name="a" primitiveType="int7"/></types>')
    (tmp_path / "main.xml").write_text(document(messages=include))

    with pytest.raises(SchemaError) as caught:
        load_schema(tmp_path / "main.xml")

    assert (caught.value.code, caught.value.line) == ("E06", 3)
    assert caught.value.file.endswith("types/more.xml")
