"""Resolves messages and groups: a block of fields, then groups, then data (SBE 1.0, chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silverfold.connectors.wire.sbe.schema.builtin_composites import resolve_data, resolve_dimensions
from silverfold.connectors.wire.sbe.schema.composites import constant, is_variable, presence
from silverfold.connectors.wire.sbe.schema.document import Element
from silverfold.connectors.wire.sbe.schema.encodings import Encodings
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Data,
    Encoding,
    Enum,
    Field,
    Group,
    Message,
    Presence,
    Primitive,
    Scalar,
    Structure,
)
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from silverfold.connectors.wire.sbe.schema.simple import presence_of

_ORDER = {"field": 0, "group": 1, "data": 2}


class _Parts(NamedTuple):
    fields: tuple[Field, ...]
    groups: tuple[Group, ...]
    data: tuple[Data, ...]
    content_length: int


class Messages:
    """Resolves the messages of a schema, given its encodings and its header."""

    def __init__(self, encodings: Encodings, header: Structure) -> None:
        self._encodings, self._header = encodings, header
        self._report = encodings.report
        self._dimensions: dict[str, Structure | None] = {}

    def all(self, elements: Sequence[Element]) -> list[Message]:
        """Return the messages, in order; report duplicate names and template ids as E19."""
        messages: dict[str, Message] = {}
        templates: dict[int, Message] = {}
        for element in elements:
            message = self._message(element)
            if message.name in messages:
                self._report.error("E19", element, f"there are two messages called {message.name}")
            if message.id in templates:
                other = templates[message.id].name
                self._report.error("E19", element, f"messages {other} and {message.name} share id {message.id}")
            messages[message.name] = templates[message.id] = message
        return list(messages.values())

    def _message(self, element: Element) -> Message:
        parts = self._parts(element)
        return Message(
            name=element.name,
            block_length=self._block_length(element, parts.content_length, self._header),
            content_length=parts.content_length,
            fields=parts.fields,
            groups=parts.groups,
            data=parts.data,
            since_version=self._report.number(element, "sinceVersion"),
            deprecated=self._report.given(element, "deprecated"),
            id=self._report.number(element, "id"),
            semantic_type=element.get("semanticType"),
            description=element.get("description"),
        )

    def _group(self, element: Element) -> Group | None:
        parts = self._parts(element)
        if not parts.fields:
            self._report.warn("W10", element, f"group {element.name} has no fields")
        dimensions = self.dimensions(element.get("dimensionType") or "groupSizeEncoding", element)
        if dimensions is None:
            return None
        return Group(
            name=element.name,
            block_length=self._block_length(element, parts.content_length, dimensions),
            content_length=parts.content_length,
            fields=parts.fields,
            groups=parts.groups,
            data=parts.data,
            since_version=self._group_since(element, parts),
            deprecated=self._report.given(element, "deprecated"),
            id=self._report.number(element, "id"),
            dimensions=dimensions,
            semantic_type=element.get("semanticType"),
            description=element.get("description"),
        )

    def dimensions(self, name: str, user: Element) -> Structure | None:
        """Return the dimensions called ``name``, resolved once."""
        if name not in self._dimensions:
            encoding = self._encodings.named(name, user)
            self._dimensions[name] = None if encoding is None else resolve_dimensions(encoding, user, self._report)
        return self._dimensions[name]

    def _group_since(self, element: Element, parts: _Parts) -> int:
        """Return a group's effective sinceVersion: its own, else the smallest of its members."""
        own = self._report.given(element, "sinceVersion")
        if own is not None:
            return own
        members: tuple[Field | Group | Data, ...] = (*parts.fields, *parts.groups, *parts.data)
        return min((member.since_version for member in members), default=0)

    def _block_length(self, element: Element, content_length: int, carrier: Structure) -> int:
        """Return the length of a block; report E17 if its content, or the number that carries it, does not fit.

        A number that is constant has to be the length (W18).
        """
        declared = self._report.number(element, "blockLength")
        if 0 < declared < content_length:
            detail = f"blockLength {declared} of {element.name} is below its content, {content_length}"
            self._report.error("E17", element, detail)
        length = max(declared, content_length)
        role = carrier.roles["blockLength"]
        if role.constant not in {None, length}:
            detail = (
                f"blockLength {length} of {element.name} is always {role.constant} by {carrier.name}: none can be made"
            )
            self._report.warn("W18", element, detail)
        elif role.constant is None and length > TRAITS[Primitive(role.primitive)].highest:
            detail = f"blockLength {length} of {element.name} does not fit {role.primitive}, which carries it"
            self._report.error("E17", element, detail)
        return length

    def _parts(self, body: Element) -> _Parts:
        members = [child for child in body.children if child.tag in _ORDER]
        self._check_order(members)
        self._check_duplicates(members)
        fields: list[Field] = []
        cursor = 0
        for child in members:
            if child.tag == "field" and (field := self._field(child, cursor)):
                fields.append(field)
                cursor = field.offset + field.size
        groups = [self._group(child) for child in members if child.tag == "group"]
        data = [self._data(child) for child in members if child.tag == "data"]
        parts = _Parts(
            tuple(fields),
            tuple(group for group in groups if group is not None),
            tuple(datum for datum in data if datum is not None),
            cursor,
        )
        self._check_version_order(body, parts)
        return parts

    def _check_order(self, members: Sequence[Element]) -> None:
        latest = 0
        for child in members:
            if _ORDER[child.tag] < latest:
                later = "data" if latest == _ORDER["data"] else "a group"
                self._report.error("E18", child, f"{child.tag} {child.name} comes after {later}")
            latest = max(latest, _ORDER[child.tag])

    def _check_duplicates(self, members: Sequence[Element]) -> None:
        names: set[str] = set()
        ids: dict[int, str] = {}
        for child in members:
            if child.name and child.name in names:
                self._report.error("E20", child, f"there are two members called {child.name}")
            names.add(child.name)
            if (number := self._report.given(child, "id")) is not None:
                if number in ids:
                    self._report.error("E20", child, f"{ids[number]} and {child.name} share id {number}")
                ids.setdefault(number, child.name)

    def _check_version_order(self, body: Element, parts: _Parts) -> None:
        on_wire = [field for field in parts.fields if field.presence is not Presence.CONSTANT]
        for members in (on_wire, parts.groups, parts.data):
            versions = [member.since_version for member in members]
            if versions != sorted(versions):
                self._report.warn("W08", body, f"members of {body.name} are not in the order of their sinceVersion")

    def _data(self, element: Element) -> Data | None:
        encoding = self._encodings.named(element.get("type") or "", element)
        return None if encoding is None else resolve_data(encoding, element, self._report)

    def _field(self, element: Element, cursor: int) -> Field | None:
        report = self._report
        encoding = self._encodings.named(element.get("type") or "", element)
        if encoding is None:
            return None
        if is_variable(encoding):
            report.error("E27", element, f"{encoding.name} has no fixed size and cannot be the type of a field")
            return None
        effective = self._presence(element, encoding)
        return Field(
            name=element.name,
            id=report.number(element, "id"),
            offset=self._offset(element, cursor),
            size=0 if effective is Presence.CONSTANT else encoding.size,
            encoding=encoding,
            presence=effective,
            constant=self._constant(element, encoding) if effective is Presence.CONSTANT else None,
            since_version=max(report.number(element, "sinceVersion"), encoding.since_version),
            deprecated=report.given(element, "deprecated"),
            semantic_type=self._semantic_type(element),
            extras=dict(element.foreign),
            epoch=element.get("epoch") or "unix",
            time_unit=element.get("timeUnit") or "nanosecond",
            time_unit_declared=bool(element.get("timeUnit")),
            description=element.get("description"),
        )

    def _offset(self, element: Element, cursor: int) -> int:
        given = self._report.given(element, "offset")
        if given == 0 and cursor > 0:
            self._report.warn("W14", element, f"offset 0 of {element.name} is taken as not given")
        if not given:
            return cursor
        if given < cursor:
            detail = f"{element.name} begins at {given}, before the end of the last field, {cursor}"
            self._report.error("E16", element, detail)
        return max(given, cursor)

    def _presence(self, element: Element, encoding: Encoding) -> Presence:
        own, type_presence = presence_of(element, self._report), presence(encoding)
        if element.get("valueRef") is not None and own is not Presence.CONSTANT:
            self._report.error("E09", element, f"{element.name} has a valueRef but is not constant")
        definition = self._encodings.definition(encoding.name)
        if own and own is not type_presence and definition is not None and definition.get("presence") is not None:
            self._report.warn("W09", element, f"presence of {element.name} differs from that of {encoding.name}")
        if type_presence is Presence.CONSTANT or own is None:
            return type_presence
        if own is Presence.OPTIONAL and type_presence is not own:
            self._check_null(element, encoding)
        return own

    def _check_null(self, element: Element, encoding: Encoding) -> None:
        """Warn about a null value inside the value range; for types that are optional themselves, `simple` does."""
        match encoding:
            case Scalar():
                scalar, null = encoding, encoding.null
            case Array():
                scalar, null = encoding.element, encoding.element.null
            case Enum():
                scalar, null = encoding.encoding, encoding.null
            case _:
                return
        if scalar.minimum <= null <= scalar.maximum:
            self._report.warn("W16", element, f"the null value {null} of {element.name} is inside its range")

    def _constant(self, element: Element, encoding: Encoding) -> int | float | str | None:
        """Return the value of a constant field: from its own valueRef, else from its type."""
        if element.get("valueRef") is not None:
            return self._referenced_value(element, encoding)
        value = constant(encoding)
        if value is None:
            code = "E10" if isinstance(encoding, Enum) else "E09"
            self._report.error(code, element, f"constant field {element.name} has no value")
        return value

    def _referenced_value(self, element: Element, encoding: Encoding) -> int | float | str | None:
        found = self._encodings.constant(element)
        if found is None:
            return None
        if isinstance(encoding, Enum):
            if found.enum.name != encoding.name:
                detail = f"valueRef of {element.name} names enum {found.enum.name}, its type is {encoding.name}"
                self._report.error("E10", element, detail)
            return found.name
        if not isinstance(encoding, Scalar) or encoding.primitive is not found.enum.encoding.primitive:
            detail = f"valueRef of {element.name} is a {found.enum.encoding.primitive}, its type is not"
            self._report.error("E09", element, detail)
        return found.value

    def _semantic_type(self, element: Element) -> str | None:
        """Return the semantic type of a field: its own, else its type's; report E24 if the two differ."""
        own, definition = element.get("semanticType"), self._encodings.definition(element.get("type") or "")
        inherited = definition.get("semanticType") if definition is not None else None
        if own and inherited and own.lower() != inherited.lower():
            self._report.error(
                "E24", element, f"semanticType of {element.name} is {own}, that of its type is {inherited}"
            )
        return own or inherited
