"""The official SBE tool reads our reconstruction of Deephaven's schema, and every message of its vectors as we do."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.interop.official import OfficialTool
from tests.support.deephaven.vectors import GOLDEN, Vector, of_kind
from tests.support.sbe.official import in_its_form

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("official")]

BUILTIN = Path(__file__).parents[2] / "connectors" / "deephaven" / "schema.xml"


@pytest.mark.parametrize("file", [BUILTIN, GOLDEN / "other-schema.xml"], ids=lambda file: file.name)
def test_it_reads_the_schemas(official_tool: OfficialTool, file: Path) -> None:
    verdict = official_tool.load(file.read_bytes())

    assert verdict.accepted, verdict.output


@pytest.mark.parametrize("vector", of_kind("message"), ids=lambda vector: vector.name)
def test_it_prints_what_we_decode_of_every_vector(official_tool: OfficialTool, vector: Vector) -> None:
    xml = BUILTIN.read_bytes()
    assert official_tool.load(xml).accepted
    decoded = decode(load_schema(xml), vector.body)

    printed = official_tool.decode(vector.body)

    assert printed.values == in_its_form(decoded)
    assert printed.consumed == vector.expect["consumed"] == decoded.consumed
