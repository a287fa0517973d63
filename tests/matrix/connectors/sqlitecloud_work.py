"""The database served by the simulator, and random transactions on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

DATABASE = "music.db"
SCHEMA = """
CREATE TABLE artist(id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE, price NUMERIC, n INT, x REAL, cover BLOB,
    anything, flag BOOLEAN);
CREATE TABLE pair(v, k TEXT, nr INTEGER, told TEXT, PRIMARY KEY (nr, k)) WITHOUT ROWID;
CREATE TABLE tag(name TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, price NUMERIC, told TEXT);
"""
KEYS: Mapping[str, list[str]] = {"artist": ["id"], "pair": ["nr", "k"], "tag": ["name"]}
KINDS: Mapping[str, Mapping[str, str]] = {
    "artist": {"id": "bigint", "n": "bigint", "x": "double", "cover": "binary"},
    "pair": {"nr": "bigint"},
    "tag": {},
}
"""Types of silver columns that are not text, by table and column."""

Sql = tuple[str, tuple[Any, ...]]

_TEXTS = (None, "", *["it's"] * 4, "${x}", "é\U0001d11e", "x" * 400, "\n", '"', "31/12/2024", "a\0b")
_VALUES: Mapping[str, tuple[Any, ...]] = {
    "name": ("n", "it's", ""),
    "born": (None, "1999-01-02", 2000, "31/12/2024"),
    "price": (None, 3, 3.25, -0.5, 10**12, 0.1),
    "n": (None, 0, 7, 2**62, 2**53 + 1, 2**63 - 1, -1, -1, -1),
    "x": (None, 0.0, 1.5, 1e300, 5e-324, float("inf"), float("-inf"), 3),
    "cover": (None, b"", b"\0", b"it's", b"x" * 300),
    "anything": (None, 1, 2.5, "1", "text", 2**62, "", 1e22),
    "flag": (None, 0, 1),
    "told": _TEXTS,
    "v": (None, 1, "1", 2.5, "é"),
}
_KEYS_OF_TAGS = ("a", "A", "b", "B", "é", "É", "z z")


class Work:
    """Draws random statements.

    Args:
        exact: Prices are always numbers.
        ascii_blobs: Blobs contain ASCII text only.
    """

    def __init__(self, rng: Random, *, exact: bool, ascii_blobs: bool) -> None:
        self._rng, self._numbers = Random(rng.random()), 1_000
        self._values = dict(_VALUES)
        if not exact:
            self._values["price"] += ("free",)
        if not ascii_blobs:
            self._values["cover"] += (b"\xff\xfe",)

    def number(self) -> int:
        """Return a number not used before."""
        self._numbers += 1
        return self._numbers

    def transaction(self) -> list[Sql]:
        """Return the statements of one transaction; any of them may fail."""
        return [
            each
            for _ in range(self._rng.randint(1, 4))
            for each in self._rng.choice([self._artists, self._pairs, self._tags])()
        ]

    def _value(self, name: str) -> Any:
        return self._rng.choice(self._values[name])

    def _artists(self) -> Iterator[Sql]:
        a, b = self._rng.randint(1, 12), self._rng.randint(1, 12)
        columns = ("name", "born", "price", "n", "x", "cover", "anything", "flag")
        some = self._rng.sample(columns, self._rng.randint(1, 3))
        kind = self._rng.randrange(7)
        if kind <= 1:
            verb = "INSERT OR REPLACE" if kind else "INSERT OR IGNORE"
            names = ", ".join(("id", *columns))
            yield f"{verb} INTO artist({names}) VALUES (?{', ?' * len(columns)})", (a, *map(self._value, columns))
        elif kind <= 3:
            assignments = ", ".join(f"{name} = ?" for name in some)
            yield f"UPDATE artist SET {assignments} WHERE id BETWEEN ? AND ?", (*map(self._value, some), a, a + 2)
        elif kind == 4:
            yield "UPDATE artist SET id = ?, n = 7 WHERE id = ?", (a, b)
        elif kind == 5:
            yield "UPDATE artist SET id = -1 WHERE id = ?", (a,)
            yield "UPDATE artist SET id = ? WHERE id = ?", (a, b)
            yield "UPDATE artist SET id = ? WHERE id = -1", (b,)
        else:
            yield "DELETE FROM artist WHERE id IN (?, ?, -1)", (a, b)

    def _pairs(self) -> Iterator[Sql]:
        nr, k, other = self._rng.randint(1, 4), self._rng.choice(["x", 'y"', "ü;", ""]), self._rng.randint(1, 4)
        yield self._rng.choice(
            [
                ("INSERT OR REPLACE INTO pair(nr, k, v, told) VALUES (?, ?, ?, ?)", (nr, k, *self._pair())),
                ("INSERT OR IGNORE INTO pair(nr, k, v, told) VALUES (?, ?, ?, ?)", (nr, k, *self._pair())),
                ("UPDATE pair SET v = ? WHERE k = ?", (self._value("v"), k)),
                ("UPDATE pair SET nr = ? WHERE nr = ? AND k = ?", (other, nr, k)),
                ("UPDATE pair SET k = k || ?, told = ? WHERE nr = ? AND k <> ''", ("+", self._value("told"), nr)),
                ("DELETE FROM pair WHERE nr = ? AND k = ? OR length(k) > 4", (nr, k)),
            ]
        )

    def _pair(self) -> tuple[Any, Any]:
        return self._value("v"), self._value("told")

    def _tags(self) -> Iterator[Sql]:
        name, other = self._rng.choice(_KEYS_OF_TAGS), self._rng.choice(_KEYS_OF_TAGS)
        values = (name, self._value("price"), self._value("told"))
        yield self._rng.choice(
            [
                ("INSERT OR REPLACE INTO tag(name, price, told) VALUES (?, ?, ?)", values),
                ("INSERT OR IGNORE INTO tag(name, price, told) VALUES (?, ?, ?)", values),
                ("UPDATE tag SET price = ? WHERE name = ?", (self._value("price"), name)),
                ("UPDATE tag SET name = ? WHERE name = ?", (other, name)),
                ("UPDATE tag SET name = upper(name)", ()),
                ("DELETE FROM tag WHERE name = ?", (name,)),
            ]
        )
