"""Advice for tables that hold: one sentence for each error whose message does not say what to do."""

from __future__ import annotations

from typing import Final

_FRAME: Final = (
    "after a fix run `silverfold quarantine retry {feed} {table}`; a next snapshot, where there are any, passes it; "
    "`silverfold quarantine skip {feed} {table} {position}` goes on without the frame"
)
_MENDED: Final = (
    "it goes on once the source has mended the row, unless a frame before that cannot be decoded "
    "(`silverfold quarantine list {feed}`)"
)

_KEYS: Final = "with other `keys`, run `silverfold rebuild {feed} {table}`"

_ADVICE: Final = {
    "UNDECODABLE_FRAME": _FRAME,
    "DUPLICATE_KEY": f"{_MENDED}; {_KEYS}",
    "NULL_KEY": f"{_MENDED}; {_KEYS}",
    "EXPECTATION_FAILED": f"{_MENDED}; or with another rule",
    "UNUSABLE_EXPECTATION": "it goes on with another rule, or once a frame tells the column that it names",
    "UNUSABLE_KEY": "name other `keys` and run `silverfold rebuild {feed} {table}`",
    "UNEXPLAINED": 'on_unexplained = "count" lets such changes pass; so does the next snapshot, where there is one',
    "APPLY_ERROR": (
        "it is tried again; if a file of the table is gone or broken, `silverfold rebuild {feed} {table}` makes it anew"
    ),
    "UNKNOWN_TEMPLATE": (
        "with a schema that has it, run `silverfold quarantine retry {feed} {table}`; the next snapshot passes it, and "
        "where there are none, a feed of another name takes what comes from now on"
    ),
    "SNAPSHOT_NEEDED": "let `silverfold receive {feed}` connect anew",
}


def advice_for(error_class: str, *, feed: str, table: str, position: int) -> str:
    """Return advice with the commands to run; empty if the error itself says it, or nothing can be done.

    Args:
        position: Position of the bad frame.
    """
    return _ADVICE.get(error_class, "").format(feed=feed, table=table, position=position)
