"""What planning must know of a silver table: by which rules it takes updates, and which of them it has taken."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.base import Connector, Feed
from pipelines.reached import NOTHING, Reached


@dataclass(frozen=True)
class StreamRules:
    """The rules of one silver table and its stream.

    Args:
        has_snapshots: `Connector.has_snapshots`.
        resync: After a lost connection the stream needs a snapshot (`Connector.continuity`).
        applied: Position the silver table has reached; -1 for none.
        applied_epoch: Epoch of that position; None when it is to be learnt from bronze.
        every_update: No snapshot makes earlier updates needless: each takes effect in its turn, as history needs it.
        stream: `Connector.stream`; empty where it is called as the table is.
        received: When the frame at ``applied`` was received, in microseconds, as the table's own log tells; None where
            it does not. Bronze was lost, or exchanged, where its frame there was received at another time.
        is_misfit: It was exchanged: `pipelines.reached.stands_on_another`.
    """

    has_snapshots: bool
    resync: bool
    applied: int = -1
    applied_epoch: int | None = None
    every_update: bool = False
    stream: str = ""
    received: int | None = None
    is_misfit: bool = False

    @staticmethod
    def of(
        connector: Connector,
        feed: Feed,
        table: str,
        now: Reached = NOTHING,
        *,
        is_misfit: bool = False,
    ) -> StreamRules:
        """Return the rules of a configured table that stands somewhere."""
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
