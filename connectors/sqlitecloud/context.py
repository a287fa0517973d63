"""What a feed's control frames say of its tables: which description holds for which frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conf.errors import SchemaDrift, WireError
from connectors.base import ControlFrame, Cut
from connectors.sqlitecloud.control import Description, read_description


@dataclass(frozen=True)
class Context:
    """Descriptions by stream and epoch, each with its position, in order. Small and picklable."""

    told: Mapping[tuple[str, int], tuple[tuple[int, Description], ...]]

    def description(self, cut: Cut) -> Description:
        """Return the table as the snapshot describes it that the cut stands on: its own, or the last before it.

        Raises:
            SchemaDrift: The epoch has no control frame of the table that can be read.
        """
        before = cut.last if cut.snapshot_end is None else cut.snapshot_end
        found = [told for at, told in self.told.get((cut.stream, cut.epoch), ()) if at < before]
        if not found:
            raise SchemaDrift(f"epoch {cut.epoch} does not tell its columns", table=cut.stream)
        return found[-1]


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Return what control frames say. One that cannot be read says nothing."""
    told: dict[tuple[str, int], tuple[tuple[int, Description], ...]] = {}
    for frame in control:
        if frame.stream is None:
            continue
        try:
            described = read_description(frame.body)
        except WireError:
            continue
        at = (frame.stream, frame.epoch)
        told[at] = (*told.get(at, ()), (frame.frame_seq, described))
    return Context(told)
