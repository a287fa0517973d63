"""A live table of the simulator, changed at random; records the changes sent to a subscriber without snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.rows import NetChange
from tests.matrix.connectors.world import Row
from tests.matrix.values import DOMAINS

COLUMNS = {
    "Id": "Long",
    "Sym": "String",
    "Num": "Int",
    "Dbl": "Double",
    "At": "DateTime",
    "Dec": "Decimal",
    "Flag": "Boolean",
    "Ch": "Char",
    "Ats": "DateTimeArray",
    "Words": "StringArray",
    "Tags": "StringSet",
    "Small": "Short",
}
MORE = {"More": "String"}
"""Columns added later."""

_MOMENTS = (0, 1, -1, 999, -1001, 1_700_000_000_123_456_789, 2**63 - 1, 1 - 2**63)
_SHORT_TEXTS = [text for text in DOMAINS["text"].nasty if len(text) < 100]
_DOUBLES = [value for value in DOMAINS["double"].nasty if value != -1.7976931348623157e308]
_VALUES: Mapping[str, list[Any]] = {
    "Sym": [*_SHORT_TEXTS, "x"],
    "Num": [0, 1, 49, 50, 89, 90, 99, 2**31 - 1, 1 - 2**31],
    "Dbl": _DOUBLES,
    "At": [*_MOMENTS],
    "Dec": [Decimal(0), Decimal("1.5"), Decimal("-12.3456"), Decimal(10) ** 20],
    "Flag": [True, False],
    "Ch": ["a", "\uffff", "\0", "é"],
    "Ats": [[], [0], [None, *_MOMENTS[:4]]],
    "Words": [[], [None], ["", "it's", None, "é"]],
    "Tags": [[], ["b", "a"], ["", "z", "é"]],
    "Small": [0, -1, 2**15 - 1, 1 - 2**15],
    "More": ["m", "", "\0"],
}
_WILD_DECIMALS = [Decimal("1E+3"), Decimal("1E-30"), Decimal(10) ** 60, Decimal("0.00")]


class SentChange(NamedTuple):
    """One change as sent to a subscriber."""

    op: str
    key: int
    row: Row
    """The columns sent."""
    present: tuple[str, ...] | None
    """Their names, sorted; None if all columns were sent."""


class Source:
    """A live table with random changes.

    Args:
        passes: Returns whether a row passes the subscriber's filter.
        subscribed: The columns subscribed to; empty means all.
        is_good: A predicate that all rows meet.
        wild: Decimals may have any scale.
        named: Strings are never NULL.
    """

    def __init__(
        self,
        rng: Random,
        *,
        passes: Callable[[Row], bool],
        subscribed: tuple[str, ...],
        is_good: Callable[[Row], bool],
        wild: bool,
        named: bool,
        partial: bool,
    ) -> None:
        self._rng, self.passes, self._is_good, self._wild, self._named = rng, passes, is_good, wild, named
        self._subscribed, self._partial, self._numbers = subscribed, partial, 0
        self.sent_changes: list[SentChange] = []
        self._delta: NetChange | None = None
        self._follow(LiveTable(COLUMNS, partial_columns=partial))

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Columns sent to the subscriber."""
        return self._subscribed or tuple(self.live.columns)

    @property
    def has_new_listener(self) -> bool:
        """Whether there is a listener that did not exist at the last call of `leave`."""
        return not self._known.issuperset(self.live._listeners)

    def leave(self) -> None:
        """Treat all current listeners as gone."""
        self._known = set(self.live._listeners)

    def rows(self) -> dict[int, Row]:
        """Return the rows that the subscriber must have."""
        return {key: self._sent(row) for key, row in self.live.rows().items() if self.passes(row)}

    def widen(self) -> None:
        """Replace the table by one with the same rows and another column."""
        before = self.live.rows()
        self._follow(LiveTable({**COLUMNS, **MORE}, partial_columns=self._partial))
        with self.live.update() as update:
            update.add(list(before.values()), list(before))
        self._delta = None

    def change(self, *, subscribed: bool) -> None:
        """Update a few rows. The changes are recorded if ``subscribed``."""
        before = self.live.rows()
        keys = self._rng.sample(list(before), min(len(before), self._rng.randint(0, 6)))
        with self.live.update() as update:
            moved = self._swapped(before, keys[:2]) if self._rng.random() < 0.3 else {}
            for key in (key for key in keys if key not in moved):
                if self._rng.random() < 0.4:
                    update.remove([key])
                    if self._rng.random() < 0.4:
                        update.add([self._row()], [key])
                else:
                    update.modify({key: self._changed(before[key])})
            if moved:
                update.modify(moved)
            if self._rng.random() < 0.6:
                update.add([self._row() for _ in range(self._rng.randint(1, 4))])
        self._write_down(before, subscribed=subscribed)

    def say(self, text: str, *, subscribed: bool) -> None:
        """Add a row with a marker text that the subscriber can wait for."""
        before = self.live.rows()
        row = {**self._row(), "Sym": text, "Num": 0}
        with self.live.update() as update:
            update.add([row])
        self._write_down(before, subscribed=subscribed)

    def _follow(self, live: LiveTable) -> None:
        self.live = live
        live.listen(self._on_delta)
        self.leave()

    def _on_delta(self, delta: NetChange) -> None:
        self._delta = delta

    def _swapped(self, before: Mapping[int, Row], keys: list[int]) -> dict[int, Row]:
        """Return changes by which two rows swap their ``Id``."""
        if len(keys) < 2:
            return {}
        one, other = keys
        return {one: {"Id": before[other]["Id"]}, other: {"Id": before[one]["Id"]}}

    def _changed(self, row: Row) -> Row:
        names = self._rng.sample(list(self.live.columns), self._rng.randint(1, 4))
        new = {name: self._value(name) for name in names}
        return new if self._is_good({**row, **new}) else {"Id": self._value("Id")}

    def _row(self) -> Row:
        while True:
            row = {name: self._value(name) for name in self.live.columns}
            if self._is_good(row):
                return row

    def _value(self, name: str) -> Any:
        if name == "Id":
            self._numbers += 1
            return self._rng.choice([1, -1]) * self._numbers if self._numbers % 5 else 2**63 - self._numbers
        if self._rng.random() < 0.15 and not (name == "Sym" and self._named):
            return None
        return self._rng.choice([*_VALUES[name], *(_WILD_DECIMALS if name == "Dec" and self._wild else ())])

    def _sent(self, row: Row) -> Row:
        return {name: row[name] for name in self.subscribed}

    def _write_down(self, before: Mapping[int, Row], *, subscribed: bool) -> None:
        delta, self._delta = self._delta, None
        if delta is None or not subscribed:
            return
        after = self.live.rows()
        removed, added, modified = (
            set(map(int, keys)) for keys in (delta.removed, delta.added.keys, delta.modified.keys)
        )
        was = {key for key in removed | modified if self.passes(before[key])}
        now = {key for key in added | modified if self.passes(after[key])}
        self.sent_changes += [SentChange("delete", key, {}, None) for key in was - (modified & now)]
        self.sent_changes += [SentChange("insert", key, self._sent(after[key]), None) for key in now - (modified & was)]
        for key in modified & was & now:
            written = {name for name, keys in delta.written.items() if key in keys.tolist()}
            names = (
                tuple(sorted(written.intersection(self.subscribed)))
                if self._partial
                else tuple(sorted(self.subscribed))
            )
            if names:
                whole = len(names) == len(self.subscribed)
                self.sent_changes.append(
                    SentChange("update", key, {n: after[key][n] for n in names}, None if whole else names)
                )
