"""``silverfold demo``: runs source, receiver and build on this machine without any setup, and verifies the result.

However the demo ends, it leaves no process and no folder behind, except a folder given by ``--keep``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NoReturn

import typer

from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import console_on
from silverfold.jobs.common.context import invocation

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


def demo(
    ctx: typer.Context,
    seconds: Annotated[float, typer.Option(min=0, help="How long tables change while the build follows.")] = 15,
    rows: Annotated[int, typer.Option(min=1, help="Rows each of the two tables begins with.")] = 5000,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Keep settings, tables and logs in a new folder."),
    ] = None,
) -> None:
    """Show everything at work: a live source, receiver, build, and a proof.

    Starts a Deephaven table server with two tables that between them have every column type, a receiver as a process
    of its own, and Spark. The tables change while the build follows; half-way the server breaks the connection. Then
    their status and a query are shown, and silver is verified against the server, cell by cell.

    Exit code 0 only if every cell is equal. Needs nothing but a free port of this machine and, the first time, a
    network to fetch Delta's JARs.
    """
    console = console_on(sys.stdout)
    console.print("silverfold demo: a source, a receiver and a build on this machine", style="bold")
    with _folder(keep) as home, ExitStack() as cleanup:
        from silverfold.jobs.demo.stage import perform  # noqa: PLC0415 - --help must not load what the demo runs on

        for number in _ENDINGS:
            signal.signal(number, _interrupt)
        try:
            equal = perform(invocation(ctx), home, cleanup, console, seconds=seconds, rows=rows)
        except KeyboardInterrupt as interrupt:
            console.print("stopping receiver, source and Spark")
            if not interrupt.args:  # Ctrl-C
                raise
            sys.exit(128 + interrupt.args[0])
        finally:
            for number in (
                signal.SIGINT,
                *_ENDINGS,
            ):  # stopping takes seconds: a second Ctrl-C would leave some running
                signal.signal(number, signal.SIG_IGN)
    if keep is not None:
        console.print(f"\nkept: {home}\n  silverfold --conf {home}/conf status")
        console.print(f'  silverfold --conf {home}/conf sql "SELECT * FROM baskets LIMIT 3"', markup=False)
    if not equal:
        raise typer.Exit(1)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield a temporary folder, removed at the end, or the folder to keep, which must be new or empty."""
    if keep is None:
        with TemporaryDirectory(prefix="silverfold-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--keep") from error
    if used:
        raise typer.BadParameter(f"{keep} is not empty", param_hint="--keep")
    yield keep.resolve()


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    main_of("demo")
