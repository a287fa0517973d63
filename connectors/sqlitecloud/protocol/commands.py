"""Recognition of the server's own commands and their operands; everything else is SQL.

Keywords may be in any case. An operand may be quoted, or be a question mark with a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from silverfold.connectors.sqlitecloud.protocol.messages import Value
from silverfold.connectors.sqlitecloud.protocol.sql_splitter import Word, first_word, words

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
    "GET DATABASE",
    "GET DATABASE NAME",
    "GET SQL table",
    "LIST CHANNELS",
    "LIST CLIENT KEYS",
    "LIST DATABASES",
    "LIST INDEXES",
    "LIST KEYWORDS",
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
    "REMOVE CLIENT KEY key",
    "REMOVE DATABASE database",
    "REMOVE DATABASE database IF EXISTS",
    "SET CLIENT KEY key TO value",
    "TEST what",
    "TEST what COMPRESSED",
    "UNLISTEN channel",
    "UNLISTEN TABLE table",
    "UNLISTEN TABLE table DATABASE database",
    "UNUSE DATABASE",
    "UPLOAD ABORT",
    "UPLOAD DATABASE database",
    "USE DATABASE database",
)
"""Upper-case words are keywords; lower-case words are operands."""

_BY_FIRST_WORD: Final = {
    first: [each.split() for each in _PATTERNS if each.split()[0] == first]
    for first in (pattern.split()[0] for pattern in _PATTERNS)
}
_OF_SERVICE: Final = frozenset(
    {
        *("ADD", "ANALYZER", "APPLY", "CLOSE", "DECRYPT", "DISABLE", "ENABLE", "ENCRYPT", "GRANT", "LOAD"),
        *("RENAME", "RESTORE", "REVOKE", "SLEEP", "TRANSFER"),
    }
)
"""First words of commands for administering the service. None begins a statement of SQL, nor a command of ours."""
_CREATED_BY_COMMANDS: Final = frozenset(["APIKEY", "CHANNEL", "DATABASE", "ROLE", "USER"])
_MAY_HOLD_SECRET: Final = re.compile(r"\b(?:P?AUTH|APIKEY|TOKEN|HASH|PASSWORD|SECRET|KEY)\b", re.IGNORECASE)
_LONGEST_QUOTE: Final = 200
"""Characters of a refused command that its error repeats."""


@dataclass(frozen=True)
class Command:
    """One of the server's own commands."""

    name: str
    """Its keywords, such as ``LISTEN TABLE``."""
    operands: dict[str, str]
    """Operand texts by name, with parameters substituted."""

    def __getitem__(self, operand: str) -> str:
        """Return the operand with this name."""
        return self.operands[operand]


class UnknownCommand(ValueError):
    """The text begins like one of the server's own commands, but is not valid. The message says why."""


class Parameters:
    """The parameters of a request, consumed from left to right across its statements."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._left = list(reversed(values))

    def take(self, count: int) -> list[Value]:
        """Return the next parameters, fewer if not as many remain."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def rest(self) -> list[Value]:
        """Return all remaining parameters."""
        return self.take(len(self._left))

    def text(self) -> str:
        """Return the next parameter as a command operand. Raise UnknownCommand if there is none of a valid type."""
        value = self._left.pop() if self._left else None
        if not isinstance(value, str | int):
            raise UnknownCommand("A question mark in such a command needs a parameter that is a text or an integer.")
        return str(value)


def parse_command(statement: str, parameters: Parameters) -> Command | None:
    """Parse a statement as a command, with parameters substituted; return None for SQL.

    Raises:
        UnknownCommand: The statement begins like a command, but does not match one.
    """
    first = first_word(statement)
    if first not in _BY_FIRST_WORD and first not in _OF_SERVICE:
        return None
    given = words(statement) or []
    patterns = _BY_FIRST_WORD.get(first, [])
    for pattern in patterns:
        if (operands := _operands(pattern, given)) is not None:
            named = {name: parameters.text() if word.is_parameter else word.text for name, word in operands.items()}
            return Command(" ".join(filter(str.isupper, pattern)), named)
    if first == "CREATE" and not any(word.text.upper() in _CREATED_BY_COMMANDS for word in given[1:2]):
        return None
    known = "; ".join(" ".join(pattern) for pattern in patterns)
    hint = f"known are, without comments: {known}." if known else f"no command of this server begins with {first}."
    raise UnknownCommand(f"Unable to find command {_quoted(statement, first)}; {hint}")


def _quoted(statement: str, first: str) -> str:
    """Return what an error repeats of a command: its first word only if a secret may follow."""
    return f"{first} ..." if _MAY_HOLD_SECRET.search(statement) else statement[:_LONGEST_QUOTE]


def _operands(pattern: list[str], given: list[Word]) -> dict[str, Word] | None:
    if len(pattern) != len(given):
        return None
    found: dict[str, Word] = {}
    for expected, word in zip(pattern, given, strict=True):
        if not expected.isupper():
            found[expected] = word
        elif word.quoted or word.text.upper() != expected:
            return None
    return found
