"""Names and types of the columns of a story's table, and its rules."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.matrix.oracle import Rule, Source
from tests.matrix.settings import Settings
from tests.matrix.steps import Key
from tests.matrix.values import DOMAINS

_NAMES = {
    "plain": (("k0", "k1", "k2"), ("text", "num", "dbl", "at", "bin"), "more"),
    "ours": (("N", "row", "key"), ("ended", "order", "op", "t", "said"), "s"),
    "odd": (("Row", "a`b", "c d"), ("te.xt", "Größe", "1", "FROM", "it's"), ",;{`} (\n\t="),
}
"""Names of key columns, of value columns (`_VALUES`), and of one added later. Odd names need column mapping."""

_VALUES = ("text", "int", "double", "time", "binary")

STRICT, LOOSE = 2, 3
"""Upper bounds of a row's number column under the strict and the loose rules."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table, by its settings."""

    settings: Settings

    @cached_property
    def keys(self) -> dict[str, str]:
        """Key columns and their types; empty if the position is the key."""
        names, _, _ = _NAMES[self.settings.names]
        return dict(zip(names, self.settings.key_types, strict=False))

    @cached_property
    def values(self) -> dict[str, str]:
        """The initial value columns."""
        _, names, _ = _NAMES[self.settings.names]
        kinds = dict(zip(names, _VALUES, strict=True))
        if self.settings.deephaven:
            del kinds[names[4]]
        if self.settings.schema != "widened":
            kinds[self.number] = "long"
        return kinds

    @cached_property
    def later(self) -> dict[str, str]:
        """The value columns after their change."""
        if self.settings.schema == "widened":
            return {**self.values, self.number: "long"}
        more = _NAMES[self.settings.names][2]
        return {**self.values, more: "text"} if self.settings.schema == "added" else self.values

    @property
    def text(self) -> str:
        return _NAMES[self.settings.names][1][0]

    @property
    def number(self) -> str:
        return _NAMES[self.settings.names][1][1]

    @property
    def carries_keys(self) -> bool:
        """Whether rows carry key columns although the source identifies them by position."""
        return self.settings.kind == "positional-keys"

    def columns(self, version: int) -> dict[str, str]:
        """Return all source columns and their types."""
        return {**self.keys, **(self.later if version else self.values)}

    @cached_property
    def source(self) -> Source:
        """Return the source's description for the oracle."""
        carried = tuple(self.keys) if self.carries_keys else ()
        return Source(
            columns=(*carried, *self.later),
            snapshots=self.settings.snapshots,
            source_ordered=self.settings.kind == "sequenced",
            unique=carried,
            judges=self.settings.fault == "conflict" and not self.carries_keys,
        )

    def key(self, number: int) -> Key:
        """Return key values that are unique to the number."""
        kinds, nasty, deephaven = list(self.keys.values()), self.settings.values == "nasty", self.settings.deephaven
        if kinds[0] == "boolean":
            rest = [DOMAINS[kind].key(number // 2, nasty=nasty, deephaven=deephaven) for kind in kinds[1:]]
            return (number % 2 == 0, *rest)
        if kinds[1:] and kinds[0] == "long":
            kinds, first = kinds[1:], (DOMAINS["long"].key(number // 4, nasty=nasty, deephaven=deephaven),)
            return (*first, *(DOMAINS[kind].key(number, nasty=nasty, deephaven=deephaven) for kind in kinds))
        return tuple(DOMAINS[kind].key(number, nasty=nasty, deephaven=deephaven) for kind in kinds)

    def cells(self, rng: random.Random, version: int, *, good: bool) -> dict[str, Any]:
        """Return cells for every column except the keys.

        Args:
            good: The cells meet the rules; otherwise they may or may not.
        """
        nasty, deephaven = self.settings.values == "nasty", self.settings.deephaven
        kinds = self.later if version else self.values
        cells = {name: DOMAINS[kind].cell(rng, nasty=nasty, deephaven=deephaven) for name, kind in kinds.items()}
        far = [2**40] if version and self.settings.schema == "widened" and not self.rules(loose=True) else []
        cells[self.number] = rng.choice([None, 0, 1, *([] if good else [2, 2, 3]), *far])
        while good and not all(rule.met(cells) for rule in self.rules(loose=False).values()):
            cells[self.text] = DOMAINS["text"].ordinary(rng.randrange(3))
        return cells

    def rules(self, *, loose: bool) -> dict[str, Rule]:
        """Return the rules by name. The loose ones accept every row that the strict ones accept."""
        if self.settings.rules == "none":
            return {}
        text, number = (f"`{name.replace('`', '``')}`" for name in (self.text, self.number))
        bound = LOOSE if loose else STRICT
        small = Rule(f"{number} IS NULL OR {number} < {bound}", lambda row: _below(row[self.number], bound))
        if loose:
            return {"small": small}
        dated = f"coalesce(try_to_timestamp({text}, 'dd/MM/yyyy') < DATE'2024-01-01', TRUE)"
        return {
            "small": small,
            # failing rows give NULL, which fails the rule like FALSE
            "quoted": Rule(
                f"nullif(coalesce({text} NOT IN ('it\\'s', '${{x}}'), TRUE), FALSE)",
                lambda row: row[self.text] not in ("it's", "${x}"),
            ),
            "dated": Rule(dated, lambda row: row[self.text] != "31/12/2024"),
        }


def _below(number: int | None, bound: int) -> bool:
    return number is None or number < bound
