"""Reference model of change rows: applies them one by one to a table held in a dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = Any
Cells: TypeAlias = dict[str, Any]
State: TypeAlias = dict[Key, Cells]


class Change(NamedTuple):
    """One change of one frame; frames and their changes are in order."""

    frame: int
    op: str
    key: Key
    sent: Mapping[str, Any] = {}
    """The cells it carries; empty for a delete."""
    old_key: Key | None = None


def after(
    state: State,
    changes: Iterable[Change],
    *,
    columns: Sequence[str],
    upsert: bool = False,
    unexplained: Counter[str] | None = None,
) -> State:
    """Return the table after the changes; ``state`` is not modified. Counts inconsistent changes in ``unexplained``."""
    wrong: Counter[str] = Counter() if unexplained is None else unexplained
    now = {key: dict(cells) for key, cells in state.items()}
    blank = dict.fromkeys(columns)
    frame, displaced = -1, State()
    for change in changes:
        if change.frame != frame:
            frame, displaced = change.frame, {}
        here = displaced if change.key in displaced else now
        if change.op in ("insert", "snapshot"):
            wrong["inserts_over_row"] += change.op == "insert" and change.key in now
            now[change.key] = {**blank, **change.sent}
        elif change.op == "delete":
            wrong["deletes_of_nothing"] += here.pop(change.key, None) is None
        elif change.old_key is None:
            wrong["updates_without_row"] += change.key not in now and not upsert
            if change.key in now or upsert:
                now[change.key] = {**now.get(change.key, blank), **change.sent}
        else:
            leaving = displaced if change.old_key in displaced else now
            row = leaving.pop(change.old_key, dict(blank) if upsert else None)
            wrong["updates_without_row"] += row is None
            if row is not None:
                if change.key in now:
                    displaced[change.key] = now[change.key]
                now[change.key] = {**row, **change.sent}
    return now


def patched(state: State, net: Iterable[Mapping[str, Any]], *, columns: Sequence[str], upsert: bool = False) -> State:
    """Return the table after net change rows, as MERGE applies them. ``net``: at most one per key."""
    now = {key: dict(cells) for key, cells in state.items()}
    blank = dict.fromkeys(columns)
    for change in net:
        key = change["key"]
        if change["op"] == "delete":
            now.pop(key, None)
        elif change["op"] != "update":
            now[key] = dict(change["row"])
        elif key in now or upsert:
            names = columns if change["present"] is None else change["present"]
            now[key] = {**now.get(key, blank), **{name: change["row"][name] for name in names}}
    return now
