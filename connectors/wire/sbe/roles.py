"""Reads structural composites: message header and group dimensions, wherever the schema puts their members."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import itemgetter

from connectors.wire.sbe.model import Buffer, ByteOrder, Structure
from connectors.wire.sbe.primitives import TRAITS


class RoleReader:
    """Reads members of a structural composite as integers, in the order of ``names``."""

    __slots__ = ("_constants", "_pick", "_unpack", "size")

    def __init__(self, structure: Structure, names: Sequence[str], order: ByteOrder) -> None:
        roles = structure.roles
        constant = [name for name in names if roles[name].constant is not None]
        wire = sorted(set(names).difference(constant), key=lambda name: roles[name].offset)
        self._unpack = struct.Struct(order + _format(structure, wire)).unpack_from
        self._constants = tuple(roles[name].constant for name in constant)
        place = {name: index for index, name in enumerate([*wire, *constant])}
        straight = [*wire, *constant] == list(names)
        self._pick = None if straight else itemgetter(*(place[name] for name in names))
        self.size = structure.size

    def read(self, body: Buffer, offset: int) -> tuple[int, ...]:
        """Return the values at ``offset``, where ``size`` bytes must be."""
        values = self._unpack(body, offset) + self._constants
        return values if self._pick is None else self._pick(values)


def _format(structure: Structure, names: Sequence[str]) -> str:
    parts, cursor = [], 0
    for name in names:
        role = structure.roles[name]
        parts.append(f"{role.offset - cursor}x{TRAITS[role.primitive].code}")
        cursor = role.offset + role.size
    return "".join(parts)
