"""Resolves the three composites that SBE itself reads: message header, group dimensions, length of data.

Their members are found by name; offsets and types are those of the schema (SBE 1.0, sections 3.1 to 3.4).
"""

from __future__ import annotations

from silverfold.connectors.wire.sbe.schema.composites import is_variable
from silverfold.connectors.wire.sbe.schema.document import Element
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Composite,
    Data,
    Encoding,
    Member,
    Primitive,
    Role,
    Scalar,
    Structure,
)
from silverfold.connectors.wire.sbe.schema.primitives import INTEGERS, TRAITS, UNSIGNED
from silverfold.connectors.wire.sbe.schema.report import Report

_HEADER = ("blockLength", "templateId", "schemaId", "version")
_DIMENSIONS = ("blockLength", "numInGroup")
_COUNTS = ("numGroups", "numVarDataFields")
_WIDE_LIMIT = 2147483647
"""A count or length of four bytes or more must declare a maxValue not above this."""


def resolve_header(encoding: Encoding, user: Element, report: Report) -> Structure | None:
    """Return the message header's layout; report E04 or E05 if the encoding cannot be one."""
    if not isinstance(encoding, Composite):
        report.error("E04", user, f"headerType {encoding.name} is not a composite")
        return None
    roles = _roles(encoding, (*_HEADER, *_COUNTS))
    missing = [name for name in _HEADER if name not in roles]
    if missing:
        report.error("E05", user, f"header {encoding.name} has no integer {', '.join(missing)}")
        return None
    if roles["blockLength"].primitive not in UNSIGNED:
        report.error("E05", user, f"blockLength of header {encoding.name} is not unsigned")
        return None
    if any(is_variable(member.encoding) for member in encoding.members):
        report.error("E05", user, f"header {encoding.name} has a member of no fixed size")
        return None
    for name in _invalid_counts(encoding, roles):
        report.error("E05", user, f"{name} of header {encoding.name} is not an unsigned integer")
        return None
    _ignore_single_count(f"header {encoding.name}", roles, user, report)
    for name in _HEADER:
        if roles[name].primitive is not Primitive.UINT16:
            report.warn("W04", user, f"{name} of header {encoding.name} is {roles[name].primitive}, not uint16")
    constant, id_ = roles["schemaId"].constant, report.number(user, "id")
    if constant not in {None, id_}:
        detail = f"schemaId of header {encoding.name} is always {constant}, not {id_}: no message can be decoded"
        report.warn("W18", user, detail)
    return Structure(encoding.name, encoding.size, roles, encoding)


def resolve_dimensions(encoding: Encoding, user: Element, report: Report) -> Structure | None:
    """Return the layout of group dimensions; report E21 if the encoding cannot be one."""
    if not isinstance(encoding, Composite):
        report.error("E21", user, f"dimensionType {encoding.name} is not a composite")
        return None
    roles = _roles(encoding, (*_DIMENSIONS, *_COUNTS))
    missing = [name for name in _DIMENSIONS if name not in roles]
    if missing:
        report.error("E21", user, f"dimensions {encoding.name} have no integer {', '.join(missing)}")
        return None
    wrong = _wrong_dimensions(encoding, roles)
    for detail in wrong:
        report.error("E21", user, f"{detail} of dimensions {encoding.name}")
    _ignore_single_count(f"dimensions {encoding.name}", roles, user, report)
    for name in _DIMENSIONS:
        if roles[name].primitive not in {Primitive.UINT8, Primitive.UINT16}:
            code = "W04" if roles[name].primitive in UNSIGNED else "W05"
            report.warn(code, user, f"{name} of dimensions {encoding.name} is {roles[name].primitive}")
    return None if wrong else Structure(encoding.name, encoding.size, roles, encoding)


def _wrong_dimensions(encoding: Composite, roles: dict[str, Role]) -> list[str]:
    wrong = [f"{name}, which is not an unsigned integer," for name in _invalid_counts(encoding, roles)]
    count = roles["numInGroup"]
    scalar = encoding.member("numInGroup").encoding
    assert isinstance(scalar, Scalar)
    if roles["blockLength"].primitive not in UNSIGNED:
        wrong.append("signed blockLength")
    if count.primitive not in UNSIGNED and scalar.minimum < 0:
        wrong.append("signed numInGroup without a minValue from 0")
    if count.size >= 4 and scalar.maximum > _WIDE_LIMIT:
        wrong.append(f"numInGroup of {count.size} bytes without a maxValue up to {_WIDE_LIMIT}")
    if scalar.minimum > scalar.maximum:
        wrong.append(f"minValue {scalar.minimum} above maxValue {scalar.maximum}")
    if scalar.maximum > TRAITS[count.primitive].maximum:
        wrong.append(f"maxValue {scalar.maximum} above the limit of {count.primitive}")
    return wrong


