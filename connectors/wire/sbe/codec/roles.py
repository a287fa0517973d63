"""Reads and writes structural composites (message header, dimensions), at any offsets of their members."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.schema.model import Buffer, ByteOrder, Structure
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS


class RoleReader:
    """Reads members of a structural composite.

    ``read(body, offset)`` returns their integers in the order of ``names``; ``size`` bytes must be there.
    """

    __slots__ = ("read", "size")

    def __init__(self, structure: Structure, names: Sequence[str], order: ByteOrder) -> None:
        roles = structure.roles
        constants = {name: role.constant for name in names if (role := roles[name]).constant is not None}
        wire = sorted(set(names).difference(constants), key=lambda name: roles[name].offset)
        unpack = struct.Struct(order + _format(structure, wire)).unpack_from
        self.size = structure.size
        self.read: Callable[[Buffer, int], tuple[int, ...]] = unpack
        if wire != list(names):  # members in another order, or some of them constant
            available = [*wire, *constants]
            pick = itemgetter(*(available.index(name) for name in names))
            self.read = lambda body, offset: pick((*unpack(body, offset), *constants.values()))


class RoleWriter:
    """Writes the members of a structural composite that have a role; all others are zero."""

    __slots__ = ("_names", "_pack", "_roles")

    def __init__(self, structure: Structure, order: ByteOrder) -> None:
        self._roles = structure.roles
        wire = [name for name, role in structure.roles.items() if role.constant is None]
        self._names = sorted(wire, key=lambda name: structure.roles[name].offset)
        self._pack = struct.Struct(order + _format(structure, self._names, structure.size)).pack

    def write(self, **values: int) -> bytes:
        """Return the composite; values without a member are ignored. Raises `Fault` if a value does not fit."""
        for name, role in self._roles.items():
            if role.constant not in {None, values[name]}:
                detail = f"{name} is always {role.constant}, not {values[name]}"
                raise Fault(InvalidValue, "constant", detail, 0)
            if role.constant is None and values[name] > TRAITS[role.primitive].highest:
                raise Fault(InvalidValue, "range", f"{name} {values[name]} does not fit {role.primitive}", 0)
        return self._pack(*(values[name] for name in self._names))


def _format(structure: Structure, names: Sequence[str], size: int = 0) -> str:
    """Return the `struct` format of the members ``names``, ascending by offset, padded to ``size`` bytes."""
    parts, cursor = [], 0
    for name in names:
        role = structure.roles[name]
        parts.append(f"{role.offset - cursor}x{TRAITS[role.primitive].code}")
        cursor = role.offset + role.size
    return f"{''.join(parts)}{max(size - cursor, 0)}x"
