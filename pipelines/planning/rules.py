"""What planning needs to know about a silver table: its rules for taking updates, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.landing.dropped import base_position, dropped_of
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.silver_position import NO_POSITION, SilverPosition


@dataclass(frozen=True)
class StreamRules:
    """The rules of one silver table and its stream.

    Args:
        has_snapshots: `Connector.has_snapshots`.
        resync: After a lost connection the stream needs a snapshot (`Connector.continuity`).
        applied: Position the silver table has reached; -1 for none.
        applied_epoch: Epoch of that position; None to take it from bronze.
        every_update: No snapshot supersedes earlier updates: each takes effect in turn, as history requires.
        stream: `Connector.stream`; empty if it has the table's name.
        received: When the frame at ``applied`` was received, in microseconds since 1970, from the table's own log;
            None if not recorded. Bronze was lost or exchanged if its frame there was received at another time.
        is_misfit: Bronze was exchanged: `pipelines.landing.losses.was_replaced`.
        base: Position of the table's base; None if it has none.
        complete: `pipelines.landing.dropped.Dropped.complete`.
    """

    has_snapshots: bool
    resync: bool
    applied: int = -1
    applied_epoch: int | None = None
    every_update: bool = False
    stream: str = ""
    received: int | None = None
    is_misfit: bool = False
    base: int | None = None
    complete: int | None = None

    @staticmethod
    def of(
        connector: Connector,
        feed: Feed,
        table: str,
        now: SilverPosition = NO_POSITION,
        *,
        is_misfit: bool = False,
    ) -> StreamRules:
        """Return the rules of a configured table at its current position."""
        settings = feed.tables[table]
        return StreamRules(
            connector.has_snapshots(settings),
            connector.continuity == "resync",
            now.position,
            every_update=settings.keeps_history,
            stream=connector.stream(feed, table),
            received=now.received,
            is_misfit=is_misfit,
        )

    @staticmethod
    def read(
        places: Places, connector: Connector, feed: Feed, table: str, now: SilverPosition, *, is_misfit: bool
    ) -> StreamRules:
        """Return the same with what the store records of dropped frames and the base. Raises StoreUnavailable."""
        rules = StreamRules.of(connector, feed, table, now, is_misfit=is_misfit)
        if rules.has_snapshots:
            return rules
        dropped = dropped_of(places.bronze(feed.name), feed.name, table)
        return replace(
            rules,
            applied_epoch=now.epoch or None if now.position < dropped.floor else None,
            base=base_position(places, feed.name, table),
            complete=dropped.complete,
        )
