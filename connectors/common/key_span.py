"""Spans of keys: large tables are verified one span at a time, to bound memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

Key: TypeAlias = tuple[Any, ...]


class NotBySpans(Exception):
    """Rows cannot be processed by spans: their keys have no order, or a row moved from one span to another."""


def sortable(key: Iterable[Any]) -> Key:
    """Return a sortable form of a key: null before any value, NaN (one value here) after all."""
    return tuple(
        (0, 0) if value is None else (1, value) if value == value else (2, 0)  # noqa: PLR0124 - only NaN differs from itself
        for value in key
    )


@dataclass(frozen=True)
class KeySpan:
    """Keys from ``first`` up to but not including ``end``, in the order of `sortable`.

    Args:
        first: None for no lower bound.
        end: None for no upper bound.
    """

    first: Key | None = None
    end: Key | None = None

    def holds(self, key: Key) -> bool:
        """Return whether the key is in the span. Raises NotBySpans."""
        order = sortable(key)
        try:
            return (self._first is None or self._first <= order) and (self._end is None or order < self._end)
        except TypeError as error:
            raise NotBySpans from error

    @cached_property
    def _first(self) -> Key | None:
        return None if self.first is None else sortable(self.first)

    @cached_property
    def _end(self) -> Key | None:
        return None if self.end is None else sortable(self.end)


EVERY_KEY: Final = KeySpan()


def spans(sample: Iterable[Key], parts: int) -> list[KeySpan]:
    """Split all keys into at most ``parts`` ordered spans, each with a similar share of ``sample``. Raises NotBySpans.

    Keys containing a null or NaN are never bounds: readers may compare them differently.
    """
    try:
        ordered = sorted(key for key in sample if all(rank == 1 for rank, _ in sortable(key)))
    except TypeError as error:
        raise NotBySpans from error
    step = max(1, -(-len(ordered) // parts))
    bounds = ordered[step::step]
    return [KeySpan(first, end) for first, end in zip([None, *bounds], [*bounds, None], strict=True)]
