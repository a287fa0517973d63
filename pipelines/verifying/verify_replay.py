"""Verify silver against a source that keeps its records: all that it still holds is read again.

The moment of the comparison is silver's position. Expected are the rows of the source's records that had landed by
then, folded in the source's order. Records that land later make no difference; they are counted. Three things do:

- a record that was acknowledged, so in bronze, before silver's position, yet has not landed: it was lost;
- a landed record that the source does not have, though it has older ones;
- a row that differs.

Where the source has dropped records that silver is made of, nothing can be compared. Where bronze has, the comparison
begins with the table's base (`pipelines.upkeep.bases`), whose rows are taken as they are: it has what bronze
lacks, apart from what is to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from silverfold.conf.errors import PositionGap
from silverfold.conf.text import counted, joined
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.key_span import EVERY_KEY
from silverfold.connectors.verification import ReferenceChange, SourceRecord, SourceReplay
from silverfold.pipelines.places import Places
from silverfold.pipelines.upkeep.beginnings import begins_at
from silverfold.pipelines.verifying.base_rows import BaseRows
from silverfold.pipelines.verifying.compared_rows import NOTHING_LEFT_OUT, LeftOut, Silver, degraded_rows
from silverfold.pipelines.verifying.landed_updates import LandedUpdate, in_order_of_effect
from silverfold.pipelines.verifying.reference_fold import Expected, LandedTable, fold_bronze, in_sequence
from silverfold.pipelines.verifying.table_fold import TableFold
from silverfold.pipelines.verifying.verify import (
    TableVerification,
    Verdict,
    compare_table,
    explain_gap,
    landed_table,
    unknown,
)


def verify_by_replay(
    places: Places, connector: Connector, feed: Feed, table: str, silver: Silver, *, replay: SourceReplay
) -> TableVerification:
    """Compare a table with the rows of those records of the source that had landed at its position.

    Holds the identities of all landed records and the rows in memory.

    Raises:
        SourceUnavailable, SourceRefused, ProtocolError: The source cannot be read.
        WireError: A record that landed cannot be read.
        StoreUnavailable: Bronze cannot be read now.
    """
    landed = landed_table(places, connector, feed, table, silver.position)
    base = landed.base
    if base is None and (since := begins_at(places, connector, feed, table)):
        return unknown(table, f"bronze has dropped what landed before position {since}", silver)
    try:
        order = fold_bronze(landed).order
    except PositionGap as error:
        return unknown(table, explain_gap(error, landed), silver)
    for frame in sorted(landed.controls):
        replay.control(frame)
    replayed = _replayed(replay, *_landed_records(landed, order, replay), base)
    if replayed.expired:
        return unknown(table, _some(replayed.expired, "that landed, which the source no longer holds"), silver)
    left_out = degraded_rows(places, connector, feed, table, silver.rows.version)
    expected = Expected(
        replay.keys,
        tuple(dict.fromkeys((*replay.columns, *(base.names if base else ())))),
        replayed.fold.all_rows(),
        None,
        base=base.position if base else None,
        left_out=replayed.left_out,
    )
    found = compare_table(
        table,
        lambda _: expected,
        silver,
        placed=False,
        reason=joined(replayed.reasons()),
        left_out=left_out,
    )
    return found.model_copy(update={"verdict": Verdict.DIFFERENT}) if replayed.lost or replayed.foreign else found


@dataclass
class _Replayed:
    """What the source holds, beside what landed."""

    fold: TableFold
    """The rows of records that landed."""
    base: BaseRows | None
    """What the table begins with; bronze no longer has the records that it is made of."""
    lost: list[SourceRecord] = field(default_factory=list)
    """Acknowledged, and neither in bronze nor in a base."""
    to_come: int = 0
    """Number of records that have not landed yet; with a base, or that are in it."""
    expired: list[SourceRecord] = field(default_factory=list)
    """Landed, and dropped by the source since."""
    foreign: list[SourceRecord] = field(default_factory=list)
    """Landed, though the source does not have them."""
    left_out: LeftOut = NOTHING_LEFT_OUT
    """Rows that cannot be compared, since changes came late to the base."""

    def reasons(self) -> Iterable[str]:
        """Yield what is to be said beside the rows."""
        if self.lost:
            yield _some(self.lost, "that the source was told are in bronze, which are not")
        if self.foreign:
            yield _some(self.foreign, "that landed, which the source does not have")
        if self.base is not None:
            begun = f"begins with its base at position {self.base.position}"
            yield f"{begun}: {counted(self.to_come, 'record')} of the source are in it, or had not landed yet"
        elif self.to_come:
            yield f"{counted(self.to_come, 'record')} of the source had not landed yet, and are not compared"

    def count(self, record: SourceRecord, *, acknowledged: bool) -> None:
        """Take a record that is not in bronze."""
        if acknowledged and self.base is None:
            self.lost.append(record)
        else:
            self.to_come += 1


def _replayed(
    replay: SourceReplay, applied: set[SourceRecord], skipped: set[SourceRecord], base: BaseRows | None
) -> _Replayed:
    found = _Replayed(TableFold(replay.keys, upserts=True), base)
    before = in_sequence(base.changes_within(replay.keys, EVERY_KEY)) if base else []
    unseen, later = set(applied), list[ReferenceChange]()
    for record, changes in replay.records(applied):
        unseen.discard(record)
        if record in applied and base is None:
            found.fold.apply(changes)
        elif record in applied:
            later += changes
        elif record not in skipped:
            found.count(record, acknowledged=replay.was_acknowledged(record))
    if base is not None:
        found.fold.apply(in_sequence([*before, *later]))
        found.left_out = base.left_out(replay.keys, before, later)
    for record in sorted(unseen):
        (found.expired if replay.is_expired(record) else found.foreign).append(record)
    return found


def _landed_records(
    landed: LandedTable, order: Sequence[LandedUpdate], replay: SourceReplay
) -> tuple[set[SourceRecord], set[SourceRecord]]:
    """Return the records in landed frames: those to apply, and those of frames that are left out."""
    applied, skipped = set[SourceRecord](), set[SourceRecord]()
    for _, frames in in_order_of_effect(landed.bronze, landed.stream, order):
        for position, body in frames:
            if body:
                (skipped if position in landed.left_out else applied).update(replay.landed(position, body))
    return applied, skipped


def _some(records: Sequence[SourceRecord], what: str) -> str:
    return f"{counted(len(records), 'record')} {what}, the first {records[0]}"
