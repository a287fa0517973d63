"""Take frames from a receiver and commit them to bronze, by time or by bytes, while reading continues.

`BronzeSink.land` only appends to lists. One task at a time turns pending frames into one commit, in a thread. A commit
that fails is retried with the same frames. Meanwhile `land` blocks its caller once too many bytes are uncommitted, and
the socket behind the caller slows its sender down. Nothing taken is ever dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Final

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import SilverfoldError, StoreUnavailable
from silverfold.conf.model import Commit
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.frames import Frame
from silverfold.pipelines.landing.batch import Batch, PreparedCommit
from silverfold.pipelines.landing.totals import LandingTotals
from silverfold.pipelines.landing.writer import BronzeWriter, compact
from silverfold.pipelines.places import Place

UNCOMMITTED_COMMITS: Final = 4
"""Number of full commits buffered in memory before `BronzeSink.land` blocks its caller."""

_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0

_LOGGED_AT_ONCE = 20
"""Marks of one name per commit that are logged individually: a peer may cause any number of them."""


class BronzeSink:
    """Lands the frames of one feed. A `connectors.frames.FrameSink`.

    Use it as ``async with``: leaving commits everything taken. Any number of tasks may land.

    Args:
        writer: Owns the table; nobody else may use it.
        clock: Microseconds since 1970, UTC; stamps ``received_at`` once per call of `take` or `land`.
        rng: Spreads retries.
        patience: Seconds that leaving waits for a store that does not answer, before StoreUnavailable.
        totals: Counts what this sink takes and commits; None for ones of its own.
    """

    def __init__(
        self,
        writer: BronzeWriter,
        place: Place,
        settings: Commit,
        *,
        clock: Callable[[], int],
        rng: Random,
        log: FilteringBoundLogger,
        patience: float = 30.0,
        totals: LandingTotals | None = None,
    ) -> None:
        self._writer, self._place, self._settings = writer, place, settings
        self._clock, self._rng, self._log, self._patience = clock, rng, log, patience
        self.epoch = writer.epoch
        """Epoch of the next frames."""
        self.progressed = False
        """A complete update was taken since the epoch began."""
        self.source_positions: dict[str, str] = {}
        """Per stream, the last source position committed by this sink."""
        self.totals = totals or LandingTotals()
        self._batch = Batch(writer.last + 1)
        self._bound = UNCOMMITTED_COMMITS * settings.max_bytes
        self._failure: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._begun, self._due = asyncio.Event(), asyncio.Event()
        self._committer: asyncio.Task[None] | None = None
        self._compaction: asyncio.Task[None] | None = None

    @property
    def last(self) -> int:
        """Position of the last frame taken, committed or not; -1 if there is none."""
        return self._batch.first + len(self._batch) - 1

    async def __aenter__(self) -> BronzeSink:
        self._committer = asyncio.create_task(self._run(), name="commit to bronze")
        return self

    async def __aexit__(self, *_raised: object) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self.flush()
        except TimeoutError:
            held = self.last - self._writer.last
            why = "could not be landed; the next start receives them again, or a snapshot"
            raise StoreUnavailable(f"{self._place}: {held} received frames {why}") from None
        finally:
            assert self._committer is not None
            self._committer.cancel()
            await asyncio.gather(*filter(None, (self._committer, self._compaction)), return_exceptions=True)

    def begin_epoch(self) -> int:
        """Begin a new epoch and return its number. Frames taken from here on belong to it."""
        self.epoch += 1
        self.totals.epochs += 1
        self.progressed = False
        return self.epoch

    def take(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order, without blocking, however many bytes are uncommitted.

        For callers that cannot await `land`.

        Raises:
            Fenced: Another process took the feed over. The frames were not taken.
        """
        self.check()
        if not frames:
            return
        now = self._clock()
        added = self._batch.add(frames, self.epoch, now)
        self.totals.take(frames, added, now)
        self.progressed |= added.ended
        self._begun.set()
        if self._batch.size >= self._settings.max_bytes:
            self._due.set()

    async def land(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order, then `wait_for_room`. A cancelled caller loses none.

        Raises:
            Fenced: Another process took the feed over.
        """
        self.take(frames)
        await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Return at once, unless too many bytes are uncommitted: then once there is room again.

        Raises:
            Fenced: Another process took the feed over.
        """
        self.check()
        while self.totals.held_bytes > self._bound:
            await self._commit_ends()

    async def flush(self) -> int:
        """Commit everything taken so far and return the last frame_seq; waits for as long as the store needs.

        Raises:
            Fenced: Another process took the feed over.
        """
        wanted = self.last
        while self._writer.last < wanted:
            self.check()
            self._due.set()
            await self._commit_ends()
        return wanted

    def check(self) -> None:
        """Raise the error that ended the commits, if any: Fenced, or a bug."""
        if self._failure is not None:
            raise self._failure.with_traceback(self._traceback)

    async def failed(self) -> None:
        """Return once this sink can no longer commit; `check` then raises the reason."""
        assert self._committer is not None
        await asyncio.wait([self._committer])

    async def _commit_ends(self) -> None:
        """Wait until a commit has succeeded, or commits have ended."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        try:
            await future
        finally:
            self._waiters.discard(future)
        self.check()

    async def _run(self) -> None:
        try:
            while True:
                await self._begun.wait()
                await self._until_due()
                await self._commit(await asyncio.to_thread(self._take().prepare))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of delta-rs is no Exception; it is raised to callers of land
            self._failure, self._traceback = error, error.__traceback__
        finally:
            self._wake()

    def _wake(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)

    async def _until_due(self) -> None:
        try:
            async with asyncio.timeout(self._settings.interval_ms / 1000):
                await self._due.wait()
        except TimeoutError:
            return

    def _take(self) -> Batch:
        batch, self._batch = self._batch, Batch(self.last + 1)
        self._begun.clear()
        self._due.clear()
        return batch

    async def _commit(self, batch: PreparedCommit) -> None:
        seconds = await self._append(batch)
        self.totals.commit(batch.size, seconds)
        self.source_positions.update(batch.source_positions)
        self._wake()
        logged = Counter[str]()
        for mark in batch.marks:
            logged[mark.name] += 1
            if logged[mark.name] <= _LOGGED_AT_ONCE:
                (self._log.warning if mark.warns else self._log.info)(mark.name, **mark.details)
        for name, count in logged.items():
            if count > _LOGGED_AT_ONCE:
                self._log.warning("more of the same have landed", mark=name, count=count - _LOGGED_AT_ONCE)
        self._log.debug("committed", epoch=self.epoch, first=batch.first, last=self._writer.last, bytes=batch.size)
        if self.totals.commits % self._settings.compact_every == 0:
            self._start_compaction()

    async def _append(self, batch: PreparedCommit) -> float:
        """Commit frames, however often it takes; return the seconds of the attempt that succeeded."""
        backoff = Backoff(_FIRST_RETRY, _LONGEST_RETRY, self._rng)
        while True:
            began = time.monotonic()
            try:
                await asyncio.to_thread(self._writer.append, batch.table)
                return time.monotonic() - began
            except StoreUnavailable as error:
                self.totals.commit_failures += 1
                wait = backoff.next_wait()
                self._log.warning(
                    "commit failed", reason=str(error), first=batch.first, bytes=batch.size, next_in=round(wait, 3)
                )
            await asyncio.sleep(wait)

    def _start_compaction(self) -> None:
        if self._compaction is None or self._compaction.done():
            self._compaction = asyncio.create_task(self._compact(), name="compact bronze")

    async def _compact(self) -> None:
        try:
            joined = await asyncio.to_thread(compact, self._place)
        except SilverfoldError as error:
            self._log.warning("compaction failed", reason=str(error))
        else:
            self._log.debug("compacted", files=joined)
        self._writer.refresh()
