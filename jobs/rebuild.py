"""``silverfold rebuild``: rebuild a silver table from bronze, and swap it in atomically.

With ``--json`` one object is printed at the end, with stable names and meanings: `pipelines.upkeep.rebuild_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from silverfold.conf.errors import ConfigError, UndecodableFrame
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, print_json
from silverfold.jobs.common.context import invocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from silverfold.pipelines.upkeep.rebuild_table import RebuildReport


def rebuild(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    table: Annotated[str, typer.Argument(help="Name of the silver table.")],
    as_json: AsJson = False,
) -> None:
    """Make a silver table anew from bronze and swap it in, in one commit.

    For a table that is broken or gone, or that another version of silverfold is to make anew. Readers see the old
    table until they see the new one; other builds may run meanwhile, and wait for its last piece if they keep
    overtaking it. The new table stands at the position the old one had reached: `build` goes on from there. A table
    that is gone, or that holds because the source has other columns or keys now (SCHEMA_DRIFT, REBUILD_NEEDED), is
    built as far as it goes; a history begins with the last such change. One whose log is damaged is gone, too: the log
    is set aside. Stop its builds before.

    Its history and remembered deletes are made anew with it, each swapped in by a commit of its own: the table last.
    Where the oldest frames were dropped, a table without snapshots, and its history, begins with its base. Any other
    history that is there cannot be made anew, and nothing is.

    Safe to stop at any moment, also by SIGKILL: the table and all beside it are as they were, and builds go on from
    there, until the commit of the table itself. What is left over, below TABLE__rebuild, goes with a rebuild a day
    later.

    Exit code 1 when it could not be rebuilt, such as from a frame that cannot be decoded: the old table stands.
    """
    run = invocation(ctx)
    settings = run.settings()
    connector, opened = run.feed(feed, settings)
    if table not in opened.tables:
        raise ConfigError(file="command line", key="TABLE", found=table, allowed=", ".join(sorted(opened.tables)))
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.upkeep.rebuild_table import rebuild_table  # noqa: PLC0415 - as above

    with Console(stderr=True).status(f"rebuilding {table}") as status:

        def start() -> SparkSession:
            status.update("starting Spark")
            session = start_spark(settings, app=f"silverfold rebuild {feed} {table}")
            status.update(f"rebuilding {table}")
            return session

        def show_progress(reached: int, goal: int) -> None:
            status.update(f"rebuilding {table}: position {reached:,} of {goal:,}")

        report = rebuild_table(start, settings, connector, opened, table, on_progress=show_progress)
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not report.rebuilt:
        raise typer.Exit(1)


def _show(report: RebuildReport) -> None:
    """Print the result for users."""
    table = report.table
    for log in report.damaged_logs:
        print(f"{table}: a log could not be read, and is now {log}, which may be removed once all is well")
    if not report.rebuilt:
        unchanged = "" if report.damaged_logs else ", it stands as it was"
        print(f"silverfold: {table} was not rebuilt{unchanged}: {report.reason}")
        if report.error_class == UndecodableFrame.error_class:
            print('silverfold: with on_bad_frame = "skip" in the table\'s settings it is rebuilt without the frame')
        return
    updates = counted(report.updates or 0, "update")
    print(f"{table}: rebuilt from {updates}; position {report.position}, version {report.delta_version}")
    if report.base_position is not None:
        print(f"{table}: begins with its base at position {report.base_position}: older frames had been dropped")
    if report.history_begins_at is not None:
        begins = f"its history begins at position {report.history_begins_at}"
        print(f"{table}: {begins}: before, it had other columns or keys")


if __name__ == "__main__":
    main_of("rebuild")
