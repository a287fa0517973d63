"""Change records in the layouts that the decoder reads: one record for each operation on a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from silverfold.connectors.hstreamdb.protocol.records import Json

Row: TypeAlias = Mapping[str, Json]

_DEBEZIUM: Final = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}


class RecordLayout(StrEnum):
    """The form of change records."""

    UNWRAPPED = "unwrapped"
    """``{"key": {…}, "value": {…} or null}``, as HStreamDB's own connectors write."""
    ENVELOPE = "envelope"
    """``{"before", "after", "op", "source", "ts_ms"}``, as Debezium writes."""
    OPERATION = "operation"
    """``{"op": "INSERT", "key", "row"}``."""
    ROW = "row"
    """The row alone. It cannot say that a row was deleted."""


class RowChange(NamedTuple):
    """An operation on one row, whose key does not move.

    Args:
        before: None for a new row.
        after: None for a deleted row.
        is_snapshot: The row was there before the feed.
    """

    before: Row | None
    after: Row | None
    is_snapshot: bool = False

    def key(self, columns: Sequence[str]) -> dict[str, Json]:
        """Return the key of the row."""
        row = self.before if self.after is None else self.after
        return {name: (row or {})[name] for name in columns}


def change_record(change: RowChange, columns: Sequence[str], layout: RecordLayout, now_ms: int) -> dict[str, Json]:
    """Return the record of a change.

    Args:
        columns: Those of the key.
        now_ms: Time of the change, in milliseconds.
    """
    key, after = change.key(columns), change.after
    match layout:
        case RecordLayout.UNWRAPPED:
            return {"key": key, "value": after}
        case RecordLayout.ENVELOPE:
            op = "r" if change.is_snapshot else _DEBEZIUM[_operation(change)]
            return {"before": change.before, "after": after, "op": op, "source": {"ts_ms": now_ms}, "ts_ms": now_ms}
        case RecordLayout.OPERATION:
            op = _operation(change)
            return {"op": op, "key": key} if after is None else {"op": op, "key": key, "row": after}
        case RecordLayout.ROW:
            assert after is not None
            return dict(after)


def _operation(change: RowChange) -> str:
    if change.after is None:
        return "DELETE"
    return "INSERT" if change.before is None else "UPDATE"
