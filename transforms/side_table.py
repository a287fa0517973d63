"""Names in side tables of quarantined rows (`pipelines.verifying.kept_aside`), for readers without Spark."""

from __future__ import annotations

from typing import Final

from conf.model import UNEXPLAINED

REASONS: Final = "_reasons"

__all__ = ["REASONS", "UNEXPLAINED"]
