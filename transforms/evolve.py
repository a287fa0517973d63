"""Lets a silver table follow the source's columns: new ones are added, anything else stops the table.

Names compare without regard to case, as Spark and Delta do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from conf.errors import SchemaDrift
from transforms.sql import quoted


def check_names(row: StructType, *, reserved: Collection[str], table: str) -> None:
    """Refuse columns of the source that Delta could not tell apart, or that bear a reserved name.

    Raises:
        SchemaDrift: Leave the column out at the source, or in the table's settings.
    """
    taken = sorted({name.lower() for name in row.names} & {name.lower() for name in reserved})
    if taken:
        raise SchemaDrift(f"the source has a column {taken[0]}, which is a name of ours", table=table)
    twice = [name for name, count in Counter(name.lower() for name in row.names).items() if count > 1]
    if twice:
        raise SchemaDrift(f"two columns are called {twice[0]}", table=table)


def add_columns(session: SparkSession, target: str, current: StructType, wanted: StructType, *, table: str) -> None:
    """Add the wanted columns the target lacks, in one commit of its own. Safe to repeat.

    Raises:
        SchemaDrift: A column is gone or has another type. The table stands as it was.
    """
    have = {field.name.lower(): field for field in current}
    for field in wanted:
        known = have.get(field.name.lower())
        if known is not None and known.dataType != field.dataType:
            found, expected = field.dataType.simpleString(), known.dataType.simpleString()
            raise SchemaDrift(f"column {field.name} is {found} now, was {expected}", table=table)
    gone = have.keys() - {field.name.lower() for field in wanted}
    if gone:
        raise SchemaDrift(f"the source lacks column {min(gone)} now", table=table)
    new = [
        f"{quoted(field.name)} {field.dataType.simpleString()}" for field in wanted if field.name.lower() not in have
    ]
    if new:
        session.sql(f"ALTER TABLE {target} ADD COLUMNS ({', '.join(new)})").collect()
