"""Turns fetched frames into frames for bronze, as received, with marks of what is unusual; tracks gaps between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from silverfold.conf.errors import RemoteProtocolError, WireError
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.hstreamdb.protocol.records import RecordId, may_miss

MAX_REPEATS: Final = 3
"""How often a frame that cannot be acknowledged comes before it ends the epoch."""
_MOST_REMEMBERED: Final = 1_000
"""Bad frames remembered, by their hash."""
_MOST_GAPS: Final = 1_000
"""Most gaps of a shard that are remembered: a source in order has none."""


class LandedBatches(NamedTuple):
    """What has landed of a shard.

    Args:
        newest: The highest batch.
        missing: Ranges below it that have not landed, as the batches before and after them.
    """

    newest: int
    missing: tuple[tuple[int, int], ...] = ()


@dataclass
class ShardProgress:
    """What this epoch received of a shard, all of which lands."""

    newest: int = 0
    """The highest batch received, in this epoch or before it, or that need not come; 0 for none."""
    has_begun: bool = False
    """Whether it is known which batch was the last before the feed."""
    is_guess: bool = False
    """Whether that batch was only the last there was, until a frame comes that had not landed."""
    landed_before: int = 0
    """The highest batch that had landed before this epoch; 0 for none."""
    oldest: int = 0
    """The lowest batch received in this epoch; 0 for none."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of batches below the newest that have not come, as the batches before and after them."""
    elsewhere: list[tuple[int, int]] = field(default_factory=list)
    """Such ranges that are not to come: others acknowledged them, or the subscription began behind them."""
    published_ms: int = 0
    """Time of the newest batch's append, in milliseconds since 1970."""
    batches: int = 0
    """Batches newer than all before them."""
    records: int = 0
    """Records in `batches`."""
    again: int = 0
    """Records of all other batches, which came again or late."""

    def take(self, batch_id: int, records: int, published_ms: int, *, is_whole: bool = True) -> bool:
        """Count a frame. Return whether it shows that batches before it have not landed, or behind it.

        Args:
            is_whole: Whether it has the batch from its first record on.
        """
        if self.is_guess and batch_id > self.landed_before:
            self.newest, self.is_guess = min(self.newest, batch_id - 1), False
        self.oldest = min(self.oldest or batch_id, batch_id)
        is_before_a_gap = self._begin_sooner(batch_id)
        if is_whole:
            self.elsewhere = _without(batch_id, self.elsewhere)
        self.gaps = _without(batch_id, self.gaps)  # one that is missing again may be above all that landed
        if batch_id <= self.newest:
            self.again += records
            return is_before_a_gap
        is_behind_a_gap = self._note(self.newest, batch_id)  # from 0 on, until it is known where the shard begins
        self.newest, self.published_ms = batch_id, published_ms
        self.batches += 1
        self.records += records
        return is_behind_a_gap

    def is_missing(self, batch_id: int) -> bool:
        """Return whether a batch has not come."""
        if batch_id > self.newest or (self.is_guess and batch_id > self.landed_before):
            return True
        ranges = [*self.gaps, *(each for each in self.elsewhere if each[0] == 0)]
        return any(after < batch_id < before for after, before in ranges)

    @property
    def landed(self) -> LandedBatches:
        """What has landed of it, or need not land."""
        return LandedBatches(self.landed_before if self.is_guess else self.newest, tuple(self.gaps))

    @property
    def whole_until(self) -> int:
        """The batch up to which nothing is missing."""
        return min((after for after, _ in self.gaps), default=self.landed_before if self.is_guess else self.newest)

    @property
    def first(self) -> int:
        """The first batch that came, in this epoch or before it, as long as it is not known where the shard begins."""
        return min(
            (each for each in (self.oldest, *(end for start, end in self.gaps if start == 0)) if each), default=0
        )

    def begin_at_end(self, tail: int, checkpoint: int) -> int:
        """Expect all batches behind the one where a subscription began, at the stream's end; return that.

        It began no later than its checkpoint, than before its first frame, and than the tail at the first look. The
        tail alone is a guess.

        Args:
            tail: The last batch there is.
            checkpoint: 0 for none.
        """
        guess = self.newest if self.is_guess else tail
        if self.is_guess and not checkpoint:
            return guess
        if self.is_guess:
            self.newest, self.is_guess = self.landed_before, False
        facts = [*([checkpoint] if checkpoint else []), *([self.first - 1] if self.first else [])]
        after = min([*facts, guess])  # it began no later than any of them
        self.is_guess = not facts and after > self.newest
        self.lose(after)
        return after

    def begin(self, after: int) -> None:
        """Expect every batch behind ``after``, and none up to it."""
        self.gaps = [(max(start, after), end) for start, end in self.gaps if may_miss(after, end)]
        self.newest, self.has_begun = max(self.newest, after), True

    def _begin_sooner(self, batch_id: int) -> bool:
        """Expect what is behind a batch that came, though the feed seemed to begin behind it. Return whether any is."""
        for at, (start, end) in enumerate(self.elsewhere):
            if start == 0 and batch_id < end:
                self.elsewhere[at] = (0, batch_id)
                return self._note(batch_id, end)
        return False

    def lose(self, until: int) -> None:
        """Expect no batch up to one any more, though those that are missing may be there."""
        lost = [(start, min(end, until + 1)) for start, end in [*self.gaps, (self.newest, until + 1)] if start < until]
        room = _MOST_GAPS - len(self.elsewhere)
        self.elsewhere += [each for each in lost if may_miss(*each)][:room]
        self.begin(until)

    def lose_part(self, batch_id: int) -> None:
        """Note that a part of a batch is not to come, though it may be there."""
        if len(self.elsewhere) < _MOST_GAPS:
            self.elsewhere.append((batch_id - 1, batch_id + 1))

    def miss_part(self, batch_id: int) -> None:
        """Note that a part of a batch is missing, and may still come."""
        if len(self.gaps) < _MOST_GAPS:
            self.gaps = joined([*self.gaps, (batch_id - 1, batch_id + 1)])

    def skip(self, after: int, first: int) -> bool:
        """Expect no batch between two any more. Return whether that was still the gap: none has come meanwhile."""
        if after == self.newest:
            self.newest = max(self.newest, first - 1)
            return True
        for at, (start, end) in enumerate(self.gaps):
            if start == after:
                self.gaps[at : at + 1] = [(first - 1, end)] if may_miss(first - 1, end) else []
                return True
        return False

    def _note(self, after: int, before: int) -> bool:
        is_new = may_miss(after, before) and len(self.gaps) < _MOST_GAPS
        if is_new:
            self.gaps.append((after, before))
        return is_new


