"""Loads the schema a feed speaks: our reconstruction, or the vendor's own XML given by its path."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from connectors.deephaven.binding import bind
from connectors.deephaven.groups import TextErrors
from connectors.deephaven.roles import Roles
from connectors.wire.sbe.model import Schema
from connectors.wire.sbe.schema import load_schema

BUILTIN = "builtin"
"""Name of the reconstruction that ships with this connector. It is not the vendor's file."""


def load_transport_schema(schema: str = BUILTIN) -> Schema:
    """Return the schema of a name or path. Raises SchemaError when the file is missing or wrong."""
    return _builtin() if schema == BUILTIN else load_schema(Path(schema))


def load_roles(schema: str = BUILTIN, text: TextErrors = "strict") -> Roles:
    """Return the roles of a schema, in its own byte order. Raises SchemaError as above, and for missing parts.

    Args:
        text: What becomes of bytes in a cell that are no text.
    """
    return _builtin_roles(text) if schema == BUILTIN else bind(load_schema(Path(schema)), text=text)


@cache
def _builtin() -> Schema:
    return load_schema((files("connectors.deephaven") / "schema.xml").read_bytes(), file=BUILTIN)


@cache
def _builtin_roles(text: TextErrors) -> Roles:
    return bind(_builtin(), text=text)
