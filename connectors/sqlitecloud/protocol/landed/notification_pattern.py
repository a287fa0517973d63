"""Regular expressions that recognize a table's well-formed notifications without parsing them.

Most notifications have one form: words and columns in order, no white space, no repeated names. One regular expression
per table, built from its description, matches only texts that `payload.read_notification` accepts and that fit the
description. Other texts may fit too, and must be parsed. A second expression splits a matched text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from silverfold.connectors.sqlitecloud.protocol.landed.control import Description

Matcher: TypeAlias = Callable[[str], object]
"""Takes a text decoded with ``surrogateescape``; returns a true value if it need not be parsed."""

MOST_COLUMNS: Final = 100
"""Tables with more columns are always parsed: their expression would take long to compile."""

_UNESCAPED: Final = r'[^"\\\x00-\x1f\ud800-\udfff]*+'
_STRING: Final = rf'"{_UNESCAPED}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_UNESCAPED})*+"'
_NUMBER: Final = r"(?!-0[,}\]])-?(?:0|[1-9][0-9]{0,18}+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
"""Excludes -0, which is the integer 0: its literal alone might be taken for a real."""
_KEY_VALUE: Final = f"(?:{_NUMBER}|{_STRING})"
_VALUE: Final = f"(?:{_NUMBER}|{_STRING}|null|true|false)"
_PART: Final = r'("(?:[^"\\]++|\\.)*+"|[^",\]}]++)'
"""Any value in a matched text."""


class _Words(NamedTuple):
    """One vocabulary of `payload`."""

    kind: str
    key_names: str
    op: str
    old_key: str
    newer: frozenset[str] = frozenset()
    """Words that are looked up before its own."""


_VOCABULARIES: Final = (
    _Words("channel_type", "sqlite_pk_name", "sqlite_type", "sqlite_pk_value"),
    _Words("type", "pk", "type", "pv", newer=frozenset({"sqlite_type", "sqlite_pk_value"})),
)


def match_nothing(_text: str) -> None:
    """Match no text."""


@lru_cache(maxsize=256)
def compile_matcher(described: Description) -> Matcher:
    """Return a matcher for notifications of the table without unknown columns or another key."""
    tables = "|".join(_table_pattern(described, words) for words in _usable_vocabularies(described))
    if not tables:
        return match_nothing
    beginning = rf'\{{"sender":(?:"{_UNESCAPED}"|0),"channel":{_literal(described.table)},'
    return re.compile(rf"{beginning}(?:{tables})\}}").fullmatch


@lru_cache(maxsize=256)
def compile_splitter(described: Description) -> Callable[[str], list[tuple[str, ...]]]:
    """Return a function that splits a text matched by `compile_matcher`.

    It returns one tuple per entry, in order: the operation; the JSON literal of each of `Description.names`; then that
    of each old key column. Values not sent are empty.
    """
    vocabularies = _usable_vocabularies(described)
    op, old_key = "|".join(words.op for words in vocabularies), "|".join(words.old_key for words in vocabularies)
    columns = "".join(f"(?:,{_literal(name)}:{_PART})?+" for name in described.names)
    keys = _list_pattern(_PART for _ in described.keys)
    return re.compile(rf'\{{"(?:{op})":"([A-Z]++)"{columns}(?:,"(?:{old_key})":{keys})?+\}}').findall


def _usable_vocabularies(described: Description) -> list[_Words]:
    """Return the vocabularies whose words are not column names; none if there are too many columns."""
    names = set(described.names)
    if len(names) > MOST_COLUMNS:
        return []
    return [words for words in _VOCABULARIES if names.isdisjoint({words.op, words.old_key, *words.newer})]


def _table_pattern(described: Description, words: _Words) -> str:
    """Return the pattern for the text after the channel."""
    columns = "".join(
        f",{_literal(name)}:{_KEY_VALUE}" if name in described.keys else f"(?:,{_literal(name)}:{_VALUE})?+"
        for name in described.names
    )
    old_key = rf',"{words.old_key}":{_list_pattern(_KEY_VALUE for _ in described.keys)}'
    entry = rf'\{{"{words.op}":(?:"(?:INSERT|UPDATE)"{columns}(?:{old_key})?+|"DELETE"{old_key})\}}'
    key_names = _list_pattern(map(_literal, described.keys))
    payload = rf"\[(?:{entry}(?:,(?!\])|(?=\])))*+\]"
    return rf'"{words.kind}":"TABLE","{words.key_names}":{key_names},"payload":{payload}'


def _list_pattern(parts: Iterable[str]) -> str:
    return rf"\[{','.join(parts)}\]"


def _literal(name: str) -> str:
    return re.escape(json.dumps(name, ensure_ascii=False))
