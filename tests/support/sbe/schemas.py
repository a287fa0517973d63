"""A strategy that draws complete SBE schemas as XML, with every feature of the format."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from tests.support.sbe.bodies import Layout, dimensions, header, length, message
from tests.support.sbe.drawing import Kind, Pen
from tests.support.sbe.types import definition

_NAMESPACES = (
    ("sbe:", 'xmlns:sbe="http://fixprotocol.io/2016/sbe"'),
    ("", ""),
    ("ns2:", 'xmlns:ns2="http://www.fixprotocol.org/ns/simple/1.0"'),
    ("", 'xmlns="http://fixprotocol.io/2016/sbe"'),
)


@st.composite
def schemas(draw: st.DrawFn, kind: Kind = Kind()) -> bytes:  # noqa: B008 (a named tuple, nobody can change it)
    """Draw a schema's XML: valid by the rules of SBE 1.0, but with oddities that cause warnings."""
    pen = Pen(draw, kind, version=draw(st.integers(0, 4)))
    counted = pen.chance(30)
    schema_id = pen.number(0, 255)
    header_type = pen.pick(["messageHeader", "messageHeader", "frameHeader"])
    definitions = [header(pen, header_type, schema_id, counted=counted)]
    layout = _layout(pen, definitions, counted=counted)
    definitions += [definition(pen) for _ in range(pen.number(0, 6))]
    prefix, namespace = pen.pick(_NAMESPACES)
    messages = [message(pen, layout, number + 1, f"{prefix}message") for number in range(pen.number(1, 2))]
    root = _root(pen, schema_id, header_type)
    parts = [*_types(pen, definitions), *messages]
    if pen.chance(15):
        parts = pen.shuffled(parts)
    text = "\n".join(parts)
    opening = f"<{prefix}messageSchema {namespace} {root}>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{opening}\n{text}\n</{prefix}messageSchema>\n'.encode()


def _layout(pen: Pen, definitions: list[str], *, counted: bool) -> Layout:
    """Draw the composites for groups and data; readers of old versions can skip only the layouts they know."""
    uniform = counted and pen.kind.evolving
    dimension_types = ["groupSizeEncoding", *([] if uniform else ["groupSize2", "groupSize3"])]
    lengths = ["varData1", *([] if uniform else ["varData2", "varData3"])]
    dimension_types = dimension_types[: pen.number(1, len(dimension_types))]
    lengths = lengths[: pen.number(1, len(lengths))]
    definitions += [dimensions(pen, name, counted=counted) for name in dimension_types]
    definitions += [length(pen, name) for name in lengths]
    return Layout(tuple(dimension_types), tuple(lengths), counted)


def _root(pen: Pen, schema_id: int, header_type: str) -> str:
    attributes: dict[str, Any] = {"package": "drawn", "id": schema_id, "version": pen.version}
    if header_type != "messageHeader" or pen.chance(10):
        attributes["headerType"] = header_type
    if pen.chance(60):
        attributes["byteOrder"] = pen.pick(["bigEndian", "littleEndian"])
    if not pen.kind.portable and pen.chance(20):
        del attributes["package"]
    if pen.chance(10):
        attributes |= {"semanticVersion": "5.2", "description": "drawn by a test"}
    return " ".join(f'{name}="{value}"' for name, value in attributes.items())


def _types(pen: Pen, definitions: list[str]) -> list[str]:
    """Spread the definitions over one or more ``types`` elements, sometimes reordered."""
    if pen.chance(30):
        definitions = pen.shuffled(definitions)
    cut = pen.number(0, len(definitions))
    blocks = [definitions[:cut], definitions[cut:]] if cut else [definitions]
    return ["<types>\n" + "\n".join(block) + "\n</types>" for block in blocks]
