"""Generation of plausible column values, from the declared type and from existing values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from random import Random
from typing import Final

from silverfold.connectors.sqlitecloud.server.pubsub.capture import SqliteValue

_WORDS: Final = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heath",
    "islet",
    "juniper",
    "kelp",
    "larch",
    "maple",
    "north",
    "oak",
    "pine",
]
_FIRST_DAY: Final = date(2020, 1, 1)
_LARGEST: Final = (1 << 63) - 1


def _flag(chance: Random) -> SqliteValue:
    return chance.randrange(2)


def _day(chance: Random) -> str:
    return str(_FIRST_DAY + timedelta(days=chance.randrange(2_000)))


def _moment(chance: Random) -> SqliteValue:
    return f"{_day(chance)} {chance.randrange(24):02}:{chance.randrange(60):02}:00"


def _integer(chance: Random) -> SqliteValue:
    return chance.randrange(1_000)


def _text(chance: Random) -> SqliteValue:
    return " ".join(chance.choices(_WORDS, k=chance.randint(1, 3)))


def _blob(chance: Random) -> SqliteValue:
    return chance.randbytes(chance.randrange(16))


def _decimal(chance: Random) -> SqliteValue:
    return round(chance.uniform(0, 1_000), 2)


_MAKERS: Final[tuple[tuple[tuple[str, ...], Callable[[Random], SqliteValue]], ...]] = (
    (("BOOL",), _flag),
    (("TIME",), _moment),
    (("DATE",), _day),
    (("INT",), _integer),
    (("CHAR", "CLOB", "TEXT"), _text),
    (("BLOB",), _blob),
)
"""By substring of the declared type; the first match applies. Other types are numeric."""


def random_value(declared: str, chance: Random) -> SqliteValue:
    """Return a value for a column of a declared type, which SQLite does not restrict (SQLite, "Datatypes", 3.1)."""
    for parts, make in _MAKERS:
        if any(part in declared.upper() for part in parts):
            return make(chance)
    if declared:
        return _decimal(chance)
    anything: list[SqliteValue] = [chance.randrange(100), chance.choice(_WORDS), chance.random()]
    return chance.choice(anything)


def random_like(value: SqliteValue, declared: str, chance: Random) -> SqliteValue:
    """Return a value similar to the given one, usually a different one."""
    match value:
        case None:
            return random_value(declared, chance)
        case bool() | int():
            return value if abs(value) == _LARGEST else value + chance.choice((-1, 1)) * chance.randint(1, 5)
        case float():
            return round(value * chance.uniform(0.9, 1.1), 2)
        case bytes():
            return chance.randbytes(len(value) or 4)
        case str():
            return _varied_text(value, declared, chance)


def new_key(value: SqliteValue, highest: SqliteValue, declared: str, chance: Random) -> SqliteValue:
    """Return a key value that is probably unused.

    Args:
        value: One that is in use; None if there is none.
        highest: The highest that is in use.
    """
    if isinstance(highest, int) and 0 <= highest < _LARGEST - 10:
        return highest + chance.randint(1, 3)
    if isinstance(value, str):
        return f"{value.partition('~')[0]}~{chance.randrange(1 << 32):08x}"
    return random_like(value, declared, chance)


def _varied_text(value: str, declared: str, chance: Random) -> str:
    if value.lstrip("-").isdecimal() and value.isascii():
        return str(int(value[:18]) + chance.randint(1, 9))
    if "DATE" in declared.upper() or "TIME" in declared.upper():
        return str(random_value(declared, chance))
    return " ".join([*value.split()[:3], chance.choice(_WORDS)])
