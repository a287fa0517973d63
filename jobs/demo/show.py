"""Output of the demo: the progress while it runs, and tables at the end.

On a terminal one live table is updated; otherwise a line is printed every five seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from silverfold.conf.errors import SilverfoldError
from silverfold.jobs.common.console import counted
from silverfold.jobs.status import duration

if TYPE_CHECKING:
    from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
    from silverfold.jobs.demo.check import Comparison, Difference
    from silverfold.pipelines.applying.cuts import CutRow
    from silverfold.pipelines.reading.status import FeedStatus, TableStatus

_WATCHED_EVERY, _PRINTED_EVERY = 0.5, 5.0
_LONGEST_VALUE = 60
_NUMBERS_OF_TABLES = {"source rows": 11, "silver rows": 11, "cuts": 4, "applied": 7, "waiting": 7, "lag": 10}
"""Column widths, so that the table's layout is stable and fits 80 columns."""
_NUMBERS_OF_CUTS = ("version", "epoch", "positions", "updates", "inserted", "updated", "deleted", "took", "lag")


@dataclass
class Applied:
    """Counts of what the build has applied to one table so far."""

    cuts: int = 0
    updates: int = 0

    def add(self, cut: CutRow) -> None:
        """Count one cut."""
        self.cuts += 1
        self.updates += cut.updates


@dataclass
class Progress:
    """Shows the progress from a thread of its own, until the block ends.

    Args:
        console: Console for the output.
        tables: The source's tables.
        read: Reads the feed's status; a read that fails is skipped.
        began: Start of the demo, on the monotonic clock.
        phase: Name of the current phase; set by the caller.
    """

    console: Console
    tables: Mapping[str, LiveTable]
    read: Callable[[], FeedStatus]
    began: float
    phase: str = ""
    applied: Mapping[str, Applied] = field(init=False)
    """Counts per table of what the build has applied; updated by the caller."""

    def __post_init__(self) -> None:
        self.applied = {name: Applied() for name in self.tables}
        self._end = threading.Event()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._thread = threading.Thread(target=self._show, name="demo-progress")

    def say(self, text: str) -> None:
        """Print one line with the time since the start."""
        self.console.print(Text(f"{self._elapsed:6.1f} s  {text}"))

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._live:
            self._live.stop()

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _show(self) -> None:
        ended = False
        while not ended:
            ended = self._end.wait(_WATCHED_EVERY if self._live else _PRINTED_EVERY)
            try:
                status = self.read()
            except SilverfoldError:  # a table between two states; the next read succeeds
                continue
            if self._live:
                self._live.update(self._picture(status), refresh=True)
            else:
                self.say(self._line(status))

    def _picture(self, status: FeedStatus) -> Group:
        table = Table("table", header_style="bold", caption="applied, waiting: updates", caption_justify="left")
        for name, width in _NUMBERS_OF_TABLES.items():
            table.add_column(name, justify="right", min_width=width)
        for each in status.tables:
            applied = self.applied[each.table]
            counts = (len(self.tables[each.table]), each.rows or 0, applied.cuts, applied.updates, each.lag_updates)
            table.add_row(each.table, *(f"{count:,}" for count in counts), duration(each.lag_seconds))
        return Group(Text(f"{self._elapsed:6.1f} s  {self.phase}: {_landed(status)}"), table)

    def _line(self, status: FeedStatus) -> str:
        parts = (f"{each.table}: {self._part(each)}" for each in status.tables)
        return f"{self.phase}: {_landed(status)}; {'; '.join(parts)}"

    def _part(self, table: TableStatus) -> str:
        applied = self.applied[table.table].updates
        return f"{applied:,} updates applied, lag {_lag(table)}, {table.rows or 0:,} rows"


def cuts_table(cuts: Iterable[CutRow]) -> Table:
    """Return cuts as a table, one per line."""
    table = Table(header_style="bold")
    for name in ("table", "what"):
        table.add_column(name)
    for name in _NUMBERS_OF_CUTS:
        table.add_column(name, justify="right")
    for cut in cuts:
        table.add_row(cut.table, "snapshot" if cut.replaced else "updates", *_cut_numbers(cut))
    return table


def differences_table(name: str, found: Comparison) -> Table:
    """Return the first differences between the source's table and silver's."""
    title = f"{name}: {found.different:,} differences" + (", the first" if found.different > len(found.first) else "")
    table = Table("row key", "column", "source", "silver", header_style="bold", title=title, title_justify="left")
    for each in found.first:
        table.add_row(*map(Text, _difference_cells(each)))
    return table


def _cut_numbers(cut: CutRow) -> Iterator[str]:
    yield str(cut.delta_version)
    yield str(cut.epoch)
    yield f"{cut.first_position}-{cut.last_position}"
    yield from (f"{number:,}" for number in (cut.updates, cut.inserted, cut.updated, cut.deleted))
    yield "" if cut.seconds is None else duration(cut.seconds)
    yield "" if cut.landed_at is None else duration((cut.committed_at - cut.landed_at).total_seconds())


def _difference_cells(each: Difference) -> tuple[str, ...]:
    values = (each.source, each.silver)
    if each.column is None:
        return str(each.row_key), "whole row", *("no row" if value is None else _short(value) for value in values)
    return str(each.row_key), each.column, *map(_short, values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _landed(status: FeedStatus) -> str:
    frames = 0 if status.landed_position is None else status.landed_position + 1
    return f"{frames:,} frames landed" + (f" in epoch {status.epoch}" if status.epoch else "")


def _lag(table: TableStatus) -> str:
    return f"{counted(table.lag_updates, 'update')}, {duration(table.lag_seconds)}" if table.lag_updates else "0"
