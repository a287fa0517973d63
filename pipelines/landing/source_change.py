"""Changes of a source's schema since its frames landed, as described by the connector."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from silverfold.conf.errors import SilverfoldError
from silverfold.pipelines.places import places_of

if TYPE_CHECKING:
    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Connector, Feed, SourceChange


def change_since_landed(settings: Settings, connector: Connector, feed: Feed) -> SourceChange | None:
    """Return how the source's schema differs from the feed's newest control frame; None if it does not.

    Raises:
        StoreUnavailable: Bronze cannot be read.
        SchemaError: The current schema cannot be read.
    """
    if connector.continuity != "resume":
        return None
    from silverfold.pipelines.landing.bronze import last_controls  # noqa: PLC0415 - few feeds need to read the store

    landed = last_controls(places_of(settings).bronze(feed.name)).get(None)
    return None if landed is None else connector.schema_change(feed, landed)


def misread_since_landed(settings: Settings, connector: Connector, feed: Feed) -> SourceChange | None:
    """Return a change that makes landed frames misread; None if there is none, or if it cannot be determined now."""
    with suppress(SilverfoldError):  # the next step reports the error
        change = change_since_landed(settings, connector, feed)
        return change if change is not None and change.breaks else None
    return None
