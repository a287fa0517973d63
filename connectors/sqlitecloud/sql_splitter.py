"""Cuts the text of a request into statements, and the statements of the server's own into words.

A request holds any number of statements with ``;`` between them. Quotes, comments and the bodies of triggers may hold
that character too. The values that question marks stand for are used up from left to right over all statements.
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
    """Without its quotes, if it had any."""
    quoted: bool = False

    @property
    def is_place(self) -> bool:
        """Whether a parameter is to stand there."""
        return self.text == "?" and not self.quoted


def split(text: str) -> Iterator[str]:
    """Give the statements of a text, without the ``;`` that ends them; those that say nothing are left out."""
    begin, silent = 0, True
    for lexeme in _LEXEMES.finditer(text):
        if lexeme.lastgroup == "end" and _is_whole(text[begin : lexeme.end()]):
            if not silent:
                yield text[begin : lexeme.start()].strip()
            begin, silent = lexeme.end(), True
        elif lexeme.lastgroup != "blank":
            silent = False
    if not silent:
        yield text[begin:].strip()


def first_word(statement: str) -> str:
    """Return the first word of a statement in capitals, behind comments; empty where there is none."""
    for lexeme in _LEXEMES.finditer(statement):
        if lexeme.lastgroup != "blank":
            return "".join(_NAME.findall(lexeme[0])[:1]).upper()
    return ""


def words(statement: str) -> list[Word] | None:
    """Return the words of a command of the server's own; None when they cannot be told, for a lone quote, say."""
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


def _is_whole(statement: str) -> bool:
    return not _TRIGGER.match(statement.lstrip()) or apsw.complete(statement)
