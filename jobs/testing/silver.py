"""Feeds whose silver tables a test looks at, and the assertion that compares one with expected rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from silverfold.connectors.feeds import chosen_tables
from silverfold.connectors.registry import open_feed
from silverfold.pipelines.places import REASONS, side_table_of, silver_table_of
from silverfold.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from silverfold.pipelines.applying.run import TableFault


@dataclass(frozen=True)
class SilverFeed:
    """A feed of a project, whose silver tables a test looks at.

    Args:
        project: Its warehouse has the tables.
        faults: Why tables hold, by name, as far as `build_recorded` let them.
    """

    project: Project
    name: str
    faults: Mapping[str, TableFault] = field(default_factory=dict)

    def read(self, table: str, *, at: int | datetime | None = None) -> DataFrame:
        """Return the rows of a table, its history or its side table, as `Project.read` does."""
        return self.project.read(table, at=at, feed=self.name)


def assert_silver_equals(
    spark: SparkSession,
    feed: SilverFeed,
    table: str,
    expected: DataFrame | Iterable[Mapping[str, Any]],
    *,
    at: int | datetime | None = None,
    engine_columns: bool = False,
) -> None:
    """Assert that a silver table has exactly the expected rows, in any order.

    Values are compared as in SQL: NaN is NaN, 0.0 is -0.0, and the entries of a map have no order. The names and types
    of columns must be the same, their order and nullability need not be. All rows of both sides are collected.

    Args:
        spark: Session that reads the table.
        feed: As `build_recorded` returns it, or ``SilverFeed(silverfold.open_project("my"), "market")``.
        table: A silver table, its ``__history`` or its ``__aside``.
        expected: A DataFrame; or rows by column, where a column that a row lacks is NULL. As everywhere in Spark, a
            time without a zone is in the zone of the machine.
        at: A position of the feed or a time, as in `Project.read`. A side table can only be read as of now.
        engine_columns: Whether the columns that silverfold adds are compared even if ``expected`` has none of them:
            ``_position``, ``_row_key``, ``_op`` of a changelog, ``_ordinal`` of a table whose rows are only added,
            ``__START_AT`` and ``__END_AT`` of a history, ``_present`` and ``_reasons`` of a side table. Without it,
            those that ``expected`` has are.

    Raises:
        AssertionError: Columns or rows differ. The message shows at most 20 differing rows of each side.
        ConfigError: There is no such feed, or it has no such table.
        QueryFailed: The table is not built, or cannot be read as of then.
        TypeError: What is expected are no rows.
        ModuleNotFoundError: ``silverfold[testing]`` is not installed.
    """
    if find_spec("chispa") is None:
        raise ModuleNotFoundError("assert_silver_equals needs chispa: install silverfold[testing]", name="chispa")
    from silverfold.jobs.testing.rows import assert_rows_equal  # noqa: PLC0415 - loads Spark
    from silverfold.pipelines.reading.tables import read_table  # noqa: PLC0415 - as above

    optional = frozenset[str]() if engine_columns else _added_columns(feed, table)
    called = f"{table} of feed {feed.name}{'' if at is None else f' at {at}'}"
    found = read_table(spark, feed.project.settings, table, at=at, feed=feed.name)
    fault = feed.faults.get(silver_table_of(table))
    note = "" if fault is None else f"\nThe table holds: {fault.error_class}: {fault.reason}"
    assert_rows_equal(spark, called, found, expected, optional=optional, note=note)


def _added_columns(feed: SilverFeed, table: str) -> frozenset[str]:
    """Return the lower-case names of the columns that a table may have beside its source's."""
    connector, opened = open_feed(feed.name, feed.project.settings)
    (name,) = chosen_tables(opened, [silver_table_of(table)], argument=("arguments", "table"))
    of_side_table = {REASONS} if table.endswith(side_table_of("")) else set()
    return connector.reserved_names(opened.tables[name]) | of_side_table
