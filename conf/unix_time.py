"""Unix time: whole microseconds, or milliseconds, since 1970 UTC. Named as Spark's functions of SQL are."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def unix_micros(moment: datetime) -> int:
    """Return a time with a zone in microseconds since 1970; negative before that. Exact."""
    return (moment - _EPOCH) // _MICROSECOND


def unix_millis(moment: datetime) -> int:
    """Return a time with a zone in milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def timestamp_micros(micros: int) -> datetime:
    """Return the time in UTC so many microseconds after 1970. Raises OverflowError beyond the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    """Return the microseconds since 1970 now."""
    return time.time_ns() // 1000
