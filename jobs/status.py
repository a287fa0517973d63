"""``silverfold status``: show the status of feeds and their silver tables. Reads only the store, never loads Spark.

With ``--json`` one object is printed, with stable names and meanings: ``at``, ``warehouse``, ``feeds``, each feed
with its ``tables``, and ``unreadable``. The keys are documented in `pipelines.reading.status`: `Status`, `FeedStatus`,
`ReceiverStatus`, `TableStatus`, `Fault`, `LastCut`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer
from rich.console import Console, ConsoleOptions, Group
from rich.table import Table
from rich.text import Text

from silverfold.conf.errors import ConfigError
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, console_on, print_json
from silverfold.jobs.common.context import invocation
from silverfold.jobs.common.live_view import require_terminal, watch
from silverfold.jobs.common.ways_on import advice_for
from silverfold.pipelines.landing.ranges import format_ranges

if TYPE_CHECKING:
    from silverfold.pipelines.reading.status import FeedStatus, ReceiverStatus, Status, TableStatus

_COLOURS: Final = {"synced": "green", "behind": "yellow", "held": "red", "stopped": "red", "closed": "red"}

CELLS: Final = ("table", "state", "epoch", "landed", "applied", "lag", "rows", "last cut")
"""Names of what is shown of a table, in order."""
_NUMBERS: Final = CELLS[2:7]

_NAMED = 10
"""Maximum number of skipped positions printed for users; scripts get all of them."""

_SHOWN_LIVE: Final = ((100, CELLS), (60, ("table", "state", "lag", "rows", "last cut")), (0, ("table", "state", "lag")))
"""What a view shows of tables, by the fewest columns of a terminal that it is for."""


def status(
    ctx: typer.Context,
    feed: Annotated[str | None, typer.Argument(help="Only this feed.", show_default=False)] = None,
    as_json: AsJson = False,
    live: Annotated[
        bool, typer.Option("--watch", help="Show it on the terminal, read anew every few seconds, until q or Ctrl-C.")
    ] = False,
) -> None:
    """Show, per feed and table, what has landed and what is applied.

    *landed* and *applied* are positions in the feed's bronze table. *lag* counts whole updates that landed but are
    not applied, and the age of the oldest.

    States of a table: synced; behind (a cut is ready: run build); waiting_for_snapshot; waiting_for_update_end;
    not_built; held (a frame cannot be decoded, or a cut not applied: the reason stands below, and `silverfold
    quarantine` is what to do about it); stopped (bronze lacks positions, or has them twice).

    Exit code 3 when a feed, or a table, cannot be read now; the others are shown. `--watch` shows what was read of it
    before, tries again, and ends with 0; in it, the tables that need attention come first, and a narrow terminal shows
    less of each.

    A table is *degraded* when it went on without frames that cannot be decoded: until a snapshot passes them, for good
    where there are none. Or when a change came late among partial updates of a row, and has no place: until a whole row
    comes.
    """
    from silverfold.jobs.common.pandas_later import import_pandas_later  # noqa: PLC0415 - --help needs no Arrow

    import_pandas_later()  # before the next import makes Arrow's first value
    from silverfold.pipelines.reading.status import read_all  # noqa: PLC0415 - --help must not load what jobs run on

    if live:
        _require_watchable(as_json)
    run = invocation(ctx)
    settings = run.settings()
    opened = [run.feed(name, settings) for name in ([feed] if feed else settings.feeds)]
    if live:
        latest = LatestKnown()
        watch(lambda: latest.after(read_all(settings, opened)), live_picture, sys.stdout)
        return
    found = read_all(settings, opened)
    if as_json:
        print_json(found)
    elif found.feeds or not found.unreadable:
        show(found, sys.stdout)
    for reason in found.unreadable:
        print(f"silverfold: {reason}", file=sys.stderr)
    if found.unreadable:
        raise typer.Exit(3)


def _require_watchable(as_json: bool) -> None:
    if as_json:
        allowed = "one of them: a view, or an object for scripts"
        raise ConfigError(file="command line", key="--watch", found="--watch and --json", allowed=allowed)
    require_terminal("--watch", sys.stdout)


class LatestKnown:
    """Remembers what was read of each table, for when it cannot be read."""

    def __init__(self) -> None:
        self._feeds: dict[str, FeedStatus] = {}

    def after(self, status: Status) -> Status:
        """Return a status with what was read before of feeds and tables that it lacks."""
        if not status.unreadable:
            self._feeds = {}
        for feed in status.feeds:
            known = self._feeds.get(feed.feed, feed)
            tables = {each.table: each for each in (*known.tables, *feed.tables)}
            self._feeds[feed.feed] = feed.model_copy(update={"tables": tuple(tables.values())})
        return status.model_copy(update={"feeds": tuple(self._feeds.values())})


def live_picture(status: Status | None, age: float) -> Group:
    """Return what `--watch` shows: what needs attention first, as what does not fit on the screen is cut off.

    Args:
        age: Seconds since the reading, or since the first one began.
    """
    if status is None:
        return Group(Text(f"silverfold status: reading for {duration(age)}; q ends it", "dim"))
    now, names = datetime.now(UTC), {feed.feed for feed in status.feeds}
    first = Text(f"{now:%H:%M:%S} UTC, read {duration(age)} ago; q ends it", "dim")
    shown = "below is what was read before; " if names else ""
    faults = (Text(f"cannot be read: {each}: {shown}it is tried again", "red") for each in status.unreadable)
    none = [] if names or status.unreadable else [_no_feeds(status)]
    return Group(first, *faults, *none, *(_urgent_first(feed, now) for feed in status.feeds))


def _urgent_first(feed: FeedStatus, now: datetime) -> Group:
    from silverfold.pipelines.reading.status import TableState  # noqa: PLC0415 - --help must not load what jobs run on

    urgency = {state: rank for rank, state in enumerate(TableState)}
    ordered = sorted(feed.tables, key=lambda table: urgency[table.state])
    return Group(Text(), _heading(feed, now), *problems(feed), _LiveTables(ordered, now), *source_lines(feed))


def show(status: Status, out: TextIO) -> None:
    """Print the status for users: per feed two lines, a table, and the problems."""
    console = console_on(out)
    if not status.feeds:
        console.print(_no_feeds(status), soft_wrap=True)
    for feed in status.feeds:
        console.print(picture(feed, status.at))


def _no_feeds(status: Status) -> Text:
    return Text(f"no feeds are configured for warehouse {status.warehouse}: see `silverfold config check`")


def picture(feed: FeedStatus, now: datetime) -> Group:
    """Return what `show` prints of a feed."""
    of_tables = (problem for table in feed.tables for problem in _problems_of(feed, table))
    return Group(_heading(feed, now), *source_lines(feed), *_lost(feed), _tables(feed.tables, now), *of_tables)


def problems(feed: FeedStatus) -> Iterator[Text]:
    """Yield a line for each problem of a feed and its tables, and what to do about it."""
    yield from _lost(feed)
    for table in feed.tables:
        yield from _problems_of(feed, table)


def _lost(feed: FeedStatus) -> Iterator[Text]:
    for first, last in feed.lost_positions:
        yield Text(f"bronze lost positions {first} to {last}, and what had landed behind them by then", "yellow")


def source_lines(feed: FeedStatus) -> Iterator[Text]:
    """Yield a line for each part of the source with a measure that is not zero."""
    for part, measures in feed.source.items():
        shown = [f"{value:g} {measure.replace('_', ' ')}" for measure, value in measures.items() if value]
        if shown:
            yield Text(f"{part}: {', '.join(shown)}")


def _problems_of(feed: FeedStatus, table: TableStatus) -> Iterator[Text]:
    if table.fault is not None:
        fault = table.fault
        where = f"{table.table}: {table.state.value} at position {fault.position}: "
        yield Text(f"{where}{fault.error_class}: {fault.reason}", "red")
        advice = advice_for(fault.error_class, feed=feed.feed, table=table.table, position=fault.position)
        if advice:
            yield Text(f"{table.table}: {advice}")
    if table.warning is not None:
        yield Text(f"{table.table}: the receiver says: {table.warning}", "yellow")
    if table.begins_at_position is not None:
        begins = f"{table.table}: begins at position {table.begins_at_position}: older frames had been dropped"
        yield Text(begins, "yellow")
    if table.base_position is not None:
        yield Text(f"{table.table}: begins with its base at position {table.base_position}: older frames were dropped")
    if table.lacks_positions:
        lost = format_ranges(table.lacks_positions)
        yield Text(f"{table.table}: lacks what positions {lost} said of it, if anything", "yellow")
    if table.emptied_version is not None:
        empty = f"{table.table}: the commit of version {table.emptied_version} is an empty file"
        yield Text(f"{empty}: `silverfold verify {feed.feed}` tells which rows are missing", "yellow")
    if table.built_otherwise is not None:
        otherwise = f"{table.table}: its next cut holds: {table.built_otherwise}"
        yield Text(f"{otherwise}: run `silverfold rebuild {feed.feed} {table.table}`", "yellow")
    if table.degraded_keys:
        late = f"{table.table}: degraded: changes of {table.degraded_keys} keys came late among partial updates"
        yield Text(f"{late}; a whole row of a key ends it, with a history `silverfold rebuild`", "yellow")
    if table.skipped_positions:
        left_out = positions(table.skipped_positions)
        yield Text(f"{table.table}: degraded: went on without {left_out}", "yellow")


def positions(found: Sequence[int]) -> str:
    """Return a text with the first few positions and the number of further ones."""
    named = ", ".join(map(str, found[:_NAMED]))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"position{'s' if len(found) > 1 else ''} {named}{more}"


def duration(seconds: float) -> str:
    """Return a readable duration, in its two largest units."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for size, unit, part, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // part)} {smaller}"
    return f"{seconds:.1f} s"


