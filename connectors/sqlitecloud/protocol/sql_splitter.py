"""Splitting of request text into statements, and of the server's own commands into words.

A request contains any number of statements separated by ``;``. Quotes, comments and trigger bodies may contain that
character too. Parameters of question marks are consumed from left to right across all statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import apsw

_LEXEMES: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<quoted>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`|\[[^\]]*\])
    |(?P<end>;)
    |(?P<word>[^\s;'"`\[/-]+|.)""",
    re.DOTALL | re.VERBOSE,
)
_OPERANDS: Final = re.compile(
    r"""\s*,?\s*(?:'(?P<single>[^']*(?:''[^']*)*)'|"(?P<double>[^"]*(?:""[^"]*)*)"|(?P<bare>[^\s,'"]+))(?=[\s,]|\Z)"""
)
_NAME: Final = re.compile(r"\w*")
_TRIGGER: Final = re.compile(r"(?:EXPLAIN\s+)?CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?TRIGGER\b", re.IGNORECASE)


class Word(NamedTuple):
    """A word of a command."""

    text: str
    """Without quotes, if it had any."""
    quoted: bool = False

    @property
    def is_parameter(self) -> bool:
        """Whether the word is a parameter placeholder."""
        return self.text == "?" and not self.quoted


def split(text: str) -> Iterator[str]:
    """Yield the statements of a text, without the terminating ``;``; empty ones are skipped."""
    begin, is_empty = 0, True
    for lexeme in _LEXEMES.finditer(text):
        if lexeme.lastgroup == "end" and _is_complete(text[begin : lexeme.end()]):
            if not is_empty:
                yield text[begin : lexeme.start()].strip()
            begin, is_empty = lexeme.end(), True
        elif lexeme.lastgroup != "blank":
            is_empty = False
    if not is_empty:
        yield text[begin:].strip()


def first_word(statement: str) -> str:
    """Return the first word of a statement in upper case, after comments; empty if there is none."""
    for lexeme in _LEXEMES.finditer(statement):
        if lexeme.lastgroup != "blank":
            return "".join(_NAME.findall(lexeme[0])[:1]).upper()
    return ""


def words(statement: str) -> list[Word] | None:
    """Return the words of one of the server's own commands; None if it cannot be split, as with an unclosed quote."""
    found, at = [], 0
    while (operand := _OPERANDS.match(statement, at)) is not None:
        found.append(_word(operand))
        at = operand.end()
    return None if statement[at:].strip() else found


def _word(operand: re.Match[str]) -> Word:
    match operand.lastgroup:
        case "single":
            return Word(operand["single"].replace("''", "'"), quoted=True)
        case "double":
            return Word(operand["double"].replace('""', '"'), quoted=True)
        case _:
            return Word(operand["bare"])


def _is_complete(statement: str) -> bool:
    return not _TRIGGER.match(statement.lstrip()) or apsw.complete(statement)
