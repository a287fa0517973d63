"""The table descriptions in a feed's control frames, and which frames each applies to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conf.errors import SchemaDrift, WireError
from connectors.base import ControlFrame, Cut
from connectors.sqlitecloud.protocol.control import Description, read_description


@dataclass(frozen=True)
class Context:
    """Descriptions by stream and epoch, each with its position, in order. Small and picklable."""

    descriptions: Mapping[tuple[str, int], tuple[tuple[int, Description], ...]]

    def description(self, cut: Cut) -> Description:
        """Return the description from the cut's snapshot, or from the last snapshot before the cut.

        Raises:
            SchemaDrift: The epoch has no readable control frame of the table.
        """
        before = cut.last if cut.snapshot_end is None else cut.snapshot_end
        found = [described for at, described in self.descriptions.get((cut.stream, cut.epoch), ()) if at < before]
        if not found:
            raise SchemaDrift(f"epoch {cut.epoch} does not tell its columns", table=cut.stream)
        return found[-1]


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Collect the descriptions in control frames. Unreadable frames are skipped."""
    descriptions: dict[tuple[str, int], tuple[tuple[int, Description], ...]] = {}
    for frame in control:
        if frame.stream is None:
            continue
        try:
            described = read_description(frame.body)
        except WireError:
            continue
        at = (frame.stream, frame.epoch)
        descriptions[at] = (*descriptions.get(at, ()), (frame.frame_seq, described))
    return Context(descriptions)
