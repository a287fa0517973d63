"""Loads an SBE schema: XML → elements with lines → resolved layout tree.

Mistakes in the encodings are reported together; if there are none, those in the messages. The codes are those of
`connectors.wire.sbe.schema.report`; the rules of SBE 1.0 are relaxed where published schemas need it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from silverfold.connectors.wire.sbe.schema.builtin_composites import resolve_data, resolve_dimensions, resolve_header
from silverfold.connectors.wire.sbe.schema.composites import is_variable
from silverfold.connectors.wire.sbe.schema.document import Element, read_document
from silverfold.connectors.wire.sbe.schema.encodings import Encodings
from silverfold.connectors.wire.sbe.schema.messages import Messages
from silverfold.connectors.wire.sbe.schema.model import ByteOrder, Data, Encoding, Message, Primitive, Schema, Structure
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from silverfold.connectors.wire.sbe.schema.report import Report
from silverfold.connectors.wire.sbe.schema.vocabulary import check_vocabulary

_ORDERS: dict[str, ByteOrder] = {"littleEndian": "<", "bigEndian": ">"}
_DEFINITIONS = frozenset({"type", "composite", "enum", "set"})
ACCEPTABLE = frozenset({"E14", "E24"})
"""Codes of errors that can be reported as warnings."""
_STRICT = frozenset({"W01"})
_UINT16 = 65535


def load_schema(
    source: Path | bytes | Element, *, file: str = "", accept: Collection[str] = (), strict: bool = False
) -> Schema:
    """Return the schema with all names resolved; its ``warnings`` list what is odd but works.

    Args:
        source: The XML file, its contents, or the result of `read_document`. Contents cannot include other files.
        file: File name in errors and warnings; by default the path. A parsed document already has its name.
        accept: Codes of errors to report as warnings. ``E14`` is for schemas whose enums list their null value (it
            then reads as null), ``E24`` for contradicting semantic types. All others stay errors.
        strict: A name that is defined twice (W01), which the standard calls invalid, is an error.

    Raises:
        SchemaError: One or more rules are broken; ``errors`` has all of them, each with its code and line, and
            ``warnings`` the warnings up to there.
    """
    report = Report(accept=ACCEPTABLE.intersection(accept), refuse=_STRICT if strict else frozenset())
    root = source if isinstance(source, Element) else read_document(source, file=file)
    version = _check_root(root, report)
    report.stop()
    check_vocabulary(root, version, report)
    encodings = Encodings(_definitions(root), report)
    named = encodings.all()
    header = _header(root, encodings, version, report)
    report.stop()
    assert header is not None
    resolver = Messages(encodings, header)
    messages = resolver.all([child for child in root.children if child.tag == "message"])
    report.stop()
    if not messages:
        report.warn("W07", root, "the schema has no messages")
    return _schema(root, report, header=header, messages=messages, named=named)


def with_byte_order(schema: Schema, byte_order: ByteOrder) -> Schema:
    """Return the same schema with another byte order; offsets and names do not change."""
    return replace(schema, byte_order=byte_order)


def _schema(
    root: Element, report: Report, *, header: Structure, messages: list[Message], named: Mapping[str, Encoding]
) -> Schema:
    dimensions = named.get("groupSizeEncoding")
    return Schema(
        file=root.file,
        package=root.get("package") or "",
        id=report.number(root, "id"),
        version=report.number(root, "version"),
        byte_order=_ORDERS[root.get("byteOrder") or "littleEndian"],
        header=header,
        messages={message.name: message for message in messages},
        templates={message.id: message for message in messages},
        encodings=named,
        warnings=tuple(report.warnings),
        description=root.get("description"),
        semantic_version=root.get("semanticVersion"),
        default_dimensions=None if dimensions is None else resolve_dimensions(dimensions, root, Report()),
        data_types=tuple(_data_types(named, root)),
    )


def _data_types(named: Mapping[str, Encoding], root: Element) -> Iterator[Data]:
    for encoding in named.values():
        if is_variable(encoding) and (data := resolve_data(encoding, root, Report())):
            yield data


def _check_root(root: Element, report: Report) -> int:
    """Check the attributes of the root element; return the schema's version."""
    if root.tag != "messageSchema":
        report.error("E01", root, f"the root is {root.tag}, not messageSchema")
        return 0
    number = report.given(root, "id")
    if root.get("id") is None:
        report.error("E02", root, "the schema has no id")
    elif number is None or number > _UINT16:
        report.error("E02", root, f"id {root.get('id')!r} of the schema is not a number from 0 to {_UINT16}")
    if root.get("version") is None:
        report.warn("W12", root, "the schema has no version; 0 is assumed")
    elif report.given(root, "version") is None:
        report.error("E02", root, f"version {root.get('version')!r} of the schema is not a number from 0")
    order = root.get("byteOrder")
    if order is not None and order not in _ORDERS:
        report.error("E03", root, f"byteOrder {order!r} is neither {' nor '.join(_ORDERS)}")
    return report.number(root, "version")


def _definitions(element: Element) -> Iterator[Element]:
    """Yield the definitions of all ``types`` elements, nested ``types`` in document order."""
    for child in element.children:
        if child.tag == "types":
            yield from _definitions(child)
        elif element.tag == "types" and child.tag in _DEFINITIONS:
            yield child


def _header(root: Element, encodings: Encodings, version: int, report: Report) -> Structure | None:
    name = root.get("headerType") or "messageHeader"
    if encodings.definition(name) is None:
        report.error("E04", root, f"headerType {name} is not defined")
        return None
    encoding = encodings.named(name, root)
    header = None if encoding is None else resolve_header(encoding, root, report)
    if header is not None and (role := header.roles["version"]).constant is None:
        highest = TRAITS[Primitive(role.primitive)].highest
        if version > highest:
            report.error("E02", root, f"version {version} does not fit the header's {role.primitive}")
    return header
