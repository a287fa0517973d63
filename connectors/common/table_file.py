"""Tables in files, as the simulators of sources read them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from silverfold.conf.errors import ConfigError

_CSV_BLOCK: Final = 1 << 30
"""Bytes of a CSV file from which the types of its columns are inferred."""


def read_table_file(file: Path) -> pa.Table:
    """Return the rows of a Parquet (``.parquet``, ``.pq``) or CSV (``.csv``, ``.csv.gz``) file.

    The first line of a CSV file holds the names; types are inferred; an unquoted empty field is null.

    Raises:
        ConfigError: The file cannot be read, or a column has no name or that of another.
    """
    try:
        table = _read(file)
        names = table.column_names  # decoded only now
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ConfigError(file=str(file), key="file", found=str(error), allowed="a readable file") from error
    for place, name in enumerate(names):
        if not name or name in names[:place]:
            raise ConfigError(file=str(file), key="columns", found=name, allowed="a name for each, none twice")
    return table


def _read(file: Path) -> pa.Table:
    if file.suffix in {".parquet", ".pq"}:
        return pyarrow.parquet.read_table(file)
    if file.name.endswith((".csv", ".csv.gz")):
        table = pyarrow.csv.read_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK),
            convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
        )
        no_text = next((field.name for field in table.schema if pa.types.is_binary(field.type)), None)
        if no_text is not None:
            raise ConfigError(file=str(file), key=no_text, found="other bytes", allowed="text in UTF-8")
        return table
    raise ConfigError(file=str(file), key="file", found=file.suffix, allowed=".parquet, .pq, .csv or .csv.gz")
