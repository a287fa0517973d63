"""What happens to one table, step by step: what its source sends, and what people and processes do with it.

Plain data: a story can be told to the engine, to the oracle, or in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

Key: TypeAlias = tuple[Any, ...]
Cells: TypeAlias = Mapping[str, Any]
Ends: TypeAlias = Literal["skip", "hand", "fix", "snapshot"]
"""What becomes of a bad frame: left out at once, or held until it is left out by hand, read after a fix, or passed."""


class Change(NamedTuple):
    """One change of one row."""

    op: Literal["insert", "update", "delete"]
    key: Key
    sent: Cells = MappingProxyType({})
    """The cells it carries."""
    old_key: Key | None = None
    """Of an update that moves the row: from where."""
    sequence: int | None = None


@dataclass(frozen=True)
class Death:
    """The process dies: before or after its nth commit from 0, if it gets that far."""

    commit: int
    after: bool


@dataclass(frozen=True)
class Connect:
    """A new epoch; an update that was being sent never ends.

    Args:
        columns: The table's columns from now on: 0 at first, 1 once they have changed.
    """

    columns: int
    torn: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Columns:
    """From now on the table has its later columns; only of a source without snapshots."""


@dataclass(frozen=True)
class Update:
    """One update of the source, in one frame or several.

    Args:
        bad: Which of the frames cannot be decoded; None when all can.
        ends: What becomes of it.
    """

    frames: tuple[tuple[Change, ...], ...]
    bad: int | None = None
    ends: Ends = "skip"


@dataclass(frozen=True)
class Snapshot:
    """All rows, and what changed while they were being sent."""

    rows: Mapping[Key, Cells]
    overlay: tuple[Update, ...] = ()


@dataclass(frozen=True)
class Build:
    """What has landed is applied.

    Args:
        alone: No other process comes after a death before more has landed; otherwise one may.
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
    """The table is taken out of the feed, another one is built, ``maintain`` drops what nobody needs."""


@dataclass(frozen=True)
class Loosen:
    """From now on the table's rules keep fewer rows out."""


@dataclass(frozen=True)
class Mend:
    """What holds the table is put right: decoder, settings, cuts as long as they need to be."""


Step: TypeAlias = Connect | Columns | Update | Snapshot | Build | Upkeep | Away | Loosen | Mend
