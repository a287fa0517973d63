"""Names in tables of rows kept aside (`transforms.aside`), for readers without Spark."""

from __future__ import annotations

from typing import Final

REASONS: Final = "_reasons"
SINCE: Final = "_since"
OVER: Final = "_over"

UNEXPLAINED: Final = "unexplained"
"""Reason of an update that waits for its row."""
