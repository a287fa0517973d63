"""Tells that a notification of a table can be decoded and says nothing new, without reading it.

Most are written alike: words and columns in their order, without white space, no name twice. One regular expression a
table, made from its description, matches those of which `payload.read_notification` and the description tell as much.
What it does not match may be just as well, and has to be read. Another expression takes apart what was matched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from connectors.sqlitecloud.control import Description

Foresees: TypeAlias = Callable[[str], object]
"""Is given a text, decoded with ``surrogateescape``; what it returns is true where that need not be read."""

MOST_COLUMNS: Final = 100
"""Of a table with more, everything is read: its expression would take long to make."""

_PLAIN: Final = r'[^"\\\x00-\x1f\ud800-\udfff]*+'
_STRING: Final = rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*+"'
_NUMBER: Final = r"(?!-0[,}\]])-?(?:0|[1-9][0-9]{0,18}+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
"""Not -0, which is the integer 0: whoever has only the spelling might take it for a real."""
_NAMING: Final = f"(?:{_NUMBER}|{_STRING})"
_VALUE: Final = f"(?:{_NUMBER}|{_STRING}|null|true|false)"
_PART: Final = r'("(?:[^"\\]++|\\.)*+"|[^",\]}]++)'
"""Of what was matched, any value."""


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


def nothing(_text: str) -> None:
    """Foresee nothing."""


@lru_cache(maxsize=256)
def foresees(described: Description) -> Foresees:
    """Return what tells of a text that it is a notification of the table, with no other columns, and no other key."""
    tables = "|".join(_table(described, words) for words in _fitting(described))
    if not tables:
        return nothing
    beginning = rf'\{{"sender":(?:"{_PLAIN}"|0),"channel":{_spelt(described.table)},'
    return re.compile(rf"{beginning}(?:{tables})\}}").fullmatch


@lru_cache(maxsize=256)
def parts_of(described: Description) -> Callable[[str], list[tuple[str, ...]]]:
    """Return what takes a text apart that `foresees` matches.

    For each entry, in order: the operation; as JSON spells it, the value of each of `Description.names`, then of each
    of its keys before. What was not sent is empty.
    """
    fitting = _fitting(described)
    op, old_key = "|".join(words.op for words in fitting), "|".join(words.old_key for words in fitting)
    columns = "".join(f"(?:,{_spelt(name)}:{_PART})?+" for name in described.names)
    keys = _list(_PART for _ in described.keys)
    return re.compile(rf'\{{"(?:{op})":"([A-Z]++)"{columns}(?:,"(?:{old_key})":{keys})?+\}}').findall


def _fitting(described: Description) -> list[_Words]:
    """Return the vocabularies of which no column's name is a word, unless there are too many columns."""
    names = set(described.names)
    if len(names) > MOST_COLUMNS:
        return []
    return [words for words in _VOCABULARIES if names.isdisjoint({words.op, words.old_key, *words.newer})]


def _table(described: Description, words: _Words) -> str:
    """Match what follows the channel."""
    columns = "".join(
        f",{_spelt(name)}:{_NAMING}" if name in described.keys else f"(?:,{_spelt(name)}:{_VALUE})?+"
        for name in described.names
    )
    old_key = rf',"{words.old_key}":{_list(_NAMING for _ in described.keys)}'
    entry = rf'\{{"{words.op}":(?:"(?:INSERT|UPDATE)"{columns}(?:{old_key})?+|"DELETE"{old_key})\}}'
    key_names = _list(map(_spelt, described.keys))
    payload = rf"\[(?:{entry}(?:,(?!\])|(?=\])))*+\]"
    return rf'"{words.kind}":"TABLE","{words.key_names}":{key_names},"payload":{payload}'


def _list(parts: Iterable[str]) -> str:
    return rf"\[{','.join(parts)}\]"


def _spelt(name: str) -> str:
    return re.escape(json.dumps(name, ensure_ascii=False))
