"""Append frames to one feed's bronze table, and detect when another process has taken the feed over.

Each commit records its last position in the table's own log. A writer knows the position it wrote last; if the table
records another one, it has another owner, and this writer stops (`Fenced`). If two writers race for one commit, the
store decides: the loser's commit conflicts on the recorded position.

Everything here blocks; `pipelines.landing.sink` calls it from threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)

from silverfold.conf.errors import Fenced, StoreUnavailable
from silverfold.connectors.base import Connector
from silverfold.connectors.frames import Resume
from silverfold.pipelines.landing.bronze_table import SCHEMA, app_id, create, last_epoch, last_landed, note_lost
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.compaction import NO_HOOKS, join_files
from silverfold.pipelines.storage.silver_position import NO_POSITION, SilverPosition
from silverfold.pipelines.store import (
    emptied_commits,
    naming_the_store,
    newest_commits,
    open_table,
    own_commit,
    was_overtaken,
)

# Bodies hardly ever repeat, and nobody searches by them: no dictionary, no statistics.
_PLAIN_BODY = {"body": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")}
_LANDING = WriterProperties(compression="SNAPPY", column_properties=_PLAIN_BODY)
_KEEPING = WriterProperties(compression="ZSTD", compression_level=1, column_properties=_PLAIN_BODY)
_COMPACTED_BYTES = 64 << 20

_COMMITS_TO_SEARCH = 100


class BronzeWriter:
    """The one writer of a feed's bronze table. Not safe for use by two threads at once.

    Args:
        table: The bronze table, open.
        token: Unique to this writer; identifies its commits.
        last: Last position landed; -1 if there is none.
        epoch: Epoch of the last frame; 0 if there is none.
    """

    def __init__(self, place: Place, feed: str, table: DeltaTable, *, token: str, last: int, epoch: int) -> None:
        self._place, self._feed, self._table, self._token = place, feed, table, token
        self._in_doubt = self._stale = False
        self.last = last
        """Last position written; -1 if there is none."""
        self.epoch = epoch
        """Epoch of the last frame found at the start, or of silver; 0 without either."""
        self.emptied = 0
        """Number of newest commits found empty at the start."""
        self.lost: tuple[int, int] | None = None
        """First and last position lost from bronze, judging by silver and its log; None if none is."""

    @classmethod
    def open(cls, place: Place, feed: str, *, token: str, silver: SilverPosition = NO_POSITION) -> Self:
        """Open or create a feed's bronze table for writing.

        Args:
            token: Unique to this writer; identifies its commits.
            silver: The farthest position of the feed's tables. If bronze ends before that, or before what its own log
                records, it has lost frames: the writer begins after them, and records the loss.

        Raises:
            ConfigError: The place holds a table that is not a bronze table.
            Fenced: Another writer landed frames while this one recorded the loss.
            StoreUnavailable: The store does not answer.
        """
        table = create(place)
        with naming_the_store(place):
            last = last_landed(table, feed)
        writer = cls(place, feed, table, token=token, last=last, epoch=max(last_epoch(table), silver.epoch))
        emptied = emptied_commits(place)
        writer.emptied = next(count for count in itertools.count() if table.version() - count not in emptied)
        writer._note_losses(silver.position)
        return writer

    def _note_losses(self, silver: int) -> None:
        """Record the positions after `last` that silver or bronze's log has reached, and begin after them."""
        recorded = self._recorded()
        end = max(silver, recorded)
        if end <= self.last:
            return
        self.lost = self.last + 1, end
        with naming_the_store(self._place):
            note_lost(self._table, *self.lost)
        if self._recorded() != recorded:  # another writer has landed frames since the log was read
            raise Fenced(owner=app_id(self._feed), expected=recorded, found=self._recorded())
        self._write(SCHEMA.empty_table(), end)
        self.last = end

    def resume(self, connector: Connector, silver: Mapping[str, str] = MappingProxyType({})) -> Resume:
        """Return the state landed before. Reads small columns of all files, and the bodies of control frames.

        Args:
            connector: Tells what of the source positions it resumes by.
            silver: Source positions of silver's tables (`pipelines.storage.silver_position.source_positions`).
        """
        from silverfold.pipelines.landing.bronze import last_controls, last_source_positions  # noqa: PLC0415 - pandas; few receivers need it

        controls = last_controls(self._place)
        of_streams = {stream: body for stream, body in controls.items() if stream is not None}
        landed = last_source_positions(self._table, connector.resume_position)
        return Resume(self.epoch, landed, controls.get(None), of_streams, silver)

    def refresh(self) -> None:
        """Reread the log before the next commit: after a compaction, older log files will be dropped."""
        self._stale = True

    def append(self, frames: pa.Table) -> None:
        """Commit frames whose positions follow `last`. On return they are safe, and `last` has moved.

        Safe to call again *with the same frames* after StoreUnavailable: a commit with an unknown outcome is looked up
        first, so nothing lands twice.

        Raises:
            Fenced: The table's position is not the one this writer wrote last. Nothing was written.
            StoreUnavailable: Try again.
        """
        try:
            self._append(frames, self.last + frames.num_rows)
        except StoreUnavailable:
            self.refresh()
            raise

    def _append(self, frames: pa.Table, last: int) -> None:
        if not self._is_committed(last):
            self._in_doubt = True
            try:
                self._write(frames, last)
            except StoreUnavailable as error:
                if not self._is_committed(last):
                    self._write_again(frames, last, error)
        self._in_doubt = False
        self.last = last

    def _write_again(self, frames: pa.Table, last: int, error: StoreUnavailable) -> None:
        """Retry on the table's newest version if a compaction took the commit's version; else raise the error."""
        if not was_overtaken(error):
            raise error
        self._write(frames, last)

    def _write(self, frames: pa.Table, last: int) -> None:
        with naming_the_store(self._place):
            write_deltalake(
                self._table,
                frames,
                mode="append",
                writer_properties=_LANDING,
                commit_properties=CommitProperties(
                    custom_metadata={"receiver": self._token, "last_position": str(last)},
                    app_transactions=[Transaction(app_id(self._feed), last)],
                ),
                post_commithook_properties=NO_HOOKS,
            )

    def _is_committed(self, last: int) -> bool:
        """Return whether our commit that ends at ``last`` is in the table. Rereads the log when in doubt."""
        if self._in_doubt or self._stale:
            self._table, self._stale = self._reload(), False
        found = self._recorded()
        if found == self.last:
            return False
        if found == last and self._in_doubt and self._has_own_commit(last):
            return True
        raise Fenced(owner=app_id(self._feed), expected=self.last, found=found)

    def _recorded(self) -> int:
        with naming_the_store(self._place):
            position = self._table.transaction_version(app_id(self._feed))
        return -1 if position is None else position

    def _reload(self) -> DeltaTable:
        table = open_table(self._place)
        if table is None:
            gone = "the bronze table is gone; to begin it anew behind what silver has, start this receiver again"
            raise StoreUnavailable(f"{self._place}: {gone}")
        return table

    def _has_own_commit(self, last: int) -> bool:
        commits = newest_commits(self._place, self._table, _COMMITS_TO_SEARCH)
        return own_commit(commits, receiver=self._token, last_position=str(last)) is not None


def compact(place: Place) -> int:
    """Join the small files of bronze (`pipelines.storage.compaction`); return the number of files joined.

    Raises:
        StoreUnavailable: It did not work this time. The table is unchanged.
    """
    return join_files(place, target_size=_COMPACTED_BYTES, writer_properties=_KEEPING)
