"""Resolves encodings of one value or a list of values: types, enums and sets (SBE 1.0, chapter 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from silverfold.connectors.wire.sbe.schema.document import Element
from silverfold.connectors.wire.sbe.schema.model import Array, Enum, Presence, Primitive, Remarks, Scalar, Set
from silverfold.connectors.wire.sbe.schema.primitives import INTEGERS, TRAITS, UNSIGNED, integer, raw_value
from silverfold.connectors.wire.sbe.schema.report import Report
from silverfold.connectors.wire.sbe.schema.text import DEFAULT_CHARSET, codec

if TYPE_CHECKING:  # circular: a type may refer to an enum by name
    from silverfold.connectors.wire.sbe.schema.encodings import Encodings

_PRESENCES = {presence.value: presence for presence in Presence}


def primitive_scalar(primitive: Primitive, *, name: str = "") -> Scalar:
    """Return a required scalar with the primitive's own limits."""
    traits = TRAITS[primitive]
    return Scalar(name or primitive.value, primitive, traits.size, traits.null, traits.minimum, traits.maximum)


def remarks_of(element: Element, report: Report) -> Remarks:
    """Return the documentation attributes of a definition."""
    deprecated = report.given(element, "deprecated")
    return Remarks(element.get("description"), element.get("semanticType"), deprecated)


def presence_of(element: Element, report: Report) -> Presence | None:
    """Return the presence an element declares; None if it declares none."""
    text = element.get("presence")
    if text is not None and text not in _PRESENCES:
        report.error("E11", element, f"presence {text!r} of {element.name} is not one of {', '.join(_PRESENCES)}")
    return _PRESENCES.get(text or "")


def resolve_type(element: Element, encodings: Encodings) -> Scalar | Array | None:
    """Return the layout of a ``type`` element: a scalar, or an array if its length is not 1."""
    report = encodings.report
    primitive = _primitive(element, report)
    if primitive is None:
        return None
    presence = presence_of(element, report) or Presence.REQUIRED
    if presence is Presence.CONSTANT:
        return _constant_type(element, primitive, encodings)
    if element.get("valueRef") is not None:
        report.error("E09", element, f"{element.name} has a valueRef but is not constant")
    scalar = _scalar(element, primitive, presence, report)
    length = report.number(element, "length", 1)
    return scalar if length == 1 else _array(scalar, length)


def _primitive(element: Element, report: Report) -> Primitive | None:
    text = element.get("primitiveType") or ""
    if text in TRAITS:
        return Primitive(text)
    if text:
        report.error("E06", element, f"{element.name}: there is no primitive type {text!r}")
    return None


def _array(scalar: Scalar, length: int, constant: str | None = None) -> Array:
    return Array(
        name=scalar.name,
        element=scalar,
        count=length,
        size=length * scalar.size,
        presence=scalar.presence,
        constant=constant,
        charset=scalar.charset,
        since_version=scalar.since_version,
        remarks=scalar.remarks,
    )


def _scalar(
    element: Element, primitive: Primitive, presence: Presence, report: Report, constant: float | str | None = None
) -> Scalar:
    traits = TRAITS[primitive]
    null = _limit(element, "nullValue", primitive, report)
    lowest, highest = _limit(element, "minValue", primitive, report), _limit(element, "maxValue", primitive, report)
    scalar = Scalar(
        name=element.name,
        primitive=primitive,
        size=traits.size,
        null=traits.null if null is None else null,
        minimum=traits.minimum if lowest is None else lowest,
        maximum=traits.maximum if highest is None else highest,
        null_declared=null is not None,
        max_declared=highest is not None,
        presence=presence,
        constant=constant,
        charset=element.get("characterEncoding"),
        since_version=report.number(element, "sinceVersion"),
        remarks=remarks_of(element, report),
    )
    if scalar.charset and codec(scalar.charset) is None:
        report.warn("W17", element, f"characterEncoding {scalar.charset} of {element.name} is not known")
    if null is not None and presence is not Presence.OPTIONAL:
        report.warn("W03", element, f"{element.name} declares a null value but is not optional")
    if presence is Presence.OPTIONAL and scalar.minimum <= scalar.null <= scalar.maximum:
        report.warn("W16", element, f"the null value {scalar.null} of {element.name} is inside its range")
    return scalar


def _limit(element: Element, name: str, primitive: Primitive, report: Report) -> int | float | None:
    given = element.attributes.get(name)
    if given is None:
        return None
    is_character = primitive is Primitive.CHAR and len(given) == 1  # a space may be one
    value = raw_value(given if is_character else given.strip(), primitive)
    if value is None:
        report.error("E11", element, f"{name} {given!r} of {element.name} is not a value of {primitive}")
    return value


def _constant_type(element: Element, primitive: Primitive, encodings: Encodings) -> Scalar | Array | None:
    report = encodings.report
    if element.get("valueRef") is not None:
        return _referring_type(element, primitive, encodings)
    length = report.given(element, "length")
    if not element.text:
        report.error("E09", element, f"constant {element.name} has no value")
        return None
    if primitive is Primitive.CHAR:
        return _constant_text(element, length, report)
    if length not in {None, 1}:
        report.error("E09", element, f"constant {element.name} is an array of numbers, which has no text form")
        return None
    value = raw_value(element.text, primitive)
    if value is None:
        report.error("E11", element, f"constant {element.text!r} of {element.name} is not a value of {primitive}")
        return None
    return _scalar(element, primitive, Presence.CONSTANT, report, value)


