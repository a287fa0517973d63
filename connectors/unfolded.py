"""What decoders have in common that fold nothing, and whose rows are changed one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pyspark.sql import DataFrame

from conf.model import Table
from connectors.base import Cut, Survey
from connectors.survey import survey_changes


class UnfoldedDecoder(ABC):
    """Most of a `connectors.base.Decoder`. Each frame that carries changes is an update, or of a snapshot."""

    @abstractmethod
    def changes(self, frames: DataFrame, context: Any, cut: Cut, table: Table) -> DataFrame:
        """See `connectors.base.Decoder.changes`."""

    def survey(self, frames: DataFrame, context: Any, cut: Cut, table: Table) -> Survey:
        """Decode every frame once. Runs one Spark job; collects one line."""
        return survey_changes(self.changes(frames, context, cut, table))

    def tells_notes(self, context: Any, cut: Cut, table: Table) -> bool:
        """There is nothing to be told of a cut."""
        return False

    def versions(self, frames: DataFrame, context: Any, cut: Cut, table: Table) -> DataFrame:
        """Return the same as `changes`: updates are apart already. Lazy."""
        return self.changes(frames, context, cut, table)

    def removed_ranges(self, frames: DataFrame, context: Any, cut: Cut, table: Table) -> DataFrame:
        """Rows are removed one by one: there is nothing to return, and no survey that says so."""
        raise AssertionError("no range of rows is removed")

    def settled(self, context: Any, cut: Cut, table: Table) -> str | None:
        """Frames land in the order of the source: no delete is waited for."""
        return None
