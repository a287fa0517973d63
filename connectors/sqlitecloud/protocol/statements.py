"""SCSP statements: parameters are bound, identifiers quoted, and only safe words pasted.

The vendor documents no quoting for its own commands. Names and texts are therefore bound, except in the login, which is
one text of several commands: values that would need quoting there are rejected. It is not documented either that a
parameter may be a keyword, such as the ``*`` for all: that one is pasted.
"""

from __future__ import annotations

from typing import Final

from silverfold.connectors.sqlitecloud.protocol.messages import Listen, Statement

ALL: Final = "*"
"""All tables of a database; in UNLISTEN of a channel, all subscriptions of the session."""

_QUOTES: Final = frozenset(";'\"`")


def is_safe_word(word: str) -> bool:
    """Return whether a name or secret is a single word of a command, however the server treats quotes.

    It is non-empty UTF-8 without white space, control characters, semicolons and quotes.
    """
    return word.isprintable() and not any(letter in _QUOTES or letter.isspace() for letter in word) and word != ""


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier: in double quotes, inner ones doubled (SQLite, "SQL Language Expressions").

    Raises:
        ValueError: The name contains a NUL, which ends SQL text.
    """
    if "\0" in name:
        raise ValueError("a name cannot hold a NUL")
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def listen_table(table: str, database: str) -> Listen:
    """Subscribe to the changes of a table, or of `ALL`."""
    return Listen(_table_statement("LISTEN", table, database))


def listen_channel(channel: str) -> Listen:
    """Subscribe to a channel. With `ALL` or a table's name, some servers send changes instead."""
    return Listen(Statement(f"LISTEN {ALL};") if channel == ALL else Statement("LISTEN ?;", (channel,)))


def unlisten_table(table: str, database: str) -> Statement:
    """Unsubscribe from a table, or from `ALL`."""
    return _table_statement("UNLISTEN", table, database)


def unlisten_channel(channel: str) -> Statement:
    """Unsubscribe from a channel, or with `ALL` from everything."""
    return Statement(f"UNLISTEN {ALL};") if channel == ALL else Statement("UNLISTEN ?;", (channel,))


def notify(channel: str, payload: str | None = None) -> Statement:
    """Send a message to all listeners of a channel, ourselves included; None sends no payload."""
    return Statement("NOTIFY ?;", (channel,)) if payload is None else Statement("NOTIFY ? ?;", (channel, payload))


def create_channel(channel: str, *, if_missing: bool = False) -> Statement:
    """Create a channel. The server refuses if it exists, unless ``if_missing``."""
    return Statement(f"CREATE CHANNEL ?{' IF NOT EXISTS' if if_missing else ''};", (channel,))


def remove_channel(channel: str) -> Statement:
    """Remove a channel."""
    return Statement("REMOVE CHANNEL ?;", (channel,))


def _table_statement(command: str, table: str, database: str) -> Statement:
    if table == ALL:
        return Statement(f"{command} TABLE {ALL} DATABASE ?;", (database,))
    return Statement(f"{command} TABLE ? DATABASE ?;", (table, database))
