"""Names in tables of rows kept aside (`transforms.aside`), for readers without Spark."""

from __future__ import annotations

from typing import Final

from conf.model import UNEXPLAINED

REASONS: Final = "_reasons"
SINCE: Final = "_since"
OVER: Final = "_over"

__all__ = ["OVER", "REASONS", "SINCE", "UNEXPLAINED"]
