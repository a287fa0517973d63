"""Loads the schema of a feed: our reconstruction, or the vendor's own XML by its path."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.groups import TextErrors
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

BUILTIN = "builtin"
"""Name of the reconstruction shipped with this connector. It is not the vendor's file."""


def load_transport_schema(schema: str = BUILTIN) -> Schema:
    """Return the schema for a name or path. Raises SchemaError when the file is missing or invalid."""
    return _builtin() if schema == BUILTIN else load_schema(Path(schema))


def load_roles(schema: str = BUILTIN, text: TextErrors = "strict") -> Roles:
    """Return the roles of a schema, in its own byte order.

    Raises SchemaError when the file is missing or invalid, or lacks a part of the transport.

    Args:
        text: How to handle bytes in a cell that are not valid text.
    """
    return _builtin_roles(text) if schema == BUILTIN else bind(load_schema(Path(schema)), text=text)


@cache
def _builtin() -> Schema:
    return load_schema((files("silverfold.connectors.deephaven") / "schema.xml").read_bytes(), file=BUILTIN)


@cache
def _builtin_roles(text: TextErrors) -> Roles:
    return bind(_builtin(), text=text)
