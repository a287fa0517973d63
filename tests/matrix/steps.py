"""Steps in the life of one table: what its source sends, and what operators and processes do.

Steps are immutable values: a story can be run by the engine, by the oracle, or in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

Key: TypeAlias = tuple[Any, ...]
Cells: TypeAlias = Mapping[str, Any]
Ends: TypeAlias = Literal["skip", "hand", "fix", "snapshot"]
"""Fate of a bad frame: skipped at once, or held until skipped by hand, decoded after a fix, or passed."""


class Change(NamedTuple):
    """One change of one row."""

    op: Literal["insert", "update", "delete"]
    key: Key
    sent: Cells = MappingProxyType({})
    """The cells it carries."""
    old_key: Key | None = None
    """Previous key of an update that moves the row."""
    sequence: int | None = None


@dataclass(frozen=True)
class Death:
    """The process dies before or after its nth commit, from 0, if it gets that far."""

    commit: int
    after: bool


@dataclass(frozen=True)
class Connect:
    """A new epoch; an open update never ends.

    Args:
        columns: Column version from now on: 0 initially, 1 after the change.
    """

    columns: int
    torn: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Columns:
    """From now on the table has its later columns; only for sources without snapshots."""


@dataclass(frozen=True)
class Update:
    """One update of the source, in one or more frames.

    Args:
        bad: Index of the frame that cannot be decoded; None if all can.
        ends: Fate of the bad frame.
    """

    frames: tuple[tuple[Change, ...], ...]
    bad: int | None = None
    ends: Ends = "skip"


@dataclass(frozen=True)
class Snapshot:
    """All rows, and the changes made while they were sent."""

    rows: Mapping[Key, Cells]
    overlay: tuple[Update, ...] = ()


@dataclass(frozen=True)
class Build:
    """The landed frames are applied.

    Args:
        alone: After a death, no other process runs before more has landed; otherwise one may.
    """

    death: Death | None = None
    alone: bool = False


@dataclass(frozen=True)
class Upkeep:
    """``maintain``, or ``rebuild``."""

    what: Literal["maintain", "rebuild"]
    death: Death | None = None


@dataclass(frozen=True)
class Away:
    """The table is removed from the feed, another one is built, and ``maintain`` drops unneeded frames."""


@dataclass(frozen=True)
class Loosen:
    """From now on the table's rules reject fewer rows."""


@dataclass(frozen=True)
class Mend:
    """The cause of a hold is repaired: the decoder, the settings, or the length of cuts."""


Step: TypeAlias = Connect | Columns | Update | Snapshot | Build | Upkeep | Away | Loosen | Mend
