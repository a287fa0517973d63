"""``silverfold rebuild``: rebuild a silver table from bronze, and swap it in atomically."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer
from rich.console import Console

from silverfold.conf.errors import ApplyError, ConfigError, PositionGap, UndecodableFrame
from silverfold.conf.text import counted
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import invocation
from silverfold.jobs.common.source_change import change_since_landed


def rebuild(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    table: Annotated[str, typer.Argument(help="Name of the silver table.")],
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
    change = change_since_landed(settings, connector, opened)
    if change is not None and change.breaks:
        known = "`silverfold config check` names it; if that is right, let `silverfold receive` land the schema first"
        print(f"silverfold: {table} was not rebuilt, it stands as it was: {change.summary}: {known}")
        raise typer.Exit(1)
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above
    from silverfold.pipelines.upkeep.rebuild import Rebuild  # noqa: PLC0415 - --help must not load Spark

    damaged_logs: list[str] = []

    def set_aside(log: str) -> None:
        damaged_logs.append(log)
        print(f"{table}: a log could not be read, and is now {log}, which may be removed once all is well")

    def report_progress(reached: int, goal: int) -> None:
        status.update(f"rebuilding {table}: position {reached:,} of {goal:,}")

    with Console(stderr=True).status("starting Spark") as status:
        spark = start_spark(settings, app=f"silverfold rebuild {feed} {table}")
        status.update(f"rebuilding {table}")
        try:
            done = Rebuild(
                spark, settings, connector, opened, table, uuid.uuid4().hex, report_progress, set_aside
            ).run()
        except (ApplyError, PositionGap) as error:
            unchanged = "" if damaged_logs else ", it stands as it was"
            print(f"silverfold: {table} was not rebuilt{unchanged}: {error}")
            if isinstance(error, UndecodableFrame):
                print('silverfold: with on_bad_frame = "skip" in the table\'s settings it is rebuilt without the frame')
            raise typer.Exit(1) from error
    updates = counted(done.updates, "update")
    print(f"{table}: rebuilt from {updates}; position {done.position}, version {done.delta_version}")
    if done.base is not None:
        print(f"{table}: begins with its base at position {done.base}: older frames had been dropped")
    if done.begins is not None:
        print(f"{table}: its history begins at position {done.begins}: before, it had other columns or keys")


if __name__ == "__main__":
    main_of("rebuild")
