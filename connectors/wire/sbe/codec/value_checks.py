"""Checks decoded values for oddities, on request only; times and months by SBE 1.0, sections 2.7 to 2.9.

The same finding for many entries of a group is reported once: element paths have no index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from silverfold.connectors.wire.sbe.codec.blocks import null_test
from silverfold.connectors.wire.sbe.codec.values import Finding, SetValue
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Encoding,
    Enum,
    Field,
    Message,
    Presence,
    Primitive,
    Scalar,
    Set,
    deprecated_since,
)
from silverfold.connectors.wire.sbe.schema.primitives import FLOATS, stored_value

if TYPE_CHECKING:  # circular: a decoder checks values, too
    from silverfold.connectors.wire.sbe.codec.decode import Decoded

_TIMES_OF_DAY = frozenset({"utctimeonly", "tztimeonly"})
_UNITS = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}
"""Decimal places of a second, by value of the field attribute ``timeUnit``."""
_DAY = 86_400
_PARTS_OF_MONTH = frozenset({"day", "week"})
"""Members of a MonthYear that may be null, whether or not they are declared so."""

Oddity: TypeAlias = tuple[str, str]
"""Reason and detail of a finding."""


def check_composite(composite: Composite, value: Mapping[str, Any], semantic_type: str | None) -> Iterator[Oddity]:
    """Yield reason and detail of each invalid value in a composite. ``semantic_type`` is that of its field."""
    numbers = {member.name: _number(member.encoding, value.get(member.name)) for member in composite.members}
    if {"year", "month"} <= value.keys():
        yield from _check_month(numbers["year"], numbers["month"])
    if {"timezoneHour", "timezoneMinute"} <= value.keys():
        yield from _check_zone(numbers["timezoneHour"], numbers["timezoneMinute"])
    if _is_time_of_day(semantic_type) and {"time", "unit"} <= value.keys():
        yield from _check_time(numbers["time"], numbers["unit"])


def check_time_of_day(field: Field, value: Any) -> Iterator[Oddity]:
    """Yield reason and detail if an integer field for a time of day has an invalid value."""
    if _is_time_of_day(field.semantic_type) and isinstance(field.encoding, Scalar):
        yield from _check_time(_number(field.encoding, value), _UNITS.get(field.time_unit))


def _is_time_of_day(semantic_type: str | None) -> bool:
    return (semantic_type or "").lower() in _TIMES_OF_DAY


def _number(encoding: Any, value: Any) -> int | None:
    """Return the number of a member; None if it is null or not a number."""
    if isinstance(encoding, Enum) and value in encoding.values.values():
        return encoding.raw(value)
    if not isinstance(value, int) or not isinstance(encoding, Scalar) or value == encoding.null:
        return None
    return value


def _check_month(year: int | None, month: int | None) -> Iterator[Oddity]:
    if year is None or month is None:
        yield "month-year", f"no {'year' if year is None else 'month'}"
    elif not 1 <= month <= 12:
        yield "month-year", f"there is no month {month}"


def _check_zone(hour: int | None, minute: int | None) -> Iterator[Oddity]:
    if hour is None or not -12 <= hour <= 14:
        yield "time-zone", f"hour {hour} is not from -12 to 14"
    if minute is None or not 0 <= minute <= 59:
        yield "time-zone", f"minute {minute} is not from 0 to 59"


def _check_time(time: int | None, unit: int | None) -> Iterator[Oddity]:
    if time is None or unit is None:
        return
    if unit not in _UNITS.values():
        yield "time-of-day", f"there is no unit {unit}"
    elif not 0 <= time < _DAY * 10**unit:
        yield "time-of-day", f"{time} is not within one day of units of 1e-{unit} s"


_REPLACEMENT = "\ufffd"
"""Replacement character for bytes that are not text."""


class _Leaf(NamedTuple):
    element: str
    encoding: Encoding
    presence: Presence
    deprecated: int | None
    value: Any
    field: Field


def review_values(decoded: Decoded) -> tuple[Finding, ...]:
    """Return the oddities of a decoded message's values; the values do not change.

    Reasons: ``null-in-required``, ``out-of-range`` (below minValue or above maxValue, or an unprintable character),
    ``charset`` (bytes that are not text), ``unknown-value`` (of an enum), ``unknown-bits`` (of a set), ``month-year``,
    ``time-of-day``, ``time-zone`` (values with these meanings), ``deprecated`` (element or type, in the message's
    version).
    """
    message, values, version = decoded.message, decoded.values, decoded.header.version
    found: dict[tuple[str, str], Finding] = {}
    for element, since in _deprecated(message, values, message.name):
        if since <= version:
            found[("deprecated", element)] = Finding("deprecated", element, _deprecation(since))
    for leaf in _leaves(message, values, message.name):
        for reason, detail in _check_leaf(leaf, version):
            found.setdefault((reason, leaf.element), Finding(reason, leaf.element, detail))
    return tuple(found.values())


def newer_values(message: Message, values: Mapping[str, Any], version: int) -> Iterator[tuple[str, str]]:
    """Yield element and detail of each enum value and set bit that is newer than the acting version."""
    for leaf in _leaves(message, values, message.name):
        if isinstance(leaf.encoding, Enum | Set):
            for name, since in _versions(leaf.encoding, leaf.value, leaf.encoding.versions):
                if since > version:
                    yield leaf.element, f"{name} exists since version {since}, the message is of version {version}"


def deprecated_values(message: Message, values: Mapping[str, Any], version: int) -> Iterator[str]:
    """Yield the path of each enum value and set bit that is deprecated in the acting version; possibly repeated."""
    for leaf in _leaves(message, values, message.name):
        if isinstance(leaf.encoding, Enum | Set):
            for name, since in _versions(leaf.encoding, leaf.value, leaf.encoding.deprecated_values):
                if since <= version:
                    yield f"{leaf.element}.{name}"


def needlessly_deprecated(message: Message, values: Mapping[str, Any], version: int) -> Iterator[str]:
    """Yield the paths of elements deprecated in the acting version that the writer could omit; possibly repeated.

    These are the message itself, entries of groups, data, values of optional fields, enum values and set bits. A
    required field cannot be omitted.
    """
    yield from (path for path, since in _deprecated(message, values, message.name) if since <= version)
    for leaf in _leaves(message, values, message.name):
        needless = leaf.presence is Presence.OPTIONAL and not _is_null(leaf.encoding, leaf.value)
        if needless and leaf.deprecated is not None and leaf.deprecated <= version:
            yield leaf.element
    yield from deprecated_values(message, values, version)


def _deprecated(body: Body, values: Mapping[str, Any], path: str) -> Iterator[tuple[str, int]]:
    """Yield the deprecated bodies and data that have values, each with its version of deprecation."""
    if body.deprecated is not None:
        yield path, body.deprecated
    for data in body.data:
        if (since := deprecated_since(data)) is not None and values.get(data.name):
            yield f"{path}.{data.name}", since
    for group in body.groups:
        for entry in values.get(group.name, ()):
            yield from _deprecated(group, entry, f"{path}.{group.name}")


def _deprecation(since: int) -> str:
    return f"deprecated since version {since}"


def _leaves(body: Body, values: Mapping[str, Any], path: str) -> Iterator[_Leaf]:
    for field in body.fields:
        if field.name in values:
            element = f"{path}.{field.name}"
            leaf = _Leaf(element, field.encoding, field.presence, deprecated_since(field), values[field.name], field)
            yield from _flatten(leaf)
    for group in body.groups:
        for entry in values.get(group.name, ()):
            yield from _leaves(group, entry, f"{path}.{group.name}")


def _flatten(leaf: _Leaf) -> Iterator[_Leaf]:
    """Yield a value, and the members of a composite unless it is null."""
    yield leaf
    if not isinstance(leaf.encoding, Composite) or _is_null(leaf.encoding, leaf.value):
        return
    for member in leaf.encoding.members:
        if member.name in leaf.value:
            element, value, since = f"{leaf.element}.{member.name}", leaf.value[member.name], deprecated_since(member)
            may_lack = {"year", "month"} <= leaf.value.keys() and member.name in _PARTS_OF_MONTH
            presence = Presence.OPTIONAL if may_lack else member.presence
            yield from _flatten(_Leaf(element, member.encoding, presence, since, value, leaf.field))


def _is_null(encoding: Encoding, value: Any) -> bool:
    """Return whether a value was read as null; the first member on the wire decides for a composite."""
    if not isinstance(encoding, Composite):
        return value is None
    wire = [member for member in encoding.members if member.presence is not Presence.CONSTANT]
    return bool(wire) and wire[0].name in value and _is_null(wire[0].encoding, value[wire[0].name])


def _check_leaf(leaf: _Leaf, version: int) -> Iterator[Oddity]:
    if leaf.deprecated is not None and leaf.deprecated <= version:
        yield "deprecated", _deprecation(leaf.deprecated)
    if leaf.presence is Presence.CONSTANT:
        return
    match leaf.encoding:
        case Scalar(primitive=Primitive.CHAR) | Array(element=Scalar(primitive=Primitive.CHAR)):
            yield from _check_text(leaf.encoding, leaf.value, leaf.presence)
        case Scalar():
            yield from _check_number(leaf.encoding, leaf.value, leaf.presence)
            yield from check_time_of_day(leaf.field, leaf.value)
        case Array():
            yield from _check_list(leaf.encoding, leaf.value, leaf.presence)
        case Composite() if not _is_null(leaf.encoding, leaf.value):
            yield from check_composite(leaf.encoding, leaf.value, leaf.field.semantic_type)
        case Enum() | Set():
            yield from _check_name(leaf.encoding, leaf.value, leaf.presence)
            for name, since in _versions(leaf.encoding, leaf.value, leaf.encoding.deprecated_values):
                if since <= version:
                    yield "deprecated", f"{name} is {_deprecation(since)}"


def _check_name(encoding: Enum | Set, value: Any, presence: Presence) -> Iterator[Oddity]:
    if isinstance(encoding, Set):
        if value.unknown:
            yield "unknown-bits", f"{value.unknown:#x} are no choices of {encoding.name}"
    elif value is None:
        if presence is Presence.REQUIRED:
            yield "null-in-required", f"the null value {encoding.null}"
    elif value not in encoding.values.values():
        yield "unknown-value", f"{value!r} is not a value of {encoding.name}"


def _check_number(scalar: Scalar, value: Any, presence: Presence) -> Iterator[Oddity]:
    if value is None:
        return
    if scalar.primitive not in FLOATS and null_test(scalar)(value):
        if presence is Presence.REQUIRED:
            yield "null-in-required", f"the null value {scalar.null}"
    elif value == value and not _within(value, scalar):  # noqa: PLR0124 (NaN is a value)
        yield "out-of-range", f"{value!r} is not from {scalar.minimum} to {scalar.maximum}"


def _check_list(array: Array, numbers: Iterable[Any] | None, presence: Presence) -> Iterator[Oddity]:
    """Check an array of numbers; uint8 arrays are opaque, so they are null only if all bytes are."""
    if numbers is None:
        return
    if array.element.primitive is not Primitive.UINT8:
        for number in numbers:
            yield from _check_number(array.element, number, presence)
    elif presence is Presence.REQUIRED and all(number == array.element.null for number in numbers):
        yield "null-in-required", f"all bytes have the null value {array.element.null}"


def _check_text(encoding: Scalar | Array, text: Any, presence: Presence) -> Iterator[Oddity]:
    """Check text: ASCII characters must be printable; text in other charsets is valid if it could be decoded."""
    if isinstance(text, bytes) or (isinstance(text, str) and _REPLACEMENT in text):
        yield "charset", "bytes that are not text"
    elif text == "" and isinstance(encoding, Scalar):
        if presence is Presence.REQUIRED:
            yield "null-in-required", f"the null value {encoding.null}"
    elif text is not None and encoding.charset is None:
        scalar = encoding if isinstance(encoding, Scalar) else encoding.element
        low, high = (scalar.minimum, scalar.maximum) if encoding is scalar else (0x20, 0x7E)
        if not all(low <= ord(character) <= high for character in text):
            yield "out-of-range", f"{text!r} has characters that are not from {low:#x} to {high:#x}"


def _within(value: float, scalar: Scalar) -> bool:
    return stored_value(scalar.minimum, scalar.primitive) <= value <= stored_value(scalar.maximum, scalar.primitive)


def _versions(encoding: Enum | Set, value: Any, versions: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """Yield the names in the value that are keys of ``versions``, with their versions."""
    known = encoding.values if isinstance(encoding, Enum) else encoding.choices
    present = set(value.names) if isinstance(value, SetValue) else {value}
    for raw, version in versions.items():
        if known[raw] in present:
            yield known[raw], version
