"""Spans of keys: many rows are verified a span at a time, so that memory need not hold them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

Key: TypeAlias = tuple[Any, ...]


class NotBySpans(Exception):
    """Rows cannot be taken a span at a time: their keys have no order, or one moved from a span to another."""


def sortable(key: Iterable[Any]) -> Key:
    """Return a key in a form that sorts: null before any value, NaN, which is one value here, after all."""
    return tuple(
        (0, 0) if value is None else (1, value) if value == value else (2, 0)  # noqa: PLR0124 - only NaN differs from itself
        for value in key
    )


@dataclass(frozen=True)
class KeySpan:
    """The keys from ``first`` on, up to and not including ``end``, as `sortable` orders them.

    Args:
        first: None: from the very first on.
        end: None: to the very last.
    """

    first: Key | None = None
    end: Key | None = None

    def holds(self, key: Key) -> bool:
        """Tell whether a key is in the span. Raises NotBySpans."""
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
    """Cut all keys into at most so many spans, in order, each with about as many of a sample. Raises NotBySpans.

    A key with a null or NaN inside is no border: readers may compare with it in a way of their own.
    """
    try:
        ordered = sorted(key for key in sample if all(rank == 1 for rank, _ in sortable(key)))
    except TypeError as error:
        raise NotBySpans from error
    step = max(1, -(-len(ordered) // parts))
    bounds = ordered[step::step]
    return [KeySpan(first, end) for first, end in zip([None, *bounds], [*bounds, None], strict=True)]
