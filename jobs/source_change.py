"""What became of a source since its frames landed: what its connector says of a schema that is another one now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from conf.errors import SilverfoldError
from pipelines.places import places_of

if TYPE_CHECKING:
    from conf.model import Settings
    from connectors.base import Connector, Feed, SourceChange


def change_since_landed(settings: Settings, connector: Connector, feed: Feed) -> SourceChange | None:
    """Return what is said otherwise now than by the newest control frame of the feed; None where nothing is.

    Raises:
        StoreUnavailable: What landed cannot be looked at.
        SchemaError: What is said now cannot be read.
    """
    if connector.continuity != "resume":
        return None
    from pipelines.bronze import last_control  # noqa: PLC0415 - few feeds have anything to be asked of the store

    told = last_control(places_of(settings).bronze(feed.name))
    return None if told is None else connector.schema_change(feed, told)


def misread_since_landed(settings: Settings, connector: Connector, feed: Feed) -> SourceChange | None:
    """Return a change by which what landed is misread; None where there is none, or nobody can tell now."""
    with suppress(SilverfoldError):  # what comes next says so
        change = change_since_landed(settings, connector, feed)
        return change if change is not None and change.breaks else None
    return None
