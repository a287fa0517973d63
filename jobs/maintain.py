"""``silverfold maintain``: a scheduled job that keeps a feed's tables small.

With ``--json`` one object is printed at the end, with stable names and meanings: `pipelines.upkeep.maintain`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, print_json
from silverfold.jobs.common.context import invocation


def maintain(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a feed's tables small: drop old frames, join and remove files.

    Bronze loses the frames that are older than `maintain.bronze_days` and that no table needs: what a table needs
    begins with the last whole snapshot it has applied, so that it can go on, be verified and be rebuilt. A table
    without snapshots gets a base, built from the frames before they go: the table as it was then, with which
    `verify` and `rebuild` begin. One that keeps history of snapshots, and one that is not built, needs every frame;
    then nothing is dropped, and the reason is told.

    Small files of all tables are joined, and files removed that no table has referred to for `maintain.vacuum_hours`.
    Of frames that bronze has twice, one is left. Tables with timestamps in Spark's old form (INT96) are named.

    Safe beside receivers, builds and readers, and to stop at any moment. Run it once a day or so. A build may find its
    commit overtaken by the joining of files: a following one tries again by itself, one with --once at its next run.

    Exit code 3 when something could not be done this time.
    """
    run = invocation(ctx)
    settings = run.settings()
    connector, opened = run.feed(feed, settings)
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above
    from silverfold.pipelines.upkeep.maintain import Done, Maintenance  # noqa: PLC0415 - --help must not load Spark

    def show(done: Done) -> None:
        print(f"{done.table}: {done.result}")

    with Console(stderr=True).status("starting Spark") as status:
        spark = start_spark(settings, app=f"silverfold maintain {feed}")
        status.update("maintaining")
        maintenance = Maintenance(spark, settings, connector, opened, datetime.now(UTC), dry_run)
        report = maintenance.report() if as_json else maintenance.report(show)
    if as_json:
        print_json(report)
    if not report.complete:
        raise typer.Exit(3)


if __name__ == "__main__":
    main_of("maintain")
