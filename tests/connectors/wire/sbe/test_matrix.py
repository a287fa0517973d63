"""One message through four versions of its schema: what each reads of each, and how the newest writes as each.

Up to version 2 every reader understands every writer. Version 3 put a group before data, which older readers of
messages without counts misread: no error tells, only the bytes that are left.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema

EVOLUTION = Path(__file__).parents[3] / "golden" / "sbe" / "evolution"
ORDER = json.loads((EVOLUTION / "order.json").read_text("utf-8"))
MESSAGES = [bytes.fromhex(text) for text in ORDER["messages"]]
SCHEMAS = [load_schema(EVOLUTION / f"order-v{version}.xml") for version in range(4)]
KNOWN = [cell["fields"] for cell in ORDER["reads"] if cell["reader"] == cell["writer"]]


def named(cell: dict[str, Any]) -> str:
    return f"v{cell['reader']} reads v{cell['writer']}"


@pytest.mark.parametrize("cell", ORDER["reads"], ids=named)
def test_each_version_reads_each_as_far_as_it_can(cell):
    decoded = decode(SCHEMAS[cell["reader"]], MESSAGES[cell["writer"]])

    assert decoded.values == cell["fields"]
    assert list(decoded.values) == list(cell["fields"])
    assert decoded.header.version == cell["writer"]
    assert decoded.consumed == cell["length"]
    assert decoded.warnings == ()


@pytest.mark.parametrize(("writer", "version"), [(writer, older) for writer in range(4) for older in range(writer + 1)])
def test_a_newer_schema_writes_what_an_older_one_would_have(writer: int, version: int):
    assert encode(SCHEMAS[writer], "Order", KNOWN[writer], version=version) == MESSAGES[version]


@pytest.mark.parametrize("version", range(4))
def test_values_that_an_older_version_lacks_need_not_be_there_to_write_it(version: int):
    assert encode(SCHEMAS[3], "Order", KNOWN[version], version=version) == MESSAGES[version]
