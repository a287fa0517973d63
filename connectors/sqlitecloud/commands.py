"""Tells which commands are the server's own, and what they ask for; everything else is SQL.

Words of a command may be in any case; one that stands for a name may be quoted, or be a question mark with a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from connectors.sqlitecloud.messages import Value
from connectors.sqlitecloud.sql_splitter import Word, first_word, words

_PATTERNS: Final = (
    "AUTH APIKEY secret",
    "AUTH TOKEN secret",
    "AUTH USER user PASSWORD secret",
    "AUTH USER user HASH secret",
    "CREATE CHANNEL channel",
    "CREATE CHANNEL channel IF NOT EXISTS",
    "CREATE DATABASE database",
    "CREATE DATABASE database IF NOT EXISTS",
    "DOWNLOAD ABORT",
    "DOWNLOAD DATABASE database",
    "DOWNLOAD DATABASE database IF EXISTS",
    "DOWNLOAD STEP",
    "GET CLIENT KEY key",
    "GET SQL table",
    "LIST CHANNELS",
    "LIST CLIENT KEYS",
    "LIST METADATA",
    "LIST METADATA TABLE table",
    "LIST PUBSUB CONNECTIONS",
    "LIST TABLES",
    "LIST TABLES PUBSUB",
    "LISTEN channel",
    "LISTEN channel DATABASE database",
    "LISTEN TABLE table",
    "LISTEN TABLE table DATABASE database",
    "NOTIFY channel",
    "NOTIFY channel payload",
    "PAUTH uuid secret",
    "PING",
    "PUBSUB ONLY",
    "REMOVE CHANNEL channel",
    "REMOVE DATABASE database",
    "REMOVE DATABASE database IF EXISTS",
    "SET CLIENT KEY key TO value",
    "TEST what",
    "UNLISTEN channel",
    "UNLISTEN TABLE table",
    "UNLISTEN TABLE table DATABASE database",
    "UNUSE DATABASE",
    "UPLOAD ABORT",
    "UPLOAD DATABASE database",
    "USE DATABASE database",
)
"""Words in capitals stand for themselves, others for what the command gives."""

_BY_FIRST_WORD: Final = {
    first: [each.split() for each in _PATTERNS if each.split()[0] == first]
    for first in (pattern.split()[0] for pattern in _PATTERNS)
}
_ALSO_SQL: Final = frozenset({"CREATE"})


@dataclass(frozen=True)
class Command:
    """A command of the server's own."""

    name: str
    """Its fixed words, such as ``LISTEN TABLE``."""
    operands: dict[str, str]
    """What it gives, by name: texts, with parameters put in."""

    def __getitem__(self, operand: str) -> str:
        """Return what the command gives by a name."""
        return self.operands[operand]


class UnknownCommand(ValueError):
    """A text begins as a command of the server's own, and is none. Says what is wrong."""


class Parameters:
    """The values that the question marks of a request stand for, used up from left to right over its statements."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._left = list(reversed(values))

    def take(self, count: int) -> list[Value]:
        """Return the next ones, fewer where there are not as many."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def rest(self) -> list[Value]:
        """Return all that are left."""
        return self.take(len(self._left))

    def text(self) -> str:
        """Return the next one, for a word of a command. Raises UnknownCommand when there is none that can be one."""
        value = self._left.pop() if self._left else None
        if not isinstance(value, str | int):
            raise UnknownCommand("A question mark in such a command needs a parameter that is a text or an integer.")
        return str(value)


def command_of(statement: str, parameters: Parameters) -> Command | None:
    """Return the command that a statement is, with parameters put in; None for SQL.

    Raises:
        UnknownCommand: The statement begins like a command, and goes on like none.
    """
    first = first_word(statement)
    if first not in _BY_FIRST_WORD:
        return None
    given = words(statement) or []
    for pattern in _BY_FIRST_WORD.get(first, ()):
        if (operands := _operands(pattern, given)) is not None:
            named = {name: parameters.text() if word.is_place else word.text for name, word in operands.items()}
            return Command(" ".join(filter(str.isupper, pattern)), named)
    if first in _ALSO_SQL:
        return None
    raise UnknownCommand(f"Unknown command: {first} cannot go on like that.")


def _operands(pattern: list[str], given: list[Word]) -> dict[str, Word] | None:
    if len(pattern) != len(given):
        return None
    found: dict[str, Word] = {}
    for wanted, word in zip(pattern, given, strict=True):
        if not wanted.isupper():
            found[wanted] = word
        elif word.quoted or word.text.upper() != wanted:
            return None
    return found
