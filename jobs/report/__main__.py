"""``silverfold report``: write a page about a feed, for a browser. Reads only the store, never loads Spark."""

from __future__ import annotations

import errno
import os
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from silverfold.conf.errors import ConfigError
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import invocation
from silverfold.pipelines.places import places_of


def report(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page to write, or to replace.", show_default="FEED.html"),
    ] = None,
) -> None:
    """Write a page about a feed, with charts, to send or to keep.

    Needs Altair and its renderer: `silverfold[report]`. The page shows the state and the faults of the moment, the lag
    of the newest cuts of each table, their rows, and how long they took; the feed's connections and the gaps between
    them; how many rows failed which rule; and what `silverfold verify` found last. All of it is what the store records.
    The page is one file that asks no host for anything, light or dark as the browser is.

    Exit code 3 when the feed, or a part of it, cannot be read now: the page has the rest, and says so. Nothing is
    written where no table can be read.
    """
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        allowed = "one whose packages are here: install silverfold[report]"
        raise ConfigError(file="command line", key="COMMAND", found="report", allowed=allowed)
    from silverfold.jobs.report.page import page_of  # noqa: PLC0415 - --help needs no extra
    from silverfold.jobs.report.readings import read_feed  # noqa: PLC0415 - --help must not load what jobs run on

    run = invocation(ctx)
    settings, now = run.settings(), datetime.now(UTC)
    connector, opened = run.feed(feed, settings)
    reading = read_feed(places_of(settings), connector, opened, now=now)
    page = page_of(reading, settings.warehouse).encode()
    file = Path(f"{feed}.html") if output is None else output
    write(file, page)
    tables = counted(len(reading.status.tables), "table")
    print(f"{file}: {tables}, {counted(-(-len(page) // 1024), 'KiB').removesuffix('s')}")
    for fault in reading.faults:
        print(f"silverfold: {fault}", file=sys.stderr)
    if reading.faults:
        raise typer.Exit(3)


def write(file: Path, page: bytes) -> None:
    """Write a page at once: a reader finds the old one or the new one. Raises ConfigError."""
    target = file.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():  # a device would be replaced
            raise OSError(errno.EINVAL, "Not a file")
        part.write_bytes(page)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        found, allowed = f"{file}: {error.strerror}", "a file in a folder that can be written"
        raise ConfigError(file="command line", key="--output", found=found, allowed=allowed) from error


if __name__ == "__main__":
    main_of("report")
