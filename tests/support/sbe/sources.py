"""Messages of various kinds of schemas, and ways to damage them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis.strategies as st

from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import HEADER, message_of

Damage: TypeAlias = tuple[int, list[tuple[int, int]], int | None, bytes]

GOLDEN = Path(__file__).parents[2] / "golden" / "sbe"
COUNTS = '<type name="numGroups" primitiveType="uint16"/><type name="numVarDataFields" primitiveType="uint16"/>'
COUNTED_HEADER = HEADER.replace("</composite>", COUNTS + "</composite>", 2).partition('<composite name="text">')[0]
EVOLVED = (
    '<field name="a" id="1" type="uint16"/><field name="b" id="2" type="double" sinceVersion="1" presence="optional"/>'
    '<group name="g" id="10"><field name="x" id="11" type="uint8"/>'
    '<field name="y" id="12" type="pair" sinceVersion="1"/>'
    '<group name="n" id="15" sinceVersion="2"><field name="z" id="16" type="int8" sinceVersion="2"/>'
    '<data name="k" id="17" type="blob" sinceVersion="2"/></group></group>'
    '<group name="h" id="20" sinceVersion="2"><data name="e" id="21" type="blob" sinceVersion="2"/></group>'
    '<data name="d" id="30" type="blob"/><data name="f" id="31" type="blob" sinceVersion="2"/>'
)
PAIR = (
    '<composite name="pair"><type name="p" primitiveType="uint8" presence="optional"/>'
    '<type name="q" primitiveType="char" sinceVersion="2"/></composite>'
)
VALUES: dict[str, Any] = {
    "a": 1,
    "b": 0.5,
    "g": [
        {"x": 1, "y": {"p": None, "q": "Q"}, "n": [{"z": 1, "k": b"k"}, {"z": 2, "k": b""}]},
        {"x": 2, "y": {"p": 3, "q": "R"}, "n": []},
        {"x": 3, "y": {"p": 4, "q": "S"}, "n": [{"z": 3, "k": b"kk"}]},
    ],
    "h": [{"e": b"\1\2"}, {"e": b""}],
    "d": b"ddd",
    "f": b"",
}
EMPTY: dict[str, Any] = VALUES | {"g": [], "h": []}


def of_every_version(header: str) -> tuple[Schema, list[bytes]]:
    """Return a schema of version 2, with messages of all its versions."""
    schema = message_of(EVOLVED, PAIR, version=2, header=header)
    versions = [encode(schema, "M", values, version=version) for values in (VALUES, EMPTY) for version in (0, 1, 2)]
    return schema, versions


def golden(name: str) -> tuple[Schema, list[bytes]]:
    """Return a golden schema with its messages."""
    cases = json.loads((GOLDEN / "messages.json").read_text(encoding="utf-8"))
    return load_schema(GOLDEN / name), [bytes.fromhex(case["hex"]) for case in cases if case["schema"] == name]


SOURCES = {
    "every feature": golden("sample.xml"),
    "big-endian": golden("sample-big-endian.xml"),
    "several templates": golden("standard.xml"),
    "versions": of_every_version(HEADER),
    "counted versions": of_every_version(COUNTED_HEADER),
}
octets = st.sampled_from([0, 1, 2, 3, 127, 128, 254, 255]) | st.integers(0, 255)
changes = st.lists(st.tuples(st.integers(0, 200), octets), max_size=3)
damages = st.tuples(st.integers(0, 9), changes, st.integers(0, 200) | st.none(), st.binary(max_size=2))


def damaged(bodies: list[bytes], damage: Damage) -> bytes:
    """Return one of the messages with bytes changed after its header, truncated, or with bytes appended."""
    which, wrong, end, behind = damage
    body = bytearray(bodies[which % len(bodies)])
    for place, octet in wrong:
        body[place % len(body)] = octet
    return bytes(body[:end]) + behind