def are_whole(ids: Sequence[RecordId]) -> bool:
    """Return whether a frame's ids are those of a batch from its first record on, and none in between is missing."""
    return ids[-1].batch_index == len(ids) - 1


def _without(batch_id: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of batches that have not come, when one has."""
    if not any(start < batch_id < end for start, end in ranges):
        return ranges
    parts = (
        part
        for start, end in ranges
        for part in ([(start, batch_id), (batch_id, end)] if start < batch_id < end else [(start, end)])
    )
    return [part for part in parts if may_miss(*part)]


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of batches that have not come, in order, each batch in one of them."""
    found: list[tuple[int, int]] = []
    for after, before in sorted(ranges):
        if found and after < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], before)
        else:
            found.append((after, before))
    return found


def landed_batches(positions: Iterable[str]) -> dict[int, LandedBatches]:
    """Return what has landed of each shard, as far as source positions show it.

    A batch of which only later records have landed is missing.

    Args:
        positions: Of frames, in the order of landing; or the text of `resume_text`, before that of later frames.
    """
    shards = defaultdict[int, ShardProgress](lambda: ShardProgress(has_begun=True))
    for each in ",".join(positions).split(","):
        if each:
            place, *missing = each.split("+")
            shard_id, batch_id, *index = map(int, place.split("-"))
            if index:
                shard = shards[shard_id]
                is_part = index[0] > 0 and shard.is_missing(batch_id)
                shard.take(batch_id, 0, 0)
                if is_part:
                    shard.miss_part(batch_id)
            else:
                gaps = [(int(after), int(before)) for after, before in (gap.split("-") for gap in missing)]
                shards[shard_id] = ShardProgress(batch_id, has_begun=True, gaps=gaps)
    return {shard_id: found.landed for shard_id, found in shards.items()}


def resume_text(landed: Mapping[int, LandedBatches]) -> str:
    """Return what has landed as text: ``shard-newest``, ``+after-before`` for each range that is missing, commas."""
    return ",".join(
        "+".join([f"{shard_id}-{found.newest}", *(f"{after}-{before}" for after, before in found.missing)])
        for shard_id, found in landed.items()
    )


class Epoch:
    """The frames of one epoch, in the order in which its fetches received them.

    Args:
        stream: The stream that the subscription reads.
        shards: What has landed of each shard before, or need not land; and what is missing of it, and may still come.
    """

    def __init__(self, stream: str, shards: Mapping[int, ShardProgress] = MappingProxyType({})) -> None:
        self._stream = stream
        self._consumers: dict[int, str] = {}
        self._bad = Counter[int]()
        self.gaps_found = 0
        """Number of frames that have shown that batches before them have not landed."""
        self.shards = defaultdict[int, ShardProgress](ShardProgress, shards)
        """Progress by shard."""

    @property
    def landed(self) -> Mapping[int, LandedBatches]:
        """What has landed of each shard, in this epoch or before it, or need not land."""
        return {each: found.landed for each, found in self.shards.items() if found.landed.newest}

    def frames(
        self,
        body: bytes,
        ids: Sequence[RecordId],
        error: WireError | None = None,
        *,
        consumer: str = "",
        published_ms: int = 0,
    ) -> list[Frame]:
        """Return what lands of a frame.

        Args:
            ids: Ids of its records.
            error: Why the ids cannot be read.
            consumer: Name of the fetch that received it.
            published_ms: Time of its batch's append.

        Raises:
            RemoteProtocolError: It cannot be read, and came for the third time.
        """
        if error is not None:
            return [self._bad_frame(body, error)]
        first = ids[0]
        shard = self.shards[first.shard_id]
        self.gaps_found += shard.take(first.batch_id, len(ids), published_ms, is_whole=are_whole(ids))
        frame = Frame(body, Kind.DATA, Boundary.WHOLE, self._stream, str(first))
        before = self._consumers.setdefault(first.shard_id, consumer)
        if before == consumer:
            return [frame]
        self._consumers[first.shard_id] = consumer
        return [mark("reassigned", shard=str(first.shard_id), before=before, now=consumer), frame]

    def _bad_frame(self, body: bytes, error: WireError) -> Frame:
        if len(self._bad) < _MOST_REMEMBERED:
            self._bad[hash(body)] += 1
        if self._bad[hash(body)] >= MAX_REPEATS:
            raise RemoteProtocolError(f"a frame that cannot be acknowledged keeps coming: {error}", stream=self._stream)
        return bad_input("bad_frame", body, error, stream=self._stream, level="warning")