def _heading(feed: FeedStatus, now: datetime) -> Text:
    """Return what has landed of a feed, and the state of its receiver, in one or two lines."""
    text = Text.assemble((feed.feed, "bold"), f" ({feed.connector}): ")
    if feed.landed_position is None:
        text.append("nothing has landed")
    elif feed.landed_at is None:
        text.append(f"landed up to {feed.landed_position}")
    else:
        text.append(f"landed up to {feed.landed_position}, {ago(feed.landed_at, now)}, epoch {feed.epoch}")
    if feed.receiver is not None:
        text.append("\nreceiver ").append_text(_receiver(feed.receiver, now))
    return text


def _receiver(receiver: ReceiverStatus, now: datetime) -> Text:
    why = "" if receiver.reason is None else f": {receiver.reason}"
    name = "" if receiver.error_class is None else f" ({receiver.error_class})"
    since = f" since {receiver.since:%Y-%m-%d %H:%M:%S} UTC, {ago(receiver.since, now)}{why}{name}"
    return Text.assemble((receiver.state.value, _COLOURS.get(receiver.state.value, "")), since)


class _LiveTables:
    """The tables of a feed, as wide as there is room for."""

    def __init__(self, tables: Sequence[TableStatus], now: datetime) -> None:
        self._tables, self._now = tables, now

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yield the table that fits."""
        names = next(names for columns, names in _SHOWN_LIVE if options.max_width >= columns)
        yield _tables(self._tables, self._now, names)


def _tables(tables: Sequence[TableStatus], now: datetime, names: Sequence[str] = CELLS) -> Table:
    shown = Table(header_style="bold")
    for name in names:
        shown.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
    for each in tables:
        found = cells(each, now)
        shown.add_row(*(found[name] for name in names))
    return shown


def cells(table: TableStatus, now: datetime) -> dict[str, Text]:
    """Return what is shown of a table, by the names of `CELLS`."""
    lag = f"{counted(table.lag_updates, 'update')}, {duration(table.lag_seconds)}" if table.lag_updates else "0"
    rows = table.rows if table.versions is None else f"{table.rows}, {table.versions} versions"
    rows = f"{rows}, {table.rows_aside} aside" if table.rows_aside else rows
    numbers = (table.epoch, table.landed_position, table.applied_position, lag, rows)
    found = [
        Text(table.table),
        Text(table.state.value, _COLOURS.get(table.state.value, "")).append(", degraded" * table.degraded, "yellow"),
        *(Text("-" if number is None else str(number)) for number in numbers),
        Text(_last_cut(table, now)),
    ]
    return dict(zip(CELLS, found, strict=True))


def _last_cut(table: TableStatus, now: datetime) -> str:
    cut = table.last_cut
    if cut is None:
        return "-"
    counts = (("+", cut.inserted), ("~", cut.updated), ("-", cut.deleted))
    changed = " ".join(f"{sign}{count}" for sign, count in counts if count) or "nothing changed"
    return f"{ago(cut.committed_at, now)}, version {cut.delta_version}: {changed}"


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    return f"{duration(max(0.0, (now - moment).total_seconds()))} ago"


if __name__ == "__main__":
    main_of("status")
