"""What decoders have in common that fold nothing, and whose rows are changed one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from conf.model import Table
from connectors.arrow_rows import ArrowRows
from connectors.base import Cut, Survey
from connectors.survey import survey_changes


class UnfoldedDecoder(ABC):
    """Most of a `connectors.base.Decoder`. Each frame that carries changes is an update, or of a snapshot."""

    @abstractmethod
    def changes(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """See `connectors.base.Decoder.changes`."""

    def survey(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> Survey:
        """Decode every frame once. Runs one Spark job; collects one line."""
        return survey_changes(self.changes(frames, context, cut, table).dataframe())

    def tells_notes(self, context: Any, cut: Cut, table: Table) -> bool:
        """There is nothing to be told of a cut."""
        return False

    def versions(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Return the same as `changes`: updates are apart already."""
        return self.changes(frames, context, cut, table)

    def removed_ranges(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Rows are removed one by one: there is nothing to return, and no survey that says so."""
        raise AssertionError("no range of rows is removed")

    def settled(self, context: Any, cut: Cut, table: Table) -> str | None:
        """Frames land in the order of the source: no delete is waited for."""
        return None
