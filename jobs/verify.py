"""``silverfold verify``: compare silver with the landed frames, or with the source's current rows.

With ``--json`` one object is printed, with stable names and meanings: ``at``, ``warehouse``, ``feed``, ``against``,
``equal``, ``tables`` and ``retryable``. The keys are documented in `pipelines.verifying.verify`: `Verification`,
`TableVerification`, `DifferingRange`, `Difference`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from silverfold.conf.errors import StoreUnavailable
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, console_on, print_json
from silverfold.jobs.common.context import Tables, invocation
from silverfold.pipelines.places import history_of, places_of

if TYPE_CHECKING:
    from silverfold.connectors.base import Connector, Feed
    from silverfold.pipelines.places import Places
    from silverfold.pipelines.verifying.verify import TableVerification, Verification

_COLOURS = {"equal": "green", "different": "red", "unknown": "red", "not_built": "yellow"}
_LONGEST = 60


def verify(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    *,
    table: Tables = None,
    against_source: Annotated[
        bool, typer.Option("--against-source", help="Compare with the source itself instead of with bronze.")
    ] = False,
    patience: Annotated[
        float, typer.Option(min=0.0, help="With --against-source: seconds in which silver must be found to be it.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Compare silver tables with what bronze, or the source, says they must hold.

    Bronze is folded anew in plain Python, from the last whole snapshot up to the position the table has reached, or,
    for a table without snapshots, from the base with which `maintain` replaced the oldest frames, by
    code that shares with the build the wire codec, and for SBE what operations mean; silver is read without Spark. Row
    counts, keys and a hash of every column for each range of keys are compared, and where they differ, cells. So are
    all versions of a table that keeps history, which is told of as TABLE__history; where the oldest frames were
    dropped, those that ended before the first whole snapshot that is left are not looked at. Rows that a rule keeps
    aside count as the table's, for so they are the source's: which of them a rule is to keep aside is not judged anew.

    `--against-source` subscribes for itself and looks for the moment at which the source's table was what silver is:
    see `silverfold verify` in the README for what that proves. Run `receive` and `build --follow` beside it, or let
    the source rest. Tables without snapshots are compared if the source keeps its records, as HStreamDB does: with
    those of them that had landed at the table's position, read again from the oldest one.

    Safe beside everything else. Half a million rows at a time are held in memory, at two to three kilobytes each; all
    of a table at once where `keys` name other columns than the source does, or rows moved from key to key.

    The verdicts are recorded for `silverfold report`, without keys or cells, in `_silverfold/FEED/verified`.

    Exit code 1 when a table differs, cannot be verified, is held or stopped, or not built though frames of it landed,
    and when nothing has landed at all; 3 when the store or the source is unavailable, or files of a table while no
    other differs: each is verified.
    """
    from silverfold.connectors.feeds import chosen_tables  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.pipelines.verifying.verify_feed import verify_feed  # noqa: PLC0415 - as above

    run = invocation(ctx)
    settings = run.settings()
    connector, opened = run.feed(feed, settings)
    tables = chosen_tables(opened, table)
    with Console(stderr=True).status("verifying") as status:
        found = verify_feed(
            settings,
            connector,
            opened,
            tables,
            patience=patience if against_source else None,
            on_table=lambda name: status.update(f"verifying {name}"),
        )
    if as_json:
        print_json(found)
    else:
        show(found, sys.stdout, _obstacles(places_of(settings), connector, opened, found.tables))
    if found.retryable:
        raise typer.Exit(3)
    if not found.equal:
        raise typer.Exit(1)


def show(found: Verification, out: TextIO, obstacles: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print the result for users: a line per table, and the first differences.

    Args:
        obstacles: Why a rebuild cannot make a table anew, with the way on.
    """
    console = console_on(out)
    for table in found.tables:
        console.print(_line(table, found.against))
        if table.differences:
            console.print(_differences(table))
        if table.differences and found.against == "bronze":
            name = table.table.removesuffix(history_of(""))
            anew = f"`silverfold rebuild {found.feed} {name}` makes it anew from bronze"
            console.print(Text(f"no rebuild makes it anew: {obstacles[name]}" if name in obstacles else anew))


def _obstacles(
    places: Places, connector: Connector, feed: Feed, verified: Sequence[TableVerification]
) -> dict[str, str]:
    """Return, by table, what keeps a rebuild from making anew those that differ."""
    from silverfold.pipelines.upkeep.beginnings import rebuild_obstacle  # noqa: PLC0415 - --help must not load what jobs run on

    different = {each.table.removesuffix(history_of("")) for each in verified if each.differences}
    found = dict[str, str]()
    for name in different:
        with suppress(StoreUnavailable):  # a verdict says so
            found[name] = rebuild_obstacle(places, connector, feed, name) or ""
    return {name: obstacle for name, obstacle in found.items() if obstacle}


def _line(table: TableVerification, against: str) -> Text:
    text = Text.assemble(f"{table.table}: ", (table.verdict.value, _COLOURS[table.verdict.value]))
    if table.reason is not None:
        text.append(f": {table.reason}")
    if table.expected_rows is not None:
        set_aside = f", {table.rows_aside:,} of them kept aside," if table.rows_aside else ""
        rows = counted(table.found_rows or 0, "row")
        text.append(f": {rows}{set_aside} at position {table.position}, version {table.delta_version}")
        text.append(f"; {against} says {table.expected_rows:,}")
    cells = "cell differs" if table.different_cells == 1 else "cells differ"
    for name, count in (
        ("missing", table.missing_rows),
        ("too many", table.extra_rows),
        (cells, table.different_cells),
    ):
        if count:
            text.append(f"; {count:,} {name}")
    return text


def _differences(table: TableVerification) -> Table:
    shown = Table("key", "column", "expected", "found", header_style="bold", title="the first", title_justify="left")
    for each in table.differences:
        key = ", ".join(f"{name}={_text(value)}" for name, value in each.key.items())
        shown.add_row(*map(Text, (key, each.column or "whole row", _text(each.expected), _text(each.found))))
    return shown


def _text(value: Any) -> str:
    text = "NULL" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


if __name__ == "__main__":
    main_of("verify")
