"""Says what may stand in the text of a command as it is, and binds or quotes all other names and texts.

The vendor documents no quoting for its own commands. So names and texts are bound, except in the login, which is one
text of several commands: what would need quoting there is refused. Nor is it documented that a parameter may be a word
of the command, such as the ``*`` for all: that one is pasted.
"""

from __future__ import annotations

from typing import Final

from connectors.sqlitecloud.messages import Listen, Statement

ALL: Final = "*"
"""Stands for all tables of a database, or, where a session is to hear no more, for all that it listens to."""

_QUOTES: Final = frozenset(";'\"`")


def may_be_pasted(word: str) -> bool:
    """Whether a name or secret is one word of a command, whatever the server thinks of quotes.

    No white space, control character, semicolon or quote; not empty; UTF-8.
    """
    return word.isprintable() and not any(letter in _QUOTES or letter.isspace() for letter in word) and word != ""


def quote_identifier(name: str) -> str:
    """Return a name as SQL text: in double quotes, those inside doubled (SQLite, "SQL Language Expressions").

    Raises:
        ValueError: The name has a NUL, which ends SQL text.
    """
    if "\0" in name:
        raise ValueError("a name cannot hold a NUL")
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def listen_table(table: str, database: str) -> Listen:
    """Ask for the changes of a table, or of `ALL`."""
    return Listen(_of_tables("LISTEN", table, database))


def listen_channel(channel: str) -> Listen:
    """Ask for the messages of a channel; of `ALL`, and of one called as a table, for changes, where servers do so."""
    return Listen(Statement(f"LISTEN {ALL};") if channel == ALL else Statement("LISTEN ?;", (channel,)))


def unlisten_table(table: str, database: str) -> Statement:
    """Ask for no more changes of a table, or of `ALL`."""
    return _of_tables("UNLISTEN", table, database)


def unlisten_channel(channel: str) -> Statement:
    """Ask for no more messages of a channel. Of `ALL`: for no more of anything."""
    return Statement(f"UNLISTEN {ALL};") if channel == ALL else Statement("UNLISTEN ?;", (channel,))


def notify(channel: str, payload: str | None = None) -> Statement:
    """Send a message to all that listen to a channel, ourselves included; one of None carries no payload."""
    return Statement("NOTIFY ?;", (channel,)) if payload is None else Statement("NOTIFY ? ?;", (channel, payload))


def create_channel(channel: str, *, if_missing: bool = False) -> Statement:
    """Make a channel. Refused when there is one, unless ``if_missing``."""
    return Statement(f"CREATE CHANNEL ?{' IF NOT EXISTS' if if_missing else ''};", (channel,))


def remove_channel(channel: str) -> Statement:
    """Remove a channel."""
    return Statement("REMOVE CHANNEL ?;", (channel,))


def _of_tables(command: str, table: str, database: str) -> Statement:
    if table == ALL:
        return Statement(f"{command} TABLE {ALL} DATABASE ?;", (database,))
    return Statement(f"{command} TABLE ? DATABASE ?;", (table, database))
