"""Loads a feed's schema: the one named in its settings, or the simulator's built-in one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from silverfold.conf.errors import SchemaError
from silverfold.conf.files import read_whole
from silverfold.connectors.wire.sbe.schema.document import Element, document_xml, includes_files, read_document
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Message, Schema

BUILTIN = "builtin"
"""Name of the schema that ``silverfold simulate sbe`` uses."""
BUILTIN_FILE: Final = Path(str(files("silverfold.connectors.sbe") / "market.xml"))


@dataclass(frozen=True)
class SchemaText:
    """The text of a schema as read at one moment, independent of later changes to its file. Equal by file and text."""

    file: str
    text: bytes
    """The XML, with all includes."""
    source: bytes | Element = field(compare=False, repr=False)
    """The same, with files and lines to name in errors."""
    accept: tuple[str, ...] = ()
    """Codes of errors to take as warnings (`connectors.wire.sbe.schema.load.load_schema`)."""

    def load(self) -> Schema:
        """Return the schema. Raises SchemaError if it is invalid; ``errors`` has all errors."""
        return _loaded(self)


def read_schema(schema: str, accept: tuple[str, ...] = ()) -> SchemaText:
    """Return the current text for a name or path. Raises SchemaError if it cannot be read."""
    if schema == BUILTIN:
        text = BUILTIN_FILE.read_bytes()
        return SchemaText(schema, text, text, accept)
    try:
        text = read_whole(Path(schema))
    except OSError as error:
        raise SchemaError(f"cannot be read: {error.strerror}", file=schema) from error
    if not _is_part(text, schema):
        return SchemaText(schema, text, text, accept)
    root = read_document(Path(schema), file=schema)
    return SchemaText(schema, document_xml(root), root, accept)


@lru_cache(maxsize=16)
def _is_part(text: bytes, schema: str) -> bool:
    return includes_files(text, file=schema)


def feed_schema(schema: str, accept: tuple[str, ...] = ()) -> Schema:
    """Return the schema for a name or path, reloaded if the file, or one that it includes, has changed.

    Raises:
        SchemaError: The file is missing or invalid; ``errors`` has all errors.
    """
    return read_schema(schema, accept).load()


@lru_cache(maxsize=16)
def _loaded(read: SchemaText) -> Schema:
    return load_schema(read.source, file=read.file, accept=read.accept)


def template_of(schema: Schema, table: str, source: str) -> Message:
    """Return the message that feeds a table: the one named in its settings, else the one named like the table.

    Raises:
        SchemaError: The schema has no such message.
    """
    name = source or table
    if name not in schema.messages:
        raise SchemaError(f"there is no message {name}, only {', '.join(schema.messages)}", file=schema.file)
    return schema.messages[name]


def stream_of(message: Message) -> str:
    """Return the stream of a template: its id, which is the same whether or not the current schema knows it."""
    return str(message.id)
