"""Folds changes in pieces as Spark does, but without Spark, and returns net rows in a form that tests can spell out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.connectors.deephaven.decoder.assembly import assemble
from silverfold.connectors.deephaven.decoder.blocks import (
    ADDED,
    MODIFIED,
    REMOVAL_COLUMN,
    REMOVED,
    WIDE_COLUMN,
    BlockCutter,
    Change,
    WideRange,
)

KINDS = (pa.int64(), pa.string())
"""Columns of the test table: column 0 holds longs, column 1 strings."""

Frame: TypeAlias = Change | WideRange


class Net(NamedTuple):
    """Net change of one row key."""

    op: str
    position: int
    cells: Mapping[int, Any]
    """By column; only the columns sent."""


def added(update: int, position: int, column: int, rows: Mapping[int, Any]) -> Change:
    """Return a message of added rows."""
    return of_column(update, ADDED, position, column, list(rows.items()))


def modified(update: int, position: int, column: int, rows: Mapping[int, Any]) -> Change:
    """Return a message of modified rows."""
    return of_column(update, MODIFIED, position, column, list(rows.items()))


def of_column(update: int, phase: int, position: int, column: int, rows: Sequence[tuple[int, Any]]) -> Change:
    """Return a message of one column; keys may come in any order, and repeatedly."""
    keys = np.array([key for key, _ in rows], np.int64)
    return Change(column, update, phase, position, keys, pa.array([value for _, value in rows], KINDS[column]))


def removed(update: int, position: int, *keys: int) -> Change:
    """Return a message of removed rows, key by key."""
    return Change(REMOVAL_COLUMN, update, REMOVED, position, np.array(keys, np.int64), None)


def fold(
    *batches: Sequence[Frame],
    parts: int = 3,
    by_update: bool = False,
    upsert: bool = False,
    shuffle: Callable[[list[Any]], None] | None = None,
) -> dict[tuple[int, int], Net]:
    """Cut each batch into pieces, collect the pieces of each block in any order, and assemble them.

    Returns:
        Net changes by update (0 when updates are folded) and row key.
    """
    pieces = [piece for batch in batches for piece in _pieces(batch, parts, by_update)]
    (shuffle or Random(0).shuffle)(pieces)
    wide: dict[int, list[WideRange]] = {}
    blocks: dict[tuple[int, int, int], list[tuple[int, bytes, bytes, bytes]]] = {}
    for piece in pieces:
        if piece["column"] == WIDE_COLUMN:
            wide.setdefault(piece["part"], []).append(_wide(piece))
        else:
            at = (piece["part"], piece["updates"], piece["block"])
            blocks.setdefault(at, []).append((piece["column"], piece["runs"], piece["offsets"], piece["values"]))
    net: dict[tuple[int, int], Net] = {}
    for (part, _, block), found in blocks.items():
        rows = assemble(block, found, KINDS, wide.get(part, []), upsert=upsert, by_update=by_update)
        updates = rows.update.tolist() if by_update else [0] * len(rows.keys)
        named = list(zip(updates, rows.keys.tolist(), strict=True))
        assert named == sorted(set(named))
        for at, (update, key) in enumerate(named):
            assert (update, key) not in net, "a block is assembled in one place"
            net[update, key] = _net(rows, at)
    return net


def folded(*frames: Frame, upsert: bool = False) -> dict[int, Net]:
    """Fold the frames of one batch; return the net change of each row key."""
    return {key: net for (_, key), net in fold(frames, upsert=upsert).items()}


def _pieces(batch: Sequence[Frame], parts: int, by_update: bool) -> list[dict[str, Any]]:
    cutter = BlockCutter(parts, by_update=by_update)
    for frame in batch:
        if isinstance(frame, WideRange):
            cutter.add_wide(frame)
        else:
            cutter.add(frame)
    pieces: list[dict[str, Any]] = cutter.pieces().to_pylist()
    return pieces


def _wide(piece: Mapping[str, Any]) -> WideRange:
    update, _, position, _ = np.frombuffer(piece["runs"], np.int64).tolist()
    first, last = np.frombuffer(piece["offsets"], np.int64).tolist()
    return WideRange(update, position, first, last)


def _net(rows: Any, at: int) -> Net:
    assert not (rows.inserted[at] and rows.deleted[at])
    op = "insert" if rows.inserted[at] else "delete" if rows.deleted[at] else "update"
    columns = enumerate(zip(rows.columns, rows.sent, strict=True))
    cells = {index: values[at].as_py() for index, (values, sent) in columns if sent[at]}
    unsent = [values[at].as_py() for values, sent in zip(rows.columns, rows.sent, strict=True) if not sent[at]]
    assert op == "delete" or unsent == [None] * len(unsent)
    return Net(op, int(rows.position[at]), {} if op == "delete" else cells)
