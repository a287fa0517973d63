"""Rebuilds a table as ``silverfold rebuild`` does, and reports what came of it.

The model here is printed by ``silverfold rebuild --json``: its names and meanings must not change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from silverfold.conf.errors import ApplyError, PositionGap, SilverfoldError
from silverfold.pipelines.landing.source_change import change_since_landed
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.report import Report
from silverfold.pipelines.upkeep.rebuild import Rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Connector, Feed


class RebuildReport(Report):
    """Everything ``silverfold rebuild --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    table: str
    rebuilt: bool
    error_class: str | None = None
    """Stable name (`conf.errors`) of why it was not rebuilt; null if it was, or the source's schema was to blame."""
    reason: str | None = None
    """Why it was not rebuilt; null if it was."""
    position: int | None = None
    """Position of the rebuilt table; this and the next four are null if it was not rebuilt."""
    delta_version: int | None = None
    """Version of the table that has the rebuilt rows."""
    updates: int | None = None
    """Complete updates it was built from."""
    history_begins_at: int | None = None
    """Position from which its history was made, as before the table had other columns or keys; else null."""
    base_position: int | None = None
    """Position of the base that it begins with, since older frames were dropped; null without."""
    damaged_logs: tuple[str, ...] = ()
    """Logs that could not be read, under the names they have now: they may be removed once all is well."""


def rebuild_table(
    spark: Callable[[], SparkSession],
    settings: Settings,
    connector: Connector,
    feed: Feed,
    table: str,
    *,
    on_progress: Callable[[int, int], None] = lambda _reached, _goal: None,
) -> RebuildReport:
    """Make a silver table anew from bronze, and swap it in. Runs Spark jobs; safe to repeat, and to stop.

    Args:
        spark: Called once, unless the source's schema forbids a rebuild.
        on_progress: Called in this thread with the position of the new table, and the position it is built to.

    Raises:
        StoreUnavailable: Try again.
        SchemaError: The source's current schema cannot be read.
        SparkUnavailable: Spark does not start, or ended.
    """
    now, damaged_logs = datetime.now(UTC), list[str]()

    def set_aside(log: str) -> None:
        damaged_logs.append(log)
        get_logger("rebuild").warning("a log could not be read, and was set aside", table=table, log=log)

    def failed(reason: str, error: SilverfoldError | None = None) -> RebuildReport:
        return RebuildReport(
            at=now,
            warehouse=settings.warehouse,
            feed=feed.name,
            table=table,
            rebuilt=False,
            error_class=None if error is None else error.error_class,
            reason=reason,
            damaged_logs=tuple(damaged_logs),
        )

    change = change_since_landed(settings, connector, feed)
    if change is not None and change.breaks:
        known = "`silverfold config check` names it; if that is right, let `silverfold receive` land the schema first"
        return failed(f"{change.summary}: {known}")
    token = uuid.uuid4().hex
    try:
        done = Rebuild(spark(), settings, connector, feed, table, token, on_progress, set_aside).run()
    except (ApplyError, PositionGap) as error:
        return failed(str(error), error)
    return RebuildReport(
        at=now,
        warehouse=settings.warehouse,
        feed=feed.name,
        table=table,
        rebuilt=True,
        position=done.position,
        delta_version=done.delta_version,
        updates=done.updates,
        history_begins_at=done.begins,
        base_position=done.base,
        damaged_logs=tuple(damaged_logs),
    )
