"""The named encodings of a schema: defined in any order, resolved once, without cycles.

An encoding that cannot be resolved is reported once and is None to its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from silverfold.connectors.wire.sbe.schema.composites import resolve_composite
from silverfold.connectors.wire.sbe.schema.document import MAX_DEPTH, Element
from silverfold.connectors.wire.sbe.schema.model import Encoding, Enum, Primitive, Scalar
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from silverfold.connectors.wire.sbe.schema.report import Report
from silverfold.connectors.wire.sbe.schema.simple import primitive_scalar, resolve_enum, resolve_set, resolve_type


class Constant(NamedTuple):
    """The enum value that a valueRef names."""

    enum: Enum
    name: str
    raw: int

    @property
    def value(self) -> int | str:
        """The value for a simple type that refers to it: the number, or the character."""
        return chr(self.raw) if self.enum.encoding.primitive is Primitive.CHAR else self.raw


class Encodings:
    """The named encodings of a schema, resolved on demand.

    Args:
        elements: The children of all ``types`` elements, in order.
        report: Collects mistakes in them.
    """

    def __init__(self, elements: Iterable[Element], report: Report) -> None:
        self.report = report
        self._elements: dict[str, Element] = {}
        self._resolved: dict[str, Encoding | None] = {}
        self._open: list[str] = []
        self._deep: set[str] = set()
        for element in elements:
            if element.name in self._elements:
                report.warn("W01", element, f"encoding {element.name} is defined again; the last definition counts")
            self._elements[element.name] = element

    def all(self) -> Mapping[str, Encoding]:
        """Resolve every definition; return the valid ones."""
        resolved = {name: self.named(name, element) for name, element in self._elements.items()}
        return {name: encoding for name, encoding in resolved.items() if encoding is not None}

    def definition(self, name: str) -> Element | None:
        """Return the element that defines a name; None for primitives and unknown names."""
        return self._elements.get(name)

    def named(self, name: str, user: Element) -> Encoding | None:
        """Return the encoding called ``name`` for ``user``; report E07 if unknown, E08 if it contains itself."""
        if name in self._open:
            self.report.error("E08", user, f"{' → '.join([*self._open, name])} is a circle")
            return None
        if len(self._open) >= MAX_DEPTH:
            self.report_too_deep(name, user, name)
            return None
        if name not in self._resolved:
            self._resolved[name] = self._resolve(name, user)
        if name in self._deep:
            self._deep.update(self._open)
        return self._resolved[name]

    def report_too_deep(self, what: str, user: Element, *names: str) -> None:
        """Report that an encoding nests too deep; only once for encodings nested in each other."""
        found = {*self._open, *names}
        if not found & self._deep:
            self.report.error("E08", user, f"{what} is nested deeper than {MAX_DEPTH}")
        self._deep |= found

    def _resolve(self, name: str, user: Element) -> Encoding | None:
        element = self._elements.get(name)
        if element is not None:
            self._open.append(name)
            encoding = self.resolve(element)
            self._open.pop()
            if (
                encoding is not None
                and name in TRAITS
                and not _is_primitive(encoding, primitive_scalar(Primitive(name)))
            ):
                self.report.warn("W01", element, f"{name} is not the primitive of that name; this definition counts")
            return encoding
        if name in TRAITS:
            return primitive_scalar(Primitive(name))
        if name:
            prefix = f"{user.tag} {user.name}: " if user.name else ""
            self.report.error("E07", user, f"{prefix}there is no encoding called {name}")
        return None

    def resolve(self, element: Element) -> Encoding | None:
        """Return the encoding that an element defines, whether named or inside a composite."""
        match element.tag:
            case "type":
                return resolve_type(element, self)
            case "enum":
                return resolve_enum(element, self)
            case "set":
                return resolve_set(element, self)
            case _:
                return resolve_composite(element, self)

    def constant(self, element: Element) -> Constant | None:
        """Return the enum value that the element's valueRef names; report E09 if there is none."""
        reference = element.get("valueRef") or ""
        enum_name, _, name = reference.partition(".")
        enum = self.named(enum_name, element) if enum_name in self._elements else None
        if isinstance(enum, Enum) and name in enum.values.values():
            return Constant(enum, name, enum.raw(name))
        self.report.error("E09", element, f"valueRef {reference!r} of {element.name} names no value of an enum")
        return None

    def encoding_type(self, element: Element, allowed: frozenset[Primitive], code: str) -> Scalar | None:
        """Return the scalar in which an enum or set is encoded."""
        name = element.get("encodingType") or ""
        encoding = self.named(name, element)
        if encoding is None:
            return None
        if isinstance(encoding, Scalar) and encoding.primitive in allowed and encoding.constant is None:
            return encoding
        self.report.error(code, element, f"{element.tag} {element.name} cannot be written as {name}")
        return None


def _is_primitive(encoding: Encoding, primitive: Scalar) -> bool:
    """Return whether a definition equals the primitive itself, descriptions aside."""
    parts = attrgetter("primitive", "presence", "null", "minimum", "maximum", "charset", "since_version")
    return isinstance(encoding, Scalar) and bool(parts(encoding) == parts(primitive))
