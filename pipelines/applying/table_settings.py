"""Follows the settings that Delta has for a table: deletion vectors, change data feed and clustering.

A new table gets the first two by defaults of the session that makes it (`properties_of`). A table that is there already
follows a setting that was changed in a commit of its own, before its next cut, and its companion tables with it. Rows
stay in the files they are in; OPTIMIZE clusters them, and a rebuild writes all anew. Without a setting a table keeps
what it has, maybe by a user's own statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError, Overtaken
from silverfold.conf.model import Table
from silverfold.conf.names import caseless
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.companions import tables_of
from silverfold.pipelines.store import open_table
from silverfold.transforms.spark_errors import named_errors, was_cancelled
from silverfold.transforms.sql import path_table, quoted


def properties_of(table: Table) -> dict[str, str]:
    """Return the Delta properties that a table's settings set."""
    wanted = {
        "delta.enableDeletionVectors": table.deletion_vectors,
        "delta.enableChangeDataFeed": table.change_data_feed,
    }
    return {name: str(value).lower() for name, value in wanted.items() if value is not None}


def follow_settings(
    session: SparkSession, places: Places, feed: str, name: str, table: Table, *, followed: set[str]
) -> None:
    """Give a silver table and its companion tables, as far as they exist, what the settings say.

    What Spark or Delta refuses is logged, and keeps no rows waiting. The caller is the only writer. Safe to repeat.

    Args:
        session: Not shared with other writers.
        followed: URLs of the tables that need no look; is added to.

    Raises:
        StoreUnavailable: The store does not answer.
    """
    wanted = properties_of(table)
    if not wanted and table.cluster_by is None:
        return
    clustered = {place.url for place in (places.silver(feed, name), places.history(feed, name))}
    for place in tables_of(places, feed, name):
        if place.url in followed or (opened := open_table(place)) is None:
            continue
        columns = table.cluster_by if place.url in clustered else None
        try:
            with named_errors(name):
                _set_properties(session, place, opened, wanted)
                _cluster(session, place, columns)
        except Overtaken:  # the next cut tries again
            continue
        except ApplyError as error:
            if was_cancelled(error):
                continue
            log = get_logger("build").bind(feed=feed, table=name)
            log.warning("a setting of the table cannot be followed", place=place.url, reason=str(error))
        followed.add(place.url)


def _set_properties(session: SparkSession, place: Place, opened: DeltaTable, wanted: Mapping[str, str]) -> None:
    have = opened.metadata().configuration
    changed = [f"'{name}' = '{value}'" for name, value in wanted.items() if have.get(name, "false") != value]
    if changed:
        session.sql(f"ALTER TABLE {path_table(place.url)} SET TBLPROPERTIES ({', '.join(changed)})").collect()


def _cluster(session: SparkSession, place: Place, columns: Sequence[str] | None) -> None:
    if columns is None:
        return
    (row,) = session.sql(f"DESCRIBE DETAIL {path_table(place.url)}").select("clusteringColumns").collect()
    if [caseless(_unquoted(name)) for name in row[0]] != [*map(caseless, columns)]:
        listed = f"({', '.join(map(quoted, columns))})" if columns else "NONE"
        session.sql(f"ALTER TABLE {path_table(place.url)} CLUSTER BY {listed}").collect()


def _unquoted(name: str) -> str:
    """Return a column's name as ``DESCRIBE DETAIL`` shows it, without the quotes that some names have there."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
