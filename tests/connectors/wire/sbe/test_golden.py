"""Messages in files, each decoded, encoded again, cut short, and followed by further bytes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from silverfold.conf.errors import UnknownTemplate, WireError
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import from_json_form, json_form

GOLDEN = Path(__file__).parents[3] / "golden"
SBE = GOLDEN / "sbe"
DEEPHAVEN_SCHEMA = Path(__file__).parents[4] / "connectors" / "deephaven" / "schema.xml"

MESSAGES = [case for file in ("messages", "values") for case in json.loads((SBE / f"{file}.json").read_text("utf-8"))]
DEEPHAVEN = json.loads((GOLDEN / "deephaven" / "vectors.json").read_text("utf-8"))
DEEPHAVEN_MESSAGES = [case for case in DEEPHAVEN if case["expect"]["kind"] == "message"]
NOT_REWRITTEN = {"int-column-newer-sender", "trailing-bytes-same-version"}
NOT_OF_SBE = {"range-count", "range-order", "simple-bool", "frame-too-large"}
DEEPHAVEN_ERRORS = [
    case for case in DEEPHAVEN if case["expect"]["kind"] == "error" and case["expect"]["reason"] not in NOT_OF_SBE
]


@cache
def schema(path: Path) -> Schema:
    return load_schema(path)


def named(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", MESSAGES, ids=named)
def test_a_golden_message_is_decoded_whole(case):
    decoded = decode(schema(SBE / case["schema"]), bytes.fromhex(case["hex"]))

    assert json_form(decoded.values) == case["fields"]
    assert decoded.message.name == case["template"]
    assert decoded.header.template_id == case["template_id"]
    assert decoded.header.schema_id == case["schema_id"]
    assert decoded.header.version == case["version"]
    assert decoded.consumed == case["length"]
    assert decoded.warnings == ()


@pytest.mark.parametrize("case", MESSAGES, ids=named)
def test_a_golden_message_is_encoded_to_its_bytes(case):
    written = encode(schema(SBE / case["schema"]), case["template"], from_json_form(case["fields"]))

    assert written.hex() == case["hex"]


@pytest.mark.parametrize("case", MESSAGES, ids=named)
def test_no_part_of_a_golden_message_can_be_missing_at_its_end(case):
    body = bytes.fromhex(case["hex"])

    for end in range(len(body)):
        with pytest.raises(WireError):
            decode(schema(SBE / case["schema"]), body[:end])


@pytest.mark.parametrize("case", MESSAGES, ids=named)
def test_bytes_behind_a_golden_message_change_nothing_but_the_warnings(case):
    decoded = decode(schema(SBE / case["schema"]), bytes.fromhex(case["hex"]) + b"\x00\xff\x01")

    assert json_form(decoded.values) == case["fields"]
    assert decoded.consumed == case["length"]
    assert [finding.reason for finding in decoded.warnings] == ["trailing-bytes"]


@pytest.mark.parametrize("case", DEEPHAVEN_MESSAGES, ids=named)
def test_a_deephaven_message_is_decoded_by_the_shipped_schema(case):
    expect = case["expect"]

    decoded = decode(schema(DEEPHAVEN_SCHEMA), bytes.fromhex(case["hex"])[4:])

    assert json_form(decoded.values) == expect["decoded"]
    assert decoded.message.name == expect["message"]
    assert decoded.consumed == expect["consumed"]
    assert [finding.reason for finding in decoded.warnings] == expect.get("warnings", [])
    assert decoded.header[:4] == tuple(expect["header"].values())


@pytest.mark.parametrize("case", [case for case in DEEPHAVEN_MESSAGES if case["name"] not in NOT_REWRITTEN], ids=named)
def test_a_deephaven_message_is_encoded_to_its_bytes(case):
    expect = case["expect"]

    written = encode(schema(DEEPHAVEN_SCHEMA), expect["message"], from_json_form(expect["decoded"]), tolerant=True)

    assert written.hex() == case["hex"][8:]


@pytest.mark.parametrize("case", DEEPHAVEN_ERRORS, ids=named)
def test_a_broken_deephaven_message_names_what_is_wrong(case):
    with pytest.raises(WireError) as caught:
        decode(schema(DEEPHAVEN_SCHEMA), bytes.fromhex(case["hex"])[4:])

    assert type(caught.value).__name__ == case["expect"]["error"]
    assert caught.value.reason == case["expect"]["reason"]
    assert caught.value.offset is not None


def test_an_unknown_template_tells_its_number():
    with pytest.raises(UnknownTemplate, match="999"):
        decode(schema(DEEPHAVEN_SCHEMA), bytes.fromhex("0400e7030100010007000000"))


def test_the_shipped_deephaven_schema_says_that_it_is_a_reconstruction():
    assert "Reconstruction" in (schema(DEEPHAVEN_SCHEMA).description or "")
