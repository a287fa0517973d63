"""Settings of a story of the matrix: parameters, their values, and which of them are compatible.

`tests.matrix.pairs` combines them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PARAMETERS: dict[str, tuple[str, ...]] = {
    # keyed: changes and snapshots; upsert: changes only; sequenced: upsert with changes repeated or in any order.
    # positional kinds are Deephaven's: rows identified by position, without or with key columns.
    "kind": ("keyed", "upsert", "sequenced", "positional", "positional-keys", "positional-upsert"),
    "rules": ("none", "quarantine", "loosened", "fail"),
    "key": ("long", "text", "mixed", "times", "row", "decimal", "date", "time", "binary", "boolean+long", "several"),
    # a bad frame: skipped automatically; held until skipped by hand or decoded after a fix; passed by a snapshot.
    # a conflict: an inconsistent change (on_unexplained = error), or two rows with one key
    "fault": ("none", "skip", "mended", "snapshot", "conflict"),
    "upkeep": ("none", "maintain", "rebuild", "put-back"),
    "names": ("plain", "ours", "odd"),
    "first": ("snapshot", "insert", "update"),  # in which kind of change a row first fails a rule
    "schema": ("same", "added", "widened"),
    "again": ("none", "identical", "changed", "empty"),  # content of a later snapshot
    "cuts": ("one", "some", "tiny"),
    "history": ("no", "yes"),
    "sends": ("partial", "whole"),
    "moves": ("no", "yes"),
    "values": ("plain", "nasty"),
    "death": ("no", "yes"),
    "process": ("new", "same"),
    "zone": ("UTC", "America/New_York"),
}
"""Values of each parameter, the tamest first."""

SAMPLED: dict[str, tuple[str, ...]] = {
    **PARAMETERS,
    "rules": ("none", "loosened", "fail"),
    "key": ("text", "mixed", "times", "row"),
    "upkeep": ("none", "rebuild", "put-back"),
    "names": ("ours", "odd"),
    "again": ("none", "identical", "changed", "empty"),
    "cuts": ("one", "tiny"),
    "values": ("nasty",),
}
"""Values that the sample covers in pairs; redundant values are tested at night only."""

KEYS: dict[str, tuple[str, ...]] = {
    "long": ("long",),
    "text": ("text",),
    "mixed": ("boolean", "decimal", "date"),
    "times": ("time", "binary"),
    "row": (),
    "decimal": ("decimal",),
    "date": ("date",),
    "time": ("time",),
    "binary": ("binary",),
    "boolean+long": ("boolean", "long"),
    "several": ("long", "text", "date"),
}
"""Types of the key columns, by name."""

_POSITIONAL = ("positional", "positional-keys", "positional-upsert")


@dataclass(frozen=True)
class Settings:
    """One value of each parameter."""

    kind: str = "keyed"
    rules: str = "none"
    key: str = "long"
    fault: str = "none"
    upkeep: str = "none"
    names: str = "plain"
    first: str = "snapshot"
    schema: str = "same"
    again: str = "none"
    cuts: str = "one"
    history: str = "no"
    sends: str = "partial"
    moves: str = "no"
    values: str = "plain"
    death: str = "no"
    process: str = "new"
    zone: str = "UTC"

    @property
    def deephaven(self) -> bool:
        """Whether the source is Deephaven rather than the stub connector."""
        return self.kind in _POSITIONAL

    @property
    def snapshots(self) -> bool:
        return self.kind in ("keyed", "positional", "positional-keys")

    @property
    def keeps_history(self) -> bool:
        return self.history == "yes"

    @property
    def key_types(self) -> tuple[str, ...]:
        """Types of the key columns; for Deephaven, only those it has."""
        return tuple(t for t in KEYS[self.key] if not (self.deephaven and t in ("date", "binary")))

    def __str__(self) -> str:
        """Return the values that differ from the tamest, in the form parsed by `parsed`."""
        tamest = asdict(Settings())
        return ",".join(f"{name}={value}" for name, value in asdict(self).items() if value != tamest[name]) or "-"


def parsed(text: str) -> Settings:
    """Parse settings; parameters that are not named get their tamest value."""
    return Settings(**dict(each.split("=", 1) for each in text.split(",") if "=" in each))


_STILL = ("sequenced", "positional", "positional-upsert")


def _key_fits(s: Settings) -> bool:
    if s.key == "row":
        return s.kind in ("positional", "positional-upsert")
    return s.kind not in ("positional", "positional-upsert") and bool(s.key_types)


def _history_fits(s: Settings) -> bool:
    return not s.keeps_history or s.rules not in ("quarantine", "loosened")


def _may_conflict(s: Settings) -> bool:
    return s.fault != "conflict" or s.kind in ("keyed", "upsert", "positional-keys")


def _loses_partials(s: Settings) -> bool:
    return s.kind == "sequenced" and s.sends == "partial" and s.fault == "skip"


Law = tuple[str, Callable[[Settings], bool]]

LAWS: tuple[Law, ...] = (
    ("the key of a positional source is the row's position, unless keys are given", _key_fits),
    ("history with a rule that quarantines is refused: versions are of all rows", _history_fits),
    ("history with keys is refused at Deephaven", lambda s: not (s.keeps_history and s.kind == "positional-keys")),
    ("only a source with snapshots sends another", lambda s: s.snapshots or s.again == "none"),
    ("only a snapshot passes what cannot be read", lambda s: s.snapshots or s.fault != "snapshot"),
    ("a conflict is of changes that say what they expect, or of keys that a row carries", _may_conflict),
    ("a partial change that was left out may not come late", lambda s: not _loses_partials(s)),
    ("two holds at once are two histories", lambda s: s.fault in ("none", "skip") or s.rules != "fail"),
    ("a table that was away takes a snapshot to come back", lambda s: s.upkeep != "put-back" or s.snapshots),
    ("a history that was away has lost frames for good", lambda s: s.upkeep != "put-back" or not s.keeps_history),
    ("positions do not move, sequenced keys may not", lambda s: s.moves == "no" or s.kind not in _STILL),
    ("Deephaven sends the columns that changed", lambda s: not s.deephaven or s.sends == "partial"),
    ("what fails a rule first is one of three only with rules", lambda s: s.rules != "none" or s.first == "snapshot"),
    ("without snapshots no row of one fails", lambda s: s.rules == "none" or s.snapshots or s.first != "snapshot"),
)
"""Compatibility predicates, each with the reason."""


def refused(settings: Settings) -> str | None:
    """Return why these settings are incompatible; None if they are not."""
    return next((reason for reason, holds in LAWS if not holds(settings)), None)


def sample() -> list[Settings]:
    """Return the settings of the default run, from a file: `tests.matrix.pairs` takes too long to compute them."""
    return [parsed(line) for line in (Path(__file__).parent / "sample.txt").read_text().split()]


def drawn(rng: random.Random, base: Settings) -> Settings:
    """Return the settings with some values redrawn."""
    for _ in range(100):
        changed: dict[str, Any] = {
            name: rng.choice(values) for name, values in PARAMETERS.items() if rng.random() < 0.3
        }
        found = replace(base, **changed)
        if refused(found) is None:
            return found
    return base


def tamer(settings: Settings) -> Iterator[Settings]:
    """Yield compatible settings with one parameter set to its tamest value."""
    for name, values in PARAMETERS.items():
        found = getattr(settings, name)
        tried = (replace(settings, **{name: value}) for value in values[: values.index(found)])
        yield from (tamed for tamed in tried if refused(tamed) is None)
