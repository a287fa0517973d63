"""The official SBE tool reads the same schemas and messages, and sees the same in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.connectors.wire.sbe.test_schema_errors import BROKEN, document
from tests.interop.official import OfficialTool
from tests.support.sbe.drawing import Kind
from tests.support.sbe.messages import messages
from tests.support.sbe.official import REFUSED_BY_IT, TAKEN_BY_IT, in_its_form, lacks_a_group
from tests.support.sbe.schemas import schemas
from tests.support.sbe.versions import cut_down

GOLDEN = Path(__file__).parents[1] / "golden" / "sbe"
CASES = json.loads((GOLDEN / "oracle" / "cases.json").read_text("utf-8"))["cases"]

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("official")]
one_process = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a failure takes minutes of another process
)


@one_process
@given(xml=schemas(Kind(portable=True)), tolerant=st.booleans(), data=st.data())
def test_it_accepts_a_drawn_schema_and_prints_our_values(
    official_tool: OfficialTool, xml: bytes, tolerant: bool, data: st.DataObject
):
    schema = load_schema(xml)
    name, values = data.draw(messages(schema, tolerant=tolerant))
    version = data.draw(st.integers(schema.messages[name].since_version, schema.version))
    assume(schema.header.roles["version"].constant in {None, version})
    assume(not lacks_a_group(schema.messages[name], version))
    body = encode(schema, name, values, version=version, tolerant=tolerant)

    verdict = official_tool.load(xml)
    assert verdict.accepted, verdict.output
    printed = official_tool.decode(body)

    assert in_its_form(decode(schema, body)) == printed.values
    assert printed.consumed == len(body)


@one_process
@given(xml=schemas(Kind(portable=True, evolving=True)), data=st.data())
def test_it_prints_our_values_of_a_message_that_is_newer_than_the_schema(
    official_tool: OfficialTool, xml: bytes, data: st.DataObject
):
    newer = load_schema(xml)
    assume("numGroups" not in newer.header.roles)  # it does not skip what the counts announce
    name, values = data.draw(messages(newer))
    older_xml = cut_down(xml, data.draw(st.integers(newer.messages[name].since_version, newer.version)))
    older = load_schema(older_xml)
    body = encode(newer, name, values)

    verdict = official_tool.load(older_xml)
    assert verdict.accepted, verdict.output
    printed = official_tool.decode(body)

    decoded = decode(older, body)
    assert in_its_form(decoded) == printed.values
    assert printed.consumed == decoded.consumed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_still_prints_what_the_golden_files_say(official_tool: OfficialTool, case: dict[str, Any]):
    assert official_tool.load((GOLDEN / case["schema"]).read_bytes()).accepted

    printed = official_tool.decode(bytes.fromhex(case["hex"]))

    assert printed == (case["values"], case["consumed"])


@pytest.mark.parametrize(("rule", "text"), BROKEN.items(), ids=BROKEN.keys())
def test_it_refuses_what_we_refuse_but_for_what_is_listed(official_tool: OfficialTool, rule: str, text: str):
    verdict = official_tool.load(packaged(text))

    assert verdict.accepted == (rule in TAKEN_BY_IT), verdict.output


NARROWER = {
    "no package": document(),
    "enum of a wide integer": document(
        '<enum name="e" encodingType="int64"><validValue name="a">1</validValue></enum>'
    ),
    "data member of another name": document(
        '<composite name="raw"><type name="length" primitiveType="uint8"/>'
        '<type name="data" primitiveType="uint8" length="0"/></composite>',
        '<message name="M" id="1"><data name="d" id="1" type="raw"/></message>',
    ),
    "wide block length": document(
        '<composite name="dims"><type name="blockLength" primitiveType="uint32"/>'
        '<type name="numInGroup" primitiveType="uint8"/></composite>',
        '<message name="M" id="1"><group name="g" id="1" dimensionType="dims"/></message>',
    ),
}


@pytest.mark.parametrize("difference", REFUSED_BY_IT)
def test_it_refuses_some_that_the_standard_allows(official_tool: OfficialTool, difference: str):
    text = NARROWER[difference]
    load_schema(text.encode())

    verdict = official_tool.load(text.encode() if difference == "no package" else packaged(text))

    assert not verdict.accepted


def packaged(text: str) -> bytes:
    """Return the schema with a package on its root."""
    return text.replace("messageSchema ", 'messageSchema package="p" ', 1).encode()