def resolve_data(encoding: Encoding, element: Element, report: Report) -> Data | None:
    """Return the layout of a ``data`` element; report E22 if its type cannot carry data."""
    if not isinstance(encoding, Composite):
        report.error("E22", element, f"type {encoding.name} of data {element.name} is not a composite")
        return None
    length, bytes_member = _roles(encoding, ("length",)).get("length"), _data_member(encoding)
    if length is None or length.constant is not None or bytes_member is None:
        report.error("E22", element, f"{encoding.name} lacks a length or a member for the data of {element.name}")
        return None
    if wrong := _wrong_length(length, bytes_member, encoding, element):
        report.error("E22", element, wrong)
        return None
    _warn_unusual_data(length, bytes_member, encoding, element, report)
    return Data(
        name=element.name,
        id=report.number(element, "id"),
        length=length,
        data_offset=bytes_member.offset,
        charset=getattr(bytes_member.encoding, "charset", None) or None,
        since_version=max(report.number(element, "sinceVersion"), encoding.since_version),
        deprecated=report.given(element, "deprecated"),
        type_name=encoding.name,
        type_deprecated=encoding.remarks.deprecated,
        semantic_type=element.get("semanticType"),
        description=element.get("description"),
    )


def _wrong_length(length: Role, member: Member, encoding: Composite, element: Element) -> str | None:
    if element.get("presence") == "optional":
        return f"data {element.name} cannot be optional"
    if member.offset < length.offset + length.size:
        return f"{member.name} of {encoding.name} does not come after its length"
    if length.primitive not in UNSIGNED:
        return f"length of {encoding.name} is not unsigned"
    if length.size >= 4 and length.maximum > _WIDE_LIMIT:
        return f"length of {encoding.name} has {length.size} bytes and no maxValue up to {_WIDE_LIMIT}"
    return None


def _warn_unusual_data(length: Role, member: Member, encoding: Composite, element: Element, report: Report) -> None:
    if length.size > 4:
        report.warn("W04", element, f"length of {encoding.name} is {length.primitive}")
    if member.name != "varData" or not (isinstance(member.encoding, Array) and member.encoding.count == 0):
        report.warn("W15", element, f"member {member.name} of {encoding.name} should be varData with length 0")


def _data_member(encoding: Composite) -> Member | None:
    others = [member for member in encoding.members if member.name != "length"]
    named = [member for member in others if member.name == "varData"]
    candidates = named or others
    if len(candidates) != 1 or not isinstance(candidates[0].encoding, Scalar | Array):
        return None
    return candidates[0]


def _roles(encoding: Composite, names: tuple[str, ...]) -> dict[str, Role]:
    """Return the integer members with these names."""
    roles = {}
    for member in encoding.members:
        scalar = member.encoding
        if member.name in names and isinstance(scalar, Scalar) and scalar.primitive in INTEGERS:
            roles[member.name] = _role(member, scalar)
    return roles


def _ignore_single_count(owner: str, roles: dict[str, Role], user: Element, report: Report) -> None:
    """Treat a count of groups or of data as an ordinary member if the other count is missing."""
    single = [name for name in _COUNTS if name in roles]
    if len(single) == 1:
        del roles[single[0]]
        report.warn("W19", user, f"{owner} has {single[0]} alone, which counts nothing without the other")


def _invalid_counts(encoding: Composite, roles: dict[str, Role]) -> list[str]:
    """Return the members that have the name of a count of groups or data, but cannot be one."""
    named = [member.name for member in encoding.members if member.name in _COUNTS]
    return [name for name in named if name not in roles or roles[name].primitive not in UNSIGNED]


def _role(member: Member, scalar: Scalar) -> Role:
    """Return the role of a structural member.

    A count may use all values of its bytes unless the schema limits it; a length may not be all ones, its null.
    """
    traits = TRAITS[scalar.primitive]
    counts = member.name != "length" and not scalar.max_declared
    return Role(
        offset=member.offset,
        primitive=scalar.primitive,
        size=scalar.size,
        minimum=int(scalar.minimum),
        maximum=int(traits.highest) if counts else min(int(scalar.maximum), int(traits.maximum)),
        constant=None if scalar.constant is None else int(scalar.constant),
    )
