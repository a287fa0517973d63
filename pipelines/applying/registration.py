"""Registers a feed's tables in a catalog, so that SQL tools find them by name (setting ``catalog``).

A silver table, its history and its side table have the names of their folders there. A name is made once its table
exists, for an external table at its place: cuts and rebuilds write by path, as without a name. Nothing here drops or
replaces a name. A registration that fails holds no rows: it is logged, and the next build tries again.

Comments go into the tables' own logs, where any Delta reader finds them: of a table its feed, source and keys, of a
column what the source's schema says. A user's own comments stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError, Overtaken, SchemaError, StoreUnavailable
from silverfold.conf.names import schema_parts
from silverfold.connectors.base import TableKind
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import Place, history_of, side_table_of
from silverfold.pipelines.spark.running import active_session
from silverfold.pipelines.spark.session import raising_if_ended
from silverfold.pipelines.storage.cuts import newest_note
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.pipelines.store import open_table
from silverfold.transforms.merge import settings
from silverfold.transforms.spark_errors import named_errors, was_cancelled
from silverfold.transforms.sql import ESCAPES, escaped, path_table, quoted

_OURS: Final = "silverfold: "
"""Beginning of a table's comment that may be replaced by a newer one."""

_IN_MEMORY: Final = (
    "names are gone once this Spark ends, for its catalog is in memory: "
    """spark."spark.sql.catalogImplementation" = "hive" and a metastore keep them"""
)


@dataclass
class Registration:
    """The names of one silver table, its history and its side table, in one process."""

    silver: SilverTable
    _left: dict[str, Place] = field(init=False)
    """Places of the tables to register in this process, by name."""
    _rested: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        silver = self.silver
        places = {silver.name: silver.place, side_table_of(silver.name): silver.side_table}
        if silver.conf.keeps_history:
            places[history_of(silver.name)] = silver.history
        self._left = places if silver.feed.catalog else {}

    def after_cut(self) -> None:
        """Register each table that exists, once in this process. Raises SparkUnavailable if Spark has ended."""
        for name, place in [*self._left.items()]:
            with suppress(StoreUnavailable):
                self._register(name, place, open_table(place))

    def at_rest(self) -> None:
        """Register those that never were, although there is nothing to apply. They have no comment yet.

        Others, which may be registered in another schema, are looked at only where Spark runs already: to look would
        start one each time that a scheduled build finds nothing new.
        """
        left, self._rested = {} if self._rested else {**self._left}, True
        for name, place in left.items():
            with suppress(StoreUnavailable):
                opened = open_table(place)
                if opened is not None and (not opened.metadata().description or _is_spark_running()):
                    self._register(name, place, opened)

    def _register(self, name: str, place: Place, opened: DeltaTable | None) -> None:
        if opened is None:
            return
        silver, target = self.silver, self._target(name)
        log = get_logger("build").bind(feed=silver.feed.name, table=silver.name, name=target)
        try:
            with raising_if_ended(), named_errors(name), settings(silver.session, ESCAPES):
                comment = self._comment(name)
                if _is_view(silver.session, target):
                    log.error("the name is taken by a view, and stays as it is")
                elif (found := _create(silver.session, target, place, comment)) is not None:
                    log.error("the name is taken by a table at another place, and stays as it is", place=found)
                else:
                    with sole_writer(silver.places, silver.feed.name, silver.name):
                        _set_comments(silver.session, place, opened, comment, self._column_comments())
                    if name == silver.name and self._is_in_memory():
                        log.warning(_IN_MEMORY)
        except Overtaken:  # the next cut tries again
            return
        except ApplyError as error:
            if was_cancelled(error):
                return
            advice = "are catalog and schema there, and may this user make tables in them? The next build tries again"
            log.warning("the table cannot be registered", reason=str(error), advice=advice)
        del self._left[name]

    def _target(self, name: str) -> str:
        return ".".join(map(quoted, (*schema_parts(self.silver.feed.catalog), name)))

    def _is_in_memory(self) -> bool:
        """Return whether the schema is in Spark's own catalog, without a metastore."""
        session, parts = self.silver.session, schema_parts(self.silver.feed.catalog)
        catalog = parts[0] if len(parts) > 1 else session.catalog.currentCatalog()
        is_deltas = str(session.conf.get(f"spark.sql.catalog.{catalog}", "")).endswith(".DeltaCatalog")
        return is_deltas and session.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"

    def _comment(self, name: str) -> str:
        silver = self.silver
        note = newest_note(open_table(silver.place))
        known = {} if note is None or note.settings is None else note.settings
        keys = ", ".join(silver.conf.keys or known.get("keys", ())) or "the source's own"
        rows = {
            TableKind.STATE: f"keys {keys}",
            TableKind.CHANGELOG: "every change",
            TableKind.APPEND: "every row as it came",
        }
        parts = {history_of(silver.name): "versions of the rows, ", side_table_of(silver.name): "rows kept aside, "}
        source = f"feed {silver.feed.name}, source {silver.conf.source or silver.name} ({silver.connector.name})"
        return f"{_OURS}{parts.get(name, '')}{source}, {rows[silver.table_kind]}"

    def _column_comments(self) -> Mapping[str, str]:
        with suppress(SchemaError):  # it cannot be read any more: cuts say so
            return self.silver.connector.column_comments(self.silver.feed, self.silver.name)
        return {}


def _is_spark_running() -> bool:
    with raising_if_ended():
        return active_session() is not None


def _is_view(session: SparkSession, target: str) -> bool:
    return session.catalog.tableExists(target) and "VIEW" in session.catalog.getTable(target).tableType


def _create(session: SparkSession, target: str, place: Place, comment: str) -> str | None:
    """Make a name for the table at a place, unless there is one; return the other place that it stands for, if any."""
    if not session.catalog.tableExists(target):
        create = f"CREATE TABLE IF NOT EXISTS {target} USING delta"
        session.sql(f"{create} COMMENT {escaped(comment)} LOCATION {escaped(place.url)}").collect()
    found, ours = (_location(session, table) for table in (target, path_table(place.url)))
    return None if found == ours else found


def _location(session: SparkSession, table: str) -> str:
    (row,) = session.sql(f"DESCRIBE DETAIL {table}").select("location").collect()
    location: str = row[0]
    return location


def _set_comments(
    session: SparkSession, place: Place, opened: DeltaTable, comment: str, columns: Mapping[str, str]
) -> None:
    table, have = path_table(place.url), opened.metadata().description
    if not have or (have.startswith(_OURS) and have != comment):
        session.sql(f"COMMENT ON TABLE {table} IS {escaped(comment)}").collect()
    without = [field.name for field in opened.schema().fields if not field.metadata.get("comment")]
    described = [f"{quoted(name)} COMMENT {escaped(columns[name])}" for name in without if name in columns]
    if described:
        session.sql(f"ALTER TABLE {table} ALTER COLUMN {', '.join(described)}").collect()
