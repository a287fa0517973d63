"""``silverfold quarantine``: list, retry or skip frames that silver tables could not apply.

``list --json`` prints one array; each object has ``table``, ``position``, ``update_position``, ``state``,
``error_class``, ``reason``, ``found_at``, ``resolved_at`` and ``resolution``, documented in
`pipelines.holding.quarantine_log.Hold`. Names and meanings are stable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from silverfold.conf.errors import ConfigError, SilverfoldError, UndecodableFrame
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.jobs.build import exit_if_interrupted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import console_on, print_json
from silverfold.jobs.common.context import invocation
from silverfold.jobs.status import positions
from silverfold.pipelines.places import places_of

if TYPE_CHECKING:
    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Connector, Feed
    from silverfold.pipelines.holding.quarantine import Quarantined
    from silverfold.pipelines.holding.quarantine_log import Hold

app = typer.Typer(no_args_is_help=True)

FeedName = Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the silver table.")]


class Outcome(NamedTuple):
    """Result of a retry for one table."""

    table: str
    passed: Sequence[int]
    """Positions that the table has passed."""
    holds: str | None
    """What holds the table now; None if nothing does."""


@app.callback()
def quarantine() -> None:
    """See what silver tables could not take; try it again, or go on without it."""


@app.command("list")
def listed(
    ctx: typer.Context,
    feed: FeedName,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array, for scripts.")] = False,
    resolved: Annotated[bool, typer.Option("--all", help="Also what is over.")] = False,
) -> None:
    """List what holds the feed's tables, and the frames that were skipped.

    States: *holding*: the table stands before it. *skipped*: the table goes on, or went on, without the frame, until a
    snapshot passes it. *resolved*, with --all: the table took it, or a snapshot made it needless.

    The history of a table stays without a skipped frame, also once a snapshot has passed it: its resolution is then
    `left out`, and verify and rebuild leave it out too.

    Reads the store alone.
    """
    from silverfold.pipelines.holding.quarantine import read_quarantine  # noqa: PLC0415 - --help must not load what jobs run on

    run = invocation(ctx)
    settings = run.settings()
    _, opened = run.feed(feed, settings)
    found = read_quarantine(places_of(settings), feed, opened.tables)
    wanted = [row for row in found if resolved or not row.is_over]
    show(wanted, sys.stdout, as_json=as_json)


@app.command()
def retry(
    ctx: typer.Context,
    feed: FeedName,
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table.", show_default=False)] = None,
) -> None:
    """Build the tables that hold, now: after a fix they go on where they stand, update by update, in order.

    Safe beside a build that follows, which goes on from where this ends. A frame that was skipped stays skipped.
    Exit code 1 when a table still holds.
    """
    from silverfold.pipelines.holding.quarantine import read_quarantine  # noqa: PLC0415 - --help must not load what jobs run on

    run = invocation(ctx)
    settings = run.settings()
    connector, opened = run.feed(feed, settings)
    places, selected = places_of(settings), only(opened, [table] if table else list(opened.tables))
    before = read_quarantine(places, feed, selected.tables)
    names = list(dict.fromkeys(row.table for row in before if row.ahead))
    if not names:
        print(f"silverfold: nothing holds {f'table {table}' if table else f'a table of feed {feed}'}")
        return
    faults = _build(settings, connector, only(opened, names))
    outcomes = outcomes_of(before, read_quarantine(places, feed, names), faults)
    for outcome in outcomes:
        print(f"silverfold: {outcome_text(outcome)}")
    if any(outcome.holds for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def skip(
    ctx: typer.Context,
    feed: FeedName,
    table: TableName,
    position: Annotated[int, typer.Argument(metavar="POSITION", help="The frame, as list shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Decode it after all; it must not be passed yet.")] = False,
) -> None:
    """Go on without a frame that holds a table.

    All of its update but this frame is applied, by the build that follows or the next one. The table is degraded
    until a snapshot passes the frame, for good where there are none; a history stays without it for good. Exit code 2
    when the position is not a frame that holds the table.
    """
    from silverfold.pipelines.holding import quarantine_log  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.pipelines.holding.quarantine import read_quarantine  # noqa: PLC0415 - as above

    run = invocation(ctx)
    settings = run.settings()
    connector, opened = run.feed(feed, settings)
    places, now = places_of(settings), datetime.now(UTC)
    found = read_quarantine(places, feed, only(opened, [table]).tables)
    if undo:
        skipped = undoable(found, table, position)
        quarantine_log.undo_skip(places, feed, table, skipped, now=now)
        if not any(row.holds and row.hold.position == position for row in read_quarantine(places, feed, [table])):
            quarantine_log.skip(places, feed, table, skipped, now=now)  # a build went on without the frame meanwhile
            raise _refused("POSITION", position, f"a skipped frame that {table} has yet to pass; it just has")
        print(
            f"silverfold: {table}: frame {position} holds it again, unless a build is passing it just now: see status"
        )
    else:
        quarantine_log.skip(places, feed, table, skippable(found, table, position), now=now)
        ends = "until a snapshot passes it" if connector.has_snapshots(opened.tables[table]) else "for good"
        lacks = f"what it carried is missing, or NULL, {ends}"
        print(f"silverfold: {table}: the build goes on without frame {position}: {lacks}")


def only(feed: Feed, tables: Sequence[str]) -> Feed:
    """Return the feed with some of its tables only. Raises ConfigError if it lacks one."""
    for table in tables:
        if table not in feed.tables:
            raise _refused("TABLE", table, ", ".join(feed.tables))
    return replace(feed, tables={table: feed.tables[table] for table in tables})


def skippable(found: Sequence[Quarantined], table: str, position: int) -> Hold:
    """Return the record of a frame that holds the table. Raises ConfigError if no frame at the position holds it."""
    holding = {row.hold.position: row.hold for row in found if row.holds}
    if position not in holding:
        held = ", ".join(map(str, holding))
        raise _refused("POSITION", position, f"{held}, which holds {table}" if held else f"none: nothing holds {table}")
    hold = holding[position]
    if hold.error_class != UndecodableFrame.error_class:
        raise _refused("POSITION", position, f"a frame that cannot be decoded; {table} holds for {hold.error_class}")
    return hold


def undoable(found: Sequence[Quarantined], table: str, position: int) -> Hold:
    """Return the record of a skipped frame the table has not passed. Raises ConfigError if there is none."""
    skipped = {row.hold.position: row.hold for row in found if row.ahead and not row.holds}
    if position not in skipped:
        ahead = ", ".join(map(str, skipped)) or "none"
        raise _refused("POSITION", position, f"a skipped frame that {table} has yet to pass: {ahead}")
    return skipped[position]


def outcomes_of(
    before: Sequence[Quarantined], after: Sequence[Quarantined], faults: Mapping[str, SilverfoldError]
) -> list[Outcome]:
    """Return the outcome for every table that held or had frames to skip.

    Args:
        faults: The errors by which the build says tables hold, by table.
    """
    outcomes = []
    for table in dict.fromkeys(row.table for row in before if row.ahead):
        ahead = {row.hold.position for row in after if row.table == table and row.ahead}
        passed = [r.hold.position for r in before if r.table == table and r.ahead and r.hold.position not in ahead]
        noted = (row.hold.reason for row in after if row.table == table and row.holds)
        holds = str(faults[table]) if table in faults else next(noted, None)
        outcomes.append(Outcome(table, passed, holds))
    return outcomes


def outcome_text(outcome: Outcome) -> str:
    """Return the outcome as a message for users."""
    passed = f"went beyond {positions(outcome.passed)}" if outcome.passed else ""
    holds = "" if outcome.holds is None else f"holds: {outcome.holds}"
    return f"{outcome.table} {' and '.join(filter(None, (passed, holds))) or 'stands where it stood'}"


def show(found: Sequence[Quarantined], out: TextIO, *, as_json: bool) -> None:
    """Print quarantined positions."""
    if as_json:
        print_json([_as_object(row) for row in found], out)
        return
    table = Table("table", "position", "update", "state", "class", "since", "reason", header_style="bold")
    for row in found:
        hold = row.hold
        since = f"{hold.found_at:%Y-%m-%d %H:%M:%S} UTC"
        numbers = (str(hold.position), str(hold.update_position))
        cells = (row.table, *numbers, row.state.value, hold.error_class, since, hold.reason)
        table.add_row(*map(Text, cells))
    console_on(out).print(table if found else "nothing is quarantined", markup=False)


def _as_object(row: Quarantined) -> dict[str, Any]:
    known = {name: getattr(row.hold, name) for name in ("position", "update_position", "error_class", "reason")}
    ended = row.hold.resolved_at
    return {
        "table": row.table,
        **known,
        "state": row.state.value,
        "found_at": row.hold.found_at.isoformat(),
        "resolved_at": None if ended is None else ended.isoformat(),
        "resolution": row.hold.resolution,
    }


def _build(settings: Settings, connector: Connector, feed: Feed) -> Mapping[str, SilverfoldError]:
    """Apply all landed frames to the feed's tables; return the errors that hold them, by table."""
    from silverfold.pipelines.applying.build import FeedBuild  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.pipelines.applying.run import run  # noqa: PLC0415 - as above
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    with stopped_by_signals() as stop:
        with Console(stderr=True).status("starting Spark"):
            spark = start_spark(settings, app=f"silverfold quarantine retry {feed.name}")
        with FeedBuild.open(lambda: spark, settings, connector, feed) as feed_build:
            feed_build.refresh()
            faults = run([feed_build], stop)
        exit_if_interrupted(stop)
        return {table: fault for (_, table), fault in faults.items()}


def _refused(key: str, found: object, allowed: str) -> ConfigError:
    return ConfigError(file="command line", key=key, found=found, allowed=allowed)


if __name__ == "__main__":
    main_of("quarantine")
