"""What simulators share: some of their commands' options, lines printed, files of tables, changes at a steady rate."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich.console import Console

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.conf.text import in_one_line
from silverfold.connectors.common.rate import Changeable, Rate, change_steadily
from silverfold.connectors.common.server_thread import ServerThread

Host: TypeAlias = Annotated[str, typer.Option(help="Address to listen on. There is no authentication.")]
Port: TypeAlias = Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 for any free one.")]
QuietAfter: TypeAlias = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Be quiet after that; default: never.")
]
Certificate: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM file of a certificate: connections are encrypted.")
]
CertificateKey: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM file of its key, where that is not in the same file.")
]

_OTHER_SEPARATOR: Final = re.compile(r"[;\t|]")
_CSV_BLOCK: Final = 1 << 30
"""Bytes of a CSV file from which the types of its columns are inferred."""


def announce(line: str) -> None:
    """Print a line, with the control characters of names in it escaped."""
    typer.echo(in_one_line(line))


def change_visibly(
    changers: Sequence[Changeable], rate: Rate, stop: threading.Event, server: ServerThread | None = None
) -> int:
    """Make changes until the time is over or ``stop`` is set; return their number. A terminal shows the progress.

    Args:
        changers: Each is changed at the rate.
        server: The server whose clients are counted in the progress.

    Raises:
        SourceUnavailable: A change failed before ``stop`` was set.
    """
    made = 0
    with Console().status("changing") as status:

        def progress(changes: int) -> None:
            nonlocal made
            made += changes
            status.update(f"{made} changes" + (f", {server.client_count} clients" if server else ""))

        try:
            change_steadily(changers, rate, clock=time.monotonic, stopped_within=stop.wait, progress=progress)
        except SourceUnavailable:
            if not stop.is_set():
                raise
    return made


def read_table_file(file: Path) -> pa.Table:
    """Return the rows of a Parquet (``.parquet``, ``.pq``) or CSV (``.csv``, ``.csv.gz``) file.

    The first line of a CSV file holds the names; types are inferred; an unquoted empty field is null.

    Raises:
        ConfigError: The file cannot be read, something else than commas separates its columns, or a column has no name
            or that of another.
    """
    try:
        table = _read(file)
        names = table.column_names  # decoded only now
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ConfigError(file=str(file), key="file", found=str(error), allowed="a readable file") from error
    if len(names) == 1 and (separator := _OTHER_SEPARATOR.search(names[0])):
        allowed = f"columns separated by commas, not {separator[0]!r}"
        raise ConfigError(file=str(file), key="columns", found=names[0], allowed=allowed)
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise ConfigError(file=str(file), key="columns", found=name, allowed="a name for each, none twice")
    return table


def _read(file: Path) -> pa.Table:
    if file.suffix in {".parquet", ".pq"}:
        return pyarrow.parquet.read_table(file)
    if file.name.endswith((".csv", ".csv.gz")):
        table = pyarrow.csv.read_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK),
            convert_options=pyarrow.csv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        no_text = next((field.name for field in table.schema if pa.types.is_binary(field.type)), None)
        if no_text is not None:
            raise ConfigError(file=str(file), key=no_text, found="other bytes", allowed="text in UTF-8")
        return table
    raise ConfigError(file=str(file), key="file", found=file.suffix, allowed=".parquet, .pq, .csv or .csv.gz")
