"""Encoding of notifications: the JSON text sent for a commit, one per table, and for a channel message.

It is not documented how the hosted service encodes every SQLite value, nor which of the two vocabularies it uses now; a
`Dialect` selects a variant. Members follow the order of the service's own samples: the kind of message or operation
first, the old key last. A column may be named like a reserved word: the text then contains that name twice.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, SqliteValue, TableChanges

_AS_JSON: Final = json.JSONEncoder(ensure_ascii=False).encode
_EXACT_IN_DOUBLES: Final = 1 << 53


class Vocabulary(StrEnum):
    """The reserved words in use."""

    OLD = "old"
    """The words until July 2025."""
    NEW = "new"
    """The words since then."""
    MIXED = "mixed"
    """Some of each, to test that readers look up each word separately."""


class Words(NamedTuple):
    """The reserved words of a message."""

    kind: str
    """In the envelope: ``MESSAGE`` or ``TABLE``."""
    key_names: str
    """In the envelope: the names of the key columns."""
    op: str
    """In an entry: ``INSERT``, ``UPDATE`` or ``DELETE``."""
    old_key: str
    """In an entry: the key before the change."""


WORDS: Final = {
    Vocabulary.OLD: Words(kind="type", key_names="pk", op="type", old_key="pv"),
    Vocabulary.NEW: Words(kind="channel_type", key_names="sqlite_pk_name", op="sqlite_type", old_key="sqlite_pk_value"),
    Vocabulary.MIXED: Words(kind="channel_type", key_names="pk", op="type", old_key="sqlite_pk_value"),
}


@dataclass(frozen=True)
class Dialect:
    """Encoding choices that the documentation leaves open.

    Args:
        words: The reserved words.
        old_key: Whether an UPDATE always includes the old key, or only when the key changed.
        null: Whether NULL is written, or the column omitted.
        blob: The encoding of BLOBs; ``text`` writes them as UTF-8, U+FFFD for bytes that are none.
        large_integers: The encoding of integers that a double cannot represent.
    """

    words: Vocabulary = Vocabulary.NEW
    old_key: Literal["changed", "always"] = "changed"
    null: Literal["null", "absent"] = "null"
    blob: Literal["base64", "hex", "text", "absent"] = "base64"
    large_integers: Literal["number", "text"] = "number"


def message_text(dialect: Dialect, *, sender: str, channel: str, payload: str | None) -> str:
    """Return the JSON of a channel message; the payload member is omitted if None.

    Args:
        sender: The uuid of the sending session, as JSON.
    """
    kind = WORDS[dialect.words].kind
    members = [("sender", sender), ("channel", _text(channel)), (kind, '"MESSAGE"')]
    return _object([*members, *([] if payload is None else [("payload", _text(payload))])])


def table_text(dialect: Dialect, *, sender: str, changes: TableChanges) -> str:
    """Return the JSON for the changes of one transaction to one table.

    Args:
        sender: The uuid of the committing session, as JSON.
    """
    words = WORDS[dialect.words]
    return _object(
        [
            ("sender", sender),
            ("channel", _text(changes.table)),
            (words.kind, '"TABLE"'),
            (words.key_names, _list(map(_text, changes.key))),
            ("payload", _list(_object(_entry(dialect, change)) for change in changes.changes)),
        ]
    )


def sender_text(uuid: str | None, *, server: Literal["number", "text"] = "text") -> str:
    """Return a sender as JSON: a session's uuid, or zero for the server itself (uuid None)."""
    if uuid is not None:
        return _text(uuid)
    return "0" if server == "number" else '"0"'


def _entry(dialect: Dialect, change: RowChange) -> Iterator[tuple[str, str]]:
    words = WORDS[dialect.words]
    yield words.op, f'"{change.op}"'
    for name, value in change.values.items():
        if (written := _value(dialect, value)) is not None:
            yield name, written
    if change.op == "DELETE" or (change.op == "UPDATE" and (change.key_changed or dialect.old_key == "always")):
        yield words.old_key, _list(_value(dialect, value) or "null" for value in change.old_key)


def _value(dialect: Dialect, value: SqliteValue) -> str | None:
    """Return a value as JSON; None if it is omitted."""
    match value:
        case None:
            return "null" if dialect.null == "null" else None
        case int():
            large = abs(value) > _EXACT_IN_DOUBLES and dialect.large_integers == "text"
            return f'"{value}"' if large else str(value)
        case float():
            return _real(value)
        case bytes():
            return _blob(dialect, value)
        case str():
            return _text(value)


def _real(value: float) -> str:
    if math.isinf(value):
        return "9.0e+999" if value > 0 else "-9.0e+999"
    return repr(value)


def _blob(dialect: Dialect, value: bytes) -> str | None:
    match dialect.blob:
        case "base64":
            return _text(base64.b64encode(value).decode())
        case "hex":
            return _text(value.hex())
        case "text":
            return _text(value.decode(errors="replace"))
        case "absent":
            return None


def _object(members: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_text(name)}:{value}" for name, value in members) + "}"


def _list(values: Iterator[str]) -> str:
    return "[" + ",".join(values) + "]"


def _text(value: str) -> str:
    return _AS_JSON(value)
