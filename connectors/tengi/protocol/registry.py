"""User types: the classes, enums and marshallers that both sides must agree on. Only their ids are on the wire.

An object of an unknown type cannot be skipped: its length is not on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from silverfold.connectors.tengi.protocol.values import (
    EnumerableValue,
    EnumValue,
    Handshake,
    Marshallable,
    Packet,
    PollingRequest,
    PollingResponse,
)

if TYPE_CHECKING:
    from silverfold.connectors.tengi.protocol.decoder import Decoder
    from silverfold.connectors.tengi.protocol.encoder import Encoder

T = TypeVar("T")

RESERVED: Final = frozenset({*range(-11, 0), *range(-104, -100)})
"""Marshaller ids of the objects that are built in."""
_INT16: Final = range(-(1 << 15), 1 << 15)
_INT32: Final = range(-(1 << 31), 1 << 31)


class FilterResult(Enum):
    """Answer of a marshaller's filter for a value."""

    NEXT = auto()
    """Ask the next marshaller."""
    ACCEPTED = auto()
    ACCEPTED_AND_CACHED = auto()
    """Accepted, and so is every value of the same class: the filter is not asked again."""


MarshallerFilter: TypeAlias = Callable[[object], FilterResult]


@dataclass(frozen=True)
class Marshaller(Generic[T]):
    """Reads and writes values of classes that are not ours. The object is the id, then what ``write`` writes.

    Args:
        marshaller_id: int16, agreed with the peer, none of `RESERVED`.
        accepts: Returns whether a value is of this type. It is not called for values of built-in types. A result that
            is no `FilterResult` is a TypeError.
    """

    marshaller_id: int
    accepts: MarshallerFilter
    read: Callable[[Decoder], T]
    write: Callable[[Encoder, T], None]


def accepts_class(accepted: type) -> MarshallerFilter:
    """Return a filter that accepts a class and its subclasses."""
    return lambda value: FilterResult.ACCEPTED_AND_CACHED if isinstance(value, accepted) else FilterResult.NEXT


class TypeRegistry:
    """The types of a connection: built-in ones and the user's. Immutable; connections may share one.

    Args:
        classes: Subclasses of `Packet` and `Marshallable`; each has its ``type_id``.
        enums: By class type id: the names of the constants, which are read as `EnumValue`, or an `Enum`.
        enumerables: By class type id: names and numbers, which are read as `EnumerableValue`, or an `Enum` whose values
            are the numbers.
        marshallers: Tried in this order.

    Raises:
        ValueError: A class or a marshaller is none of these, or lacks its id; an id is reserved, used twice, or no
            int16; an `Enum` has two ids; the number of a constant is no int32; one constant, or a single text, is given
            in place of all constants.
    """

    def __init__(
        self,
        *classes: type[Packet | Marshallable],
        enums: Mapping[int, Iterable[str] | type[Enum]] | None = None,
        enumerables: Mapping[int, Mapping[str, int] | type[Enum]] | None = None,
        marshallers: Iterable[Marshaller[Any]] = (),
    ) -> None:
        for each in classes:
            is_known = isinstance(each, type) and issubclass(each, Packet | Marshallable)  # type: ignore[redundant-expr]  # callers may be untyped
            if not (is_known and hasattr(each, "type_id")):
                raise ValueError(f"{each!r} is no subclass of Packet or Marshallable with a type_id")
        known = (Packet, Handshake, PollingRequest, PollingResponse, *classes)
        self.packets = {each.type_id: each for each in known if issubclass(each, Packet)}
        self.marshallables = {each.type_id: each for each in known if issubclass(each, Marshallable)}
        self.enums = {type_id: _named(type_id, given) for type_id, given in (enums or {}).items()}
        self.enumerables = {type_id: _numbered(type_id, given) for type_id, given in (enumerables or {}).items()}
        self.enum_ids = _class_ids(enums or {})
        self.enumerable_ids = _class_ids(enumerables or {})
        marshallers = list(marshallers)
        if strange := [each for each in marshallers if not isinstance(each, Marshaller)]:  # type: ignore[redundant-expr]  # as above
            raise ValueError(f"{strange[0]!r} is no Marshaller")
        self.marshallers = {each.marshaller_id: each for each in marshallers}
        self._by_class: dict[type, Marshaller[Any]] = {}
        _check_ids([*(each.type_id for each in known), *self.enums, *self.enumerables])
        _check_classes([*(enums or {}).items(), *(enumerables or {}).items()])
        _check_ids([*RESERVED, *(each.marshaller_id for each in marshallers)])

    def find_marshaller(self, value: object) -> Marshaller[Any] | None:
        """Return the first marshaller that accepts a value; None if none does."""
        cached = self._by_class.get(type(value))
        if cached is not None:
            return cached
        for each in self.marshallers.values():
            result = each.accepts(value)
            if not isinstance(result, FilterResult):
                raise TypeError(f"the filter of marshaller {each.marshaller_id} returned {result!r}")
            if result is FilterResult.ACCEPTED_AND_CACHED:
                self._by_class[type(value)] = each
            if result is not FilterResult.NEXT:
                return each
        return None


def _named(type_id: int, given: Iterable[str] | type[Enum]) -> dict[str, EnumValue | Enum]:
    if isinstance(given, type):
        return dict(given.__members__)
    if isinstance(given, str | Enum):
        raise ValueError(f"enum {type_id} is given as {given!r}: the names of its constants, or its class, are due")
    return {name: EnumValue(type_id, name) for name in given}


def _numbered(type_id: int, given: Mapping[str, int] | type[Enum]) -> dict[int, EnumerableValue | Enum]:
    numbered: dict[int, EnumerableValue | Enum]
    if isinstance(given, type):
        numbered = {each.value: each for each in given}
    elif isinstance(given, Enum):
        raise ValueError(f"enumerable {type_id} is given as {given!r}: names and numbers, or its class, are due")
    else:
        numbered = {flag: EnumerableValue(type_id, flag) for flag in given.values()}
    for flag in numbered:
        if not isinstance(flag, int) or flag not in _INT32:  # type: ignore[redundant-expr]  # an Enum has any values
            raise ValueError(f"a constant of enumerable {type_id} has {flag!r}, which is no int32")
    return numbered


def _class_ids(given: Mapping[int, Iterable[str] | Mapping[str, int] | type[Enum]]) -> dict[type, int]:
    return {each: type_id for type_id, each in given.items() if isinstance(each, type)}


def _check_classes(given: Iterable[tuple[int, object]]) -> None:
    """Raise ValueError for a class with two ids: its constants would be written with one, and read with both."""
    ids: dict[type, int] = {}
    for type_id, each in given:
        if isinstance(each, type) and ids.setdefault(each, type_id) != type_id:
            raise ValueError(f"{each.__name__} has two ids, {ids[each]} and {type_id}")


def _check_ids(ids: list[int]) -> None:
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise ValueError(f"the id {twice[0]} names two types")
    if not all(each in _INT16 for each in ids):
        raise ValueError("ids of types are int16")


BUILT_IN: Final = TypeRegistry()
"""No user types."""
