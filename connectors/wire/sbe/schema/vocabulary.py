"""Vocabulary of schema elements: attributes, children, and the checks that need no other element.

The tables are those of SBE 1.0, chapter 4, with the additions of common tools (presence of enums and composites).
`check_vocabulary` covers E23, E25, E26, W02, W11 and W13 for a whole document; later steps rely on valid attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from silverfold.connectors.wire.sbe.schema.document import Element
from silverfold.connectors.wire.sbe.schema.primitives import integer
from silverfold.connectors.wire.sbe.schema.report import Report, is_symbol


class _Form(NamedTuple):
    required: frozenset[str]
    optional: frozenset[str]
    children: frozenset[str]


def _form(required: str, optional: str, children: str = "") -> _Form:
    return _Form(frozenset(required.split()), frozenset(optional.split()), frozenset(children.split()))


_COMMON = "description sinceVersion deprecated"
_BODY = "field group data"
_FORMS = {
    "messageSchema": _form(
        "id",
        "package version semanticVersion description byteOrder headerType",
        "types message",
    ),
    "types": _form("", "package", "type composite enum set types"),
    "type": _form(
        "name primitiveType",
        "length presence nullValue minValue maxValue characterEncoding offset valueRef semanticType " + _COMMON,
    ),
    "composite": _form("name", "offset presence semanticType " + _COMMON, "type enum set composite ref"),
    "enum": _form("name encodingType", "presence nullValue offset semanticType " + _COMMON, "validValue"),
    "set": _form("name encodingType", "offset semanticType " + _COMMON, "choice"),
    "ref": _form("name type", "offset " + _COMMON),
    "validValue": _form("name", _COMMON),
    "choice": _form("name", _COMMON),
    "message": _form("name id", "blockLength semanticType " + _COMMON, _BODY),
    "field": _form("name id type", "offset presence valueRef epoch timeUnit semanticType " + _COMMON),
    "group": _form("name id", "dimensionType blockLength semanticType " + _COMMON, _BODY),
    "data": _form("name id type", "presence semanticType " + _COMMON),
}
_NUMERIC = frozenset(["id", "version", "length", "offset", "sinceVersion", "deprecated", "blockLength"])
_NOT_IN_COMPOSITE = frozenset({"field", "group", "data"})
_UINT16 = 65535
_LARGEST = 2147483647
"""Limit of sizes and offsets: no larger message fits in memory. Also of ids: the limit of the reference tool."""
_LIMITED = frozenset({"id", "length", "offset", "blockLength"})


def check_vocabulary(root: Element, version: int, report: Report) -> None:
    """Report every attribute and element that is missing, unknown or malformed."""
    for element in _known(root, report):
        _check_attributes(element, _FORMS[element.tag], report)
        for name in element.foreign:
            if root.namespace and name.startswith(f"{{{root.namespace}}}"):
                where = f"attribute {name.rpartition('}')[2]} on {element.tag} {element.name}"
                report.warn("W13", element, f"{where} has the schema's own prefix and is ignored: write it without one")
        if element is not root:
            _check_versions(element, version, report)


def _known(element: Element, report: Report) -> Iterator[Element]:
    yield element
    for child in element.children:
        if child.tag in _FORMS[element.tag].children:
            yield from _known(child, report)
        elif element.tag == "composite" and child.tag in _NOT_IN_COMPOSITE:
            report.error("E12", child, f"{child.tag} {child.name} is not allowed in composite {element.name}")
        elif child.namespace in {"", element.namespace}:
            report.warn("W13", child, f"element {child.tag} is not known in {element.tag} and is ignored")


def _check_attributes(element: Element, form: _Form, report: Report) -> None:
    for name in sorted(form.required):
        if not element.get(name) and not (element.tag == "messageSchema" and name == "id"):
            report.error("E26", element, f"{element.tag} {element.name} lacks {name}".replace("  ", " "))
    for name in element.attributes:
        if name not in form.required | form.optional:
            report.warn("W13", element, f"attribute {name} is not known on {element.tag} and is ignored")
        elif name in _NUMERIC:
            _check_number(element, name, report)
    if element.name and not is_symbol(element.name):
        report.warn("W02", element, f"name {element.name!r} is not of the symbolic form")


def _check_number(element: Element, name: str, report: Report) -> None:
    number = integer(element.get(name) or "")
    if number is None or number < 0:
        report.error("E25", element, f"{name} {element.get(name)!r} of {element.tag} is not a number from 0")
    elif name in _LIMITED and number > _LARGEST:
        report.error("E25", element, f"{name} {number} of {element.tag} is above {_LARGEST}")
    elif element.tag == "message" and name == "id" and number > _UINT16:
        report.error("E25", element, f"message id {number} is above {_UINT16}")


def _check_versions(element: Element, version: int, report: Report) -> None:
    since, deprecated = report.number(element, "sinceVersion"), report.given(element, "deprecated")
    for name, number in (("sinceVersion", since), ("deprecated", deprecated or 0)):
        if number > version:
            detail = f"{name} {number} of {element.tag} {element.name} is above the schema's version {version}"
            report.error("E23", element, detail)
    if deprecated is not None and deprecated < since:
        report.warn("W11", element, f"{element.tag} {element.name} is deprecated before it exists")
