"""Errors with tables, Spark and queries."""

from __future__ import annotations

from typing import ClassVar

from silverfold.conf.errors.base import SilverfoldError


class StoreUnavailable(SilverfoldError):
    """A table's storage cannot be read or written at the moment."""

    error_class = "STORE_UNAVAILABLE"
    retryable = True


class SparkUnavailable(SilverfoldError):
    """Spark cannot start on this machine, or ended prematurely. The message says what to do."""

    error_class = "SPARK_UNAVAILABLE"


class Fenced(SilverfoldError):
    """Another process took over, or bronze lost what this process wrote. This process must stop; it may restart."""

    error_class = "FENCED"

    def __init__(self, *, owner: str, expected: int, found: int) -> None:
        self.owner, self.expected, self.found = owner, expected, found
        why = "lost what was written, start again" if found < expected else "is another's now, stop one of the two"
        super().__init__(f"{owner} {why}: expected position {expected}, found {found}")


class PositionGap(SilverfoldError):
    """Bronze lacks required positions. ``first`` and ``last`` are inclusive; ``advice`` says what to do."""

    error_class = "POSITION_GAP"
    found: ClassVar[str] = "lacks positions {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int, advice: str = "") -> None:
        self.feed, self.first, self.last, self.advice = feed, first, last, advice
        found = self.found.format(first=first, last=last)
        super().__init__(f"bronze of feed {feed} {found}{advice and ': '}{advice}")


class DoubledPositions(PositionGap):
    """Bronze has duplicate frames, whose updates would be applied twice. ``first`` and ``last`` are the outermost."""

    error_class = "DOUBLED_POSITIONS"
    found = "has frames twice from position {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int) -> None:
        advice = f"`silverfold maintain {feed}` removes the second of each"
        super().__init__(feed=feed, first=first, last=last, advice=advice)


class ReplacedBronze(PositionGap):
    """Bronze has other frames in place of those a table was built from, or is another bronze table altogether."""

    error_class = "REPLACED_BRONZE"
    found = "is another one at position {first} than the table was built from"


class QueryFailed(SilverfoldError):
    """A user's query is invalid, or failed while running.

    Args:
        condition: Spark's error condition, such as ``TABLE_OR_VIEW_NOT_FOUND``.
    """

    error_class = "QUERY_FAILED"

    def __init__(self, detail: str, *, condition: str) -> None:
        self.detail, self.condition = detail, condition
        super().__init__(detail)
