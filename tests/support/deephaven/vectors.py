"""Golden vectors of the Deephaven transport, and the two schemas that they and other tests use."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.wire.sbe.schema.load import load_schema

GOLDEN = Path(__file__).parents[2] / "golden" / "deephaven"
OTHER_SCHEMA = GOLDEN / "other-schema.xml"


class Vector(NamedTuple):
    """One vector: the bytes of one or more frames, and what they mean."""

    name: str
    octets: bytes
    expect: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The only frame, without its length."""
        return self.octets[4:]


def _read() -> list[Vector]:
    rows = json.loads((GOLDEN / "vectors.json").read_text())
    return [Vector(row["name"], bytes.fromhex(row["hex"]), row["expect"]) for row in rows]


VECTORS = {vector.name: vector for vector in _read()}


def of_kind(kind: str) -> list[Vector]:
    """Return the vectors of a kind: message, error, calibration or stream."""
    return [vector for vector in VECTORS.values() if vector.expect["kind"] == kind]


def column_vectors() -> list[Vector]:
    """Return the messages that carry a column."""
    return [vector for vector in of_kind("message") if vector.expect["message"].endswith("ColumnData")]


@cache
def builtin_roles() -> Roles:
    """Return the roles of the reconstruction."""
    return bind(load_schema(Path(__file__).parents[3] / "connectors" / "deephaven" / "schema.xml"))


@cache
def other_roles() -> Roles:
    """Return the roles of a schema that differs in everything that may differ."""
    return bind(load_schema(OTHER_SCHEMA))
