"""``silverfold config``: check the settings before a command uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from rich.console import Console

from silverfold.conf.errors import ApplyError, SilverfoldError, SparkUnavailable, StoreUnavailable
from silverfold.conf.model import Settings
from silverfold.conf.text import without_secrets
from silverfold.connectors.base import Connector, Feed, TableKind
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import invocation
from silverfold.pipelines.landing.source_change import change_since_landed

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(no_args_is_help=True)


@app.callback()
def config() -> None:
    """Look at the settings."""


@app.command()
def check(
    ctx: typer.Context,
    connect: Annotated[
        bool, typer.Option("--connect", help="Start Spark too, and write, read and remove a table in the warehouse.")
    ] = False,
) -> None:
    """Check every setting of every file, and list the feeds found.

    No source is connected to. Of a feed whose schema is in a file, bronze is asked which schema landed last, and what
    changed since is told.

    Exit code 2 with every mistake on a line of its own: file, key, what was found, what is allowed; what several
    settings of a connector say together is told once each is right. 1 when a schema changed so that what
    landed before would be misread; 3 when --connect finds that something does not work.
    """
    run = invocation(ctx)
    settings, feeds = run.checked()
    from silverfold.pipelines.storage.lease import check_package  # noqa: PLC0415 - --help must not load what jobs run on

    breaks = False
    for connector, feed in feeds:
        typer.echo(_description(connector, feed))
        breaks |= _print_change(settings, connector, feed)
    count = len(settings.feeds)
    found = "what landed would be misread" if breaks else "no mistakes"
    typer.echo(f"{count} {'feed' if count == 1 else 'feeds'}, warehouse {settings.warehouse}: {found}")
    if settings.is_on_s3 and not settings.lease and run.env != "databricks":
        typer.echo("  lease = false: two writers at once can lose commits, unless Spark's log store lets them not")
    if settings.needs_leases:
        check_package()
    if connect:
        typer.echo(_try_warehouse(settings))
    if breaks:
        raise typer.Exit(1)


def _try_warehouse(settings: Settings) -> str:
    """Create a table as receivers do, append a row as builds do, read both rows, and remove the table.

    Return a message that names the libraries used. The row goes through a Python worker, which must have our packages.

    Raises:
        StoreUnavailable: The warehouse cannot be written or read.
        SparkUnavailable: Spark does not start, or cannot write or read the table.
    """
    import pyarrow as pa  # noqa: PLC0415 - without --connect neither it nor Spark is needed
    from deltalake import write_deltalake  # noqa: PLC0415 - as above

    from silverfold.pipelines.places import places_of  # noqa: PLC0415 - as above
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above
    from silverfold.pipelines.storage.lease import sole_writer  # noqa: PLC0415 - as above
    from silverfold.pipelines.storage.remove_tree import remove_tree  # noqa: PLC0415 - as above
    from silverfold.pipelines.store import naming_the_store  # noqa: PLC0415 - as above
    from silverfold.transforms.merge import Recorded, append  # noqa: PLC0415 - as above
    from silverfold.transforms.spark_errors import named_errors  # noqa: PLC0415 - as above

    places = places_of(settings)
    place = places.trial(uuid4().hex)
    try:
        with naming_the_store(place):
            write_deltalake(place.url, pa.table({"n": [1]}), storage_options=dict(place.storage_options))
        with Console(stderr=True).status("starting Spark"):
            spark = start_spark(settings, app="silverfold config check")
        lease = sole_writer(places, "config check", "trial") if places.needs_leases else nullcontext()
        row = spark.range(2, 3).toDF("n").mapInArrow(_unchanged, "n bigint")
        with lease, named_errors("config check"):
            append(row, place.url, recorded=Recorded("config check", 0))
            count = spark.read.format("delta").load(place.url).count()
    except ApplyError as error:
        raise SparkUnavailable(f"Spark cannot write and read {place}: {error}") from error
    finally:
        remove_tree(place)
    if count != 2:
        raise StoreUnavailable(f"{place}: Spark does not find there what delta-rs wrote: they reach other stores")
    return f"a table was written, read and removed there, by delta-rs and by Spark {spark.version}"


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


_KINDS = {
    TableKind.STATE: "keys: {keys}",
    TableKind.CHANGELOG: "every change",
    TableKind.APPEND: "every row as it came",
}


def _print_change(settings: Settings, connector: Connector, feed: Feed) -> bool:
    """Print the source's changes since frames landed, if any; return whether landed frames would be misread."""
    try:
        change = change_since_landed(settings, connector, feed)
    except SilverfoldError as error:
        typer.echo(f"  what landed cannot be looked at: {error}")
        return False
    if change is None:
        return False
    typer.echo("\n    ".join((f"  {change.summary}", *change.changes)))
    return change.breaks


def _description(connector: Connector, feed: Feed) -> str:
    names = f", tables registered in {feed.catalog}" if feed.catalog else ""
    lines = [f"{feed.name}: {connector.name} at {without_secrets(feed.address) or 'its default address'}{names}"]
    for name, table in feed.tables.items():
        keys = ", ".join(table.keys) or "the source's row keys"
        lines.append(f"  {name}: {table.source or name}, {_KINDS[connector.table_kind(table)].format(keys=keys)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main_of("config")
