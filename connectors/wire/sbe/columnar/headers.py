"""Reads the headers of many messages: template, version and block length of each; separates foreign messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from silverfold.connectors.wire.sbe.codec.header import ROLES
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bodies, Bools, Longs, Octets, gather, stride_of
from silverfold.connectors.wire.sbe.schema.model import ByteOrder, Presence, Role, Scalar, Schema
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS

_LAST = (1 << 63) - 1


class RoleColumns:
    """Reads members of a structural composite of ``size`` bytes.

    Args:
        roles: The members to read, by name.
    """

    def __init__(self, roles: Mapping[str, Role], size: int, order: ByteOrder) -> None:
        self.size = size
        self._constants = {name: role.constant for name, role in roles.items() if role.constant is not None}
        wire = {name: role for name, role in roles.items() if role.constant is None}
        self._dtype = np.dtype(
            {
                "names": list(wire),
                "formats": [order + TRAITS[role.primitive].code for role in wire.values()],
                "offsets": [role.offset for role in wire.values()],
                "itemsize": size,
            }
        )

    def read(self, octets: Octets, start: Longs) -> dict[str, Longs]:
        """Return each member of the composites at ``start``; numbers above int64 are clamped to its maximum."""
        columns = {name: np.full(len(start), value, np.int64) for name, value in self._constants.items()}
        if self._dtype.names:
            fields = self._fields(octets, start)
            for name in self._dtype.names:
                columns[name] = _longs(fields[name])
        return columns

    def _fields(self, octets: Octets, start: Longs) -> npt.NDArray[Any]:
        stride = stride_of(start)
        if stride:
            return np.ndarray((len(start),), self._dtype, octets, int(start[0]), (stride,))
        return gather(octets, start, self.size).reshape(-1).view(self._dtype)


def _longs(values: npt.NDArray[Any]) -> Longs:
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        values = np.minimum(values, np.uint64(_LAST))
    return values.astype(np.int64)


NOT_COUNTED = -1
"""Count of groups or data if the message does not carry it."""


class Headers(NamedTuple):
    """The complete headers of messages of this schema."""

    message: Longs
    """Indexes of their messages, ascending."""
    template: Longs
    version: Longs
    block_length: Longs
    groups: Longs | None
    """Number of groups according to each message, or `NOT_COUNTED`; None if the header has no such member."""
    data: Longs | None

    def of(self, which: Bools) -> Headers:
        """Return the selected headers."""
        if which.all():
            return self
        groups, data = (None if count is None else count[which] for count in (self.groups, self.data))
        return Headers(
            self.message[which], self.template[which], self.version[which], self.block_length[which], groups, data
        )


class HeaderColumns:
    """Reads the headers of one schema's messages."""

    def __init__(self, schema: Schema) -> None:
        roles = schema.header.roles
        self._schema_id = schema.id
        self._reader = RoleColumns(roles, schema.header.size, schema.byte_order)
        self._nulls = {name: _null(schema, name) for name in roles if name not in ROLES}

    def read(self, bodies: Bodies) -> tuple[Headers, Longs]:
        """Return the headers, and the indexes of messages with no complete header or one of another schema."""
        complete = np.flatnonzero(bodies.end - bodies.start >= self._reader.size)
        columns = self._reader.read(bodies.octets, bodies.start[complete])
        ours = columns["schemaId"] == self._schema_id
        headers = Headers(
            complete,
            columns["templateId"],
            np.maximum(columns["version"], 0),
            columns["blockLength"],
            self._count(columns, "numGroups"),
            self._count(columns, "numVarDataFields"),
        ).of(ours)
        foreign = np.ones(len(bodies.start), np.bool_)
        foreign[headers.message] = False
        return headers, np.flatnonzero(foreign)

    def _count(self, columns: dict[str, Longs], name: str) -> Longs | None:
        if name not in columns:
            return None
        null = self._nulls[name]
        return columns[name] if null is None else np.where(columns[name] == null, NOT_COUNTED, columns[name])


def _null(schema: Schema, name: str) -> int | None:
    """Return the null value of an optional count in the header; None if it is required."""
    scalar = schema.header.composite.member(name).encoding
    assert isinstance(scalar, Scalar)
    return int(scalar.null) if scalar.presence is Presence.OPTIONAL else None
