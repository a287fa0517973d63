"""The official SBE tool printed these messages; we see the same in them. Files, so that the tests need no Java."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.official import ARTIFACT, in_its_form

GOLDEN = Path(__file__).parents[3] / "golden" / "sbe"
PRINTED = json.loads((GOLDEN / "oracle" / "cases.json").read_text("utf-8"))


@cache
def schema(name: str) -> Schema:
    return load_schema(GOLDEN / name)


@pytest.mark.parametrize("case", PRINTED["cases"], ids=lambda case: case["name"])
def test_the_official_tool_sees_the_same_in_a_message(case: dict[str, Any]):
    decoded = decode(schema(case["schema"]), bytes.fromhex(case["hex"]))

    assert in_its_form(decoded) == case["values"]
    assert decoded.consumed == case["consumed"]


def test_the_files_were_printed_by_the_version_that_is_asked_live():
    pom = (Path(__file__).parents[3] / "interop" / "pom.xml").read_text("utf-8")
    group, artifact, version = ARTIFACT.split(":")

    assert PRINTED["tool"] == ARTIFACT
    assert f"<groupId>{group}</groupId>" in pom
    assert f"<artifactId>{artifact}</artifactId>\n      <version>{version}</version>" in pom
