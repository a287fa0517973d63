"""Reads the headers of many messages: which template each is of, how far it reaches, and which are not ours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from connectors.wire.sbe.columnar.octets import Bodies, Bools, Longs
from connectors.wire.sbe.columnar.roles import RoleColumns
from connectors.wire.sbe.header import ROLES
from connectors.wire.sbe.model import Presence, Scalar, Schema

NOT_SAID = -1
"""A count of groups or data that the message does not carry."""


class Headers(NamedTuple):
    """The headers that are whole and of this schema."""

    message: Longs
    """Which messages they are of, ascending."""
    template: Longs
    version: Longs
    block_length: Longs
    groups: Longs
    """How many groups the message says it has, or `NOT_SAID`."""
    data: Longs

    def of(self, which: Bools) -> Headers:
        """Return those headers that are chosen."""
        if which.all():
            return self
        return Headers(*(column[which] for column in self))


class HeaderColumns:
    """Reads the headers of one schema's messages."""

    def __init__(self, schema: Schema) -> None:
        roles = schema.header.roles
        self._schema_id = schema.id
        self._reader = RoleColumns(roles, schema.header.size, schema.byte_order)
        self._nulls = {name: _null(schema, name) for name in roles if name not in ROLES}

    def read(self, bodies: Bodies) -> tuple[Headers, Longs]:
        """Return the headers, and the messages that have none or one of another schema."""
        whole = np.flatnonzero(bodies.end - bodies.start >= self._reader.size)
        columns = self._reader.read(bodies.octets, bodies.start[whole])
        ours = columns["schemaId"] == self._schema_id
        headers = Headers(
            whole,
            columns["templateId"],
            np.maximum(columns["version"], 0),
            columns["blockLength"],
            self._count(columns, "numGroups"),
            self._count(columns, "numVarDataFields"),
        ).of(ours)
        foreign = np.ones(len(bodies.start), np.bool_)
        foreign[headers.message] = False
        return headers, np.flatnonzero(foreign)

    def _count(self, columns: dict[str, Longs], name: str) -> Longs:
        if name not in columns:
            return np.full(len(columns["version"]), NOT_SAID, np.int64)
        null = self._nulls[name]
        return columns[name] if null is None else np.where(columns[name] == null, NOT_SAID, columns[name])


def _null(schema: Schema, name: str) -> int | None:
    """Return the null value of a header's count that may be null."""
    scalar = schema.header.composite.member(name).encoding
    assert isinstance(scalar, Scalar)
    return int(scalar.null) if scalar.presence is Presence.OPTIONAL else None
