"""Loads the schema a feed speaks: the one its settings name, or the one that comes with the simulator."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from conf.errors import SchemaError
from connectors.wire.sbe.document import includes_files, whole_text
from connectors.wire.sbe.model import Message, Schema
from connectors.wire.sbe.schema import load_schema

BUILTIN = "builtin"
"""Name of the schema that ``silverfold simulate sbe`` speaks."""


def schema_text(schema: str) -> bytes:
    """Return the XML of a name or path, with all it includes. Raises SchemaError when it cannot be read."""
    if schema == BUILTIN:
        return (files("connectors.sbe") / "market.xml").read_bytes()
    try:
        text = Path(schema).read_bytes()
    except OSError as error:
        raise SchemaError(f"cannot be read: {error.strerror}", file=schema) from error
    return whole_text(Path(schema)) if _is_part(text, schema) else text


@lru_cache(maxsize=16)
def _is_part(text: bytes, schema: str) -> bool:
    return includes_files(text, file=schema)


def feed_schema(schema: str) -> Schema:
    """Return the schema of a name or path, read anew when the file, or one that it includes, has changed.

    Raises:
        SchemaError: The file is missing or wrong; ``errors`` has all that is.
    """
    return _loaded(schema, schema_text(schema))


@lru_cache(maxsize=16)
def _loaded(schema: str, text: bytes) -> Schema:
    return load_schema(text, file=BUILTIN) if schema == BUILTIN else load_schema(Path(schema))


def template_of(schema: Schema, table: str, source: str) -> Message:
    """Return the message that feeds a table: the one its settings name, else the one that is called as it is.

    Raises:
        SchemaError: The schema has no such message.
    """
    name = source or table
    if name not in schema.messages:
        raise SchemaError(f"there is no message {name}, only {', '.join(schema.messages)}", file=schema.file)
    return schema.messages[name]


def stream_of(message: Message) -> str:
    """Return the stream of a template: its id, which it has whether or not the schema of the day knows it yet."""
    return str(message.id)
