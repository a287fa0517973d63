"""Verifies the tables of a feed one by one: against bronze, or against the source itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, StoreUnavailable, WireError
from silverfold.pipelines.landing.bronze import last_position
from silverfold.pipelines.landing.source_change import misread_since_landed
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import history_of, places_of
from silverfold.pipelines.reading.status import TableState, read_status
from silverfold.pipelines.verifying.verify import (
    TableVerification,
    Verdict,
    Verification,
    summarize,
    unknown,
    verify_history,
    verify_table,
)
from silverfold.pipelines.verifying.verify_log import record
from silverfold.pipelines.verifying.verify_source import verify_against_source

if TYPE_CHECKING:
    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Connector, Feed
    from silverfold.pipelines.places import Places

_OF_ONE_TABLE = (SourceRefused, RemoteProtocolError, WireError)
"""Errors of a source that concern one of its tables."""


def verify_feed(
    settings: Settings,
    connector: Connector,
    feed: Feed,
    tables: Sequence[str],
    *,
    patience: float | None = None,
    on_table: Callable[[str], object] = lambda _name: None,
) -> Verification:
    """Compare silver tables, and their histories, with bronze or with the source.

    A table that cannot be verified gets the verdict ``unknown``, and the others are still verified.

    Args:
        patience: Compare with the source, for so many seconds a table; None to compare with bronze.
        on_table: Called with the name of each table before it is verified.

    Raises:
        SourceUnavailable: The source cannot be reached.
        StoreUnavailable: The quarantine cannot be read.
    """
    now, places = datetime.now(UTC), places_of(settings)
    _warn_if_misread(settings, connector, feed)
    verified, unread = [], False
    for name in tables:
        on_table(name)
        for shown, verify_one in _verifications(places, connector, feed, name, patience):
            try:
                verified.append(verify_one())
            except (StoreUnavailable, *_OF_ONE_TABLE) as error:
                verified.append(unknown(shown, str(error)))
                unread |= isinstance(error, StoreUnavailable)
    try:
        stopped = _stopped(places, connector, feed, tables, now)
    except StoreUnavailable as error:
        stopped = {}
        if not unread:  # else a verdict already says so
            get_logger("verify").error("store unavailable", feed=feed.name, reason=str(error))
        unread = True
    differs = any(each.verdict is Verdict.DIFFERENT for each in verified)
    against: Literal["bronze", "source"] = "bronze" if patience is None else "source"
    found = summarize(places, feed.name, against, verified, now, stopped=stopped)
    _record(places, found)
    return found.model_copy(update={"retryable": unread and not differs})


def _record(places: Places, found: Verification) -> None:
    """Record the result for reports, if anything has landed; warn if that fails: some may only read the store."""
    is_built = any(each.verdict is not Verdict.NOT_BUILT for each in found.tables)
    try:
        if is_built or last_position(places.bronze(found.feed), found.feed) >= 0:
            record(places, found)
    except StoreUnavailable as error:
        get_logger("verify").warning("reports will not show this", feed=found.feed, reason=str(error))


def _warn_if_misread(settings: Settings, connector: Connector, feed: Feed) -> None:
    """Warn if expected rows are decoded by another schema than the frames landed with, and that misreads them."""
    change = misread_since_landed(settings, connector, feed)
    if change is not None:
        expected = "what is expected of frames that landed before is read by the schema of today"
        get_logger("verify").warning(change.summary, feed=feed.name, meaning=expected)


def _stopped(places: Places, connector: Connector, feed: Feed, tables: Sequence[str], now: datetime) -> dict[str, str]:
    """Return, by table, why bronze prevents further builds. Raises StoreUnavailable."""
    chosen = replace(feed, tables={name: feed.tables[name] for name in tables})
    found = read_status(places, connector, chosen, now=now).tables
    return {each.table: each.fault.reason for each in found if each.fault and each.state is TableState.STOPPED}


def _verifications(
    places: Places, connector: Connector, feed: Feed, name: str, patience: float | None
) -> Iterator[tuple[str, Callable[[], TableVerification]]]:
    """Yield the verifications of a table, each with the name to report it under."""
    if patience is not None:
        yield name, lambda: verify_against_source(places, connector, feed, name, patience=patience)
        return
    yield name, lambda: verify_table(places, connector, feed, name)
    if feed.tables[name].keeps_history:
        yield history_of(name), lambda: verify_history(places, connector, feed, name)