def _referring_type(element: Element, primitive: Primitive, encodings: Encodings) -> Scalar | None:
    constant = encodings.constant(element)
    if constant is None:
        return None
    if constant.enum.encoding.primitive is not primitive:
        detail = f"valueRef of {element.name} is a {constant.enum.encoding.primitive}, not a {primitive}"
        encodings.report.error("E09", element, detail)
        return None
    return _scalar(element, primitive, Presence.CONSTANT, encodings.report, constant.value)


def _constant_text(element: Element, length: int | None, report: Report) -> Scalar | Array | None:
    text, charset = element.text, element.get("characterEncoding") or DEFAULT_CHARSET
    try:
        size = len(text.encode(codec(charset) or "utf-8"))
    except UnicodeError:
        report.error("E11", element, f"constant {text!r} of {element.name} cannot be written in {charset}")
        return None
    if length is not None and size > length:
        report.error("E09", element, f"constant {text!r} of {element.name} is longer than {length}")
        return None
    if (length or size) == 1:
        return _scalar(element, Primitive.CHAR, Presence.CONSTANT, report, text)
    scalar = _scalar(element, Primitive.CHAR, Presence.CONSTANT, report)
    return _array(scalar, length or size, text)


def resolve_enum(element: Element, encodings: Encodings) -> Enum | None:
    """Return the layout of an ``enum`` element."""
    report = encodings.report
    encoding = encodings.encoding_type(element, INTEGERS | {Primitive.CHAR}, "E13")
    if encoding is None:
        return None
    declared = _limit(element, "nullValue", encoding.primitive, report)
    null = int(encoding.null if declared is None else declared)
    values: dict[int, str] = {}
    names = set[str]()
    versions: dict[int, int] = {}
    deprecated: dict[int, int] = {}
    descriptions: dict[int, str] = {}
    for child in element.children:
        raw = _valid_value(child, encoding, null, report) if child.tag == "validValue" else None
        if raw is not None:
            _check_duplicate(child, raw, values, names, report)
            values[raw] = child.name
            _note_versions(child, raw, versions, deprecated, report)
            _note_description(child, raw, descriptions)
    presence = presence_of(element, report) or Presence.REQUIRED
    if presence is Presence.OPTIONAL and encoding.minimum <= null <= encoding.maximum:
        report.warn("W16", element, f"the null value {null} of {element.name} is inside its range")
    since = report.number(element, "sinceVersion")
    remarks = remarks_of(element, report)
    named = (values, versions, since, presence, deprecated, descriptions)
    return Enum(element.name, encoding, encoding.size, null, *named, remarks)


def _valid_value(child: Element, encoding: Scalar, null: int, report: Report) -> int | None:
    if not child.text:
        report.error("E14", child, f"validValue {child.name} has no value")
        return None
    raw = raw_value(child.text, encoding.primitive)
    if raw is None:
        report.error("E11", child, f"validValue {child.name}: {child.text!r} is not a value of {encoding.primitive}")
        return None
    if encoding.primitive is not Primitive.CHAR:
        if raw == null:
            report.error("E14", child, f"validValue {child.name} is the null value {null}")
        elif not encoding.minimum <= raw <= encoding.maximum:
            report.error("E14", child, f"validValue {child.name}: {raw} is out of range")
    return int(raw)


def resolve_set(element: Element, encodings: Encodings) -> Set | None:
    """Return the layout of a ``set`` element."""
    report = encodings.report
    encoding = encodings.encoding_type(element, UNSIGNED, "E15")
    if encoding is None:
        return None
    choices: dict[int, str] = {}
    names = set[str]()
    versions: dict[int, int] = {}
    deprecated: dict[int, int] = {}
    descriptions: dict[int, str] = {}
    for child in element.children:
        bit = _choice(child, encoding, report) if child.tag == "choice" else None
        if bit is not None:
            _check_duplicate(child, bit, choices, names, report)
            choices[bit] = child.name
            _note_versions(child, bit, versions, deprecated, report)
            _note_description(child, bit, descriptions)
    since, remarks = report.number(element, "sinceVersion"), remarks_of(element, report)
    named = (choices, versions, since, deprecated, descriptions)
    return Set(element.name, encoding, encoding.size, *named, remarks)


def _choice(child: Element, encoding: Scalar, report: Report) -> int | None:
    bit = integer(child.text)
    if bit is None:
        report.error("E11", child, f"choice {child.name}: {child.text!r} is not a bit number")
        return None
    if not 0 <= bit < 8 * encoding.size:
        report.error("E15", child, f"choice {child.name}: there is no bit {bit} in {encoding.primitive}")
        return None
    return bit


def _check_duplicate(child: Element, raw: int, known: Mapping[int, str], names: set[str], report: Report) -> None:
    if raw in known or child.name in names:
        report.warn("W06", child, f"{child.tag} {child.name} repeats a name or a value; the last counts")
    names.add(child.name)


def _note_versions(
    child: Element, raw: int, versions: dict[int, int], deprecated: dict[int, int], report: Report
) -> None:
    if since := report.number(child, "sinceVersion"):
        versions[raw] = since
    if (ended := report.given(child, "deprecated")) is not None:
        deprecated[raw] = ended


def _note_description(child: Element, raw: int, descriptions: dict[int, str]) -> None:
    if (description := child.get("description")) is not None:
        descriptions[raw] = description
