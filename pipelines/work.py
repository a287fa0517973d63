"""What one cut of one silver table has to work with: the table, those beside it, and what stands before the cut.

Beside a silver table up to three others are written: its history (`transforms.history`), its tombstones
(`transforms.tombstones`) and the rows kept aside (`transforms.aside`). The silver table's own commit comes last,
carries the position, and is what makes the others count.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from conf.model import Table
from connectors.base import Connector, Cut, Decoder, Feed, Survey
from pipelines.cuts import CommitNote, app_id, position_reached
from pipelines.places import Place, Places
from pipelines.store import count_rows, open_table
from transforms.aside import in_force
from transforms.aside_columns import REASONS, SINCE, UNEXPLAINED
from transforms.changes import complete, struct_type
from transforms.merge import PRESENT, Recorded
from transforms.sql import path_table


@dataclass(frozen=True)
class Target:
    """One silver table of a feed, and the session that writes it, which is nobody else's."""

    session: SparkSession
    feed: Feed
    connector: Connector
    decoder: Decoder
    name: str
    places: Places

    @property
    def table(self) -> Table:
        """The table's settings."""
        return self.feed.tables[self.name]

    @property
    def place(self) -> Place:
        """Where the table is."""
        return self.places.silver(self.feed.name, self.name)

    @property
    def sql_name(self) -> str:
        """How SQL names the table."""
        return path_table(self.place.url)

    @property
    def app_id(self) -> str:
        """Whose position the table's commits carry."""
        return app_id(self.feed.name, self.name)

    @property
    def history(self) -> Place:
        """Where the table's past rows are."""
        return self.places.history(self.feed.name, self.name)

    @property
    def tombstones(self) -> Place:
        """Where the table's remembered deletes are."""
        return self.places.tombstones(self.feed.name, self.name)

    @property
    def aside(self) -> Place:
        """Where the rows are that may not stand in the table."""
        return self.places.aside(self.feed.name, self.name)

    @property
    def upsert(self) -> bool:
        """An update of a row that does not exist begins one: the table never had a snapshot."""
        return not self.connector.has_snapshots(self.table)

    def position(self) -> int:
        """Return the position the table has reached, read from its log; -1 for none."""
        return position_reached(self.places, self.feed.name, self.name)

    def read(self, place: Place) -> DataFrame | None:
        """Return the rows of a table; None where there is none. Lazy."""
        return None if open_table(place) is None else self.session.read.format("delta").load(place.url)


@dataclass
class Work:
    """One cut on its way into one silver table.

    Args:
        frames: The cut's landed frames.
        context: The decoder's.
        changes: What the decoder makes of them: change rows, every column of the contract.
        kept: Holds in Spark's cache what is looked at more than once; to be closed afterwards.
        notes: Counts worth telling, by name: they go into the commit.
    """

    target: Target
    frames: DataFrame
    context: Any
    changes: DataFrame
    cut: Cut
    survey: Survey
    kept: ExitStack
    notes: dict[str, int]

    @cached_property
    def before(self) -> int:
        """Position the table has reached before the cut; -1 for none."""
        return self.target.position()

    @cached_property
    def current(self) -> DataFrame | None:
        """The silver table before the cut; None when there is none. Lazy."""
        return self.target.read(self.target.place)

    @cached_property
    def aside(self) -> DataFrame | None:
        """The rows kept aside before the cut; None when there are none for certain. Lazy."""
        opened = open_table(self.target.aside)
        if opened is None or count_rows(opened) == 0:
            return None
        return in_force(self.target.session.read.format("delta").load(self.target.aside.url), self.before)

    @cached_property
    def waiting(self) -> DataFrame | None:
        """Of the rows kept aside those that are partial updates without a row. Lazy."""
        return None if self.aside is None else self.aside.where(F.array_contains(REASONS, UNEXPLAINED))

    @cached_property
    def failing(self) -> DataFrame | None:
        """Of the rows kept aside those that are whole: they stand at the source, but fail the table's rules. Lazy."""
        if self.aside is None:
            return None
        return self.aside.where(~F.array_contains(REASONS, UNEXPLAINED)).drop(SINCE, PRESENT, REASONS)

    @cached_property
    def truth(self) -> DataFrame | None:
        """What stands at the source before the cut: silver, and the rows that fail its rules. Lazy."""
        if self.failing is None or self.current is None:
            return self.current if self.failing is None else self.failing
        kept_out = self.failing.select(*self.keys)
        standing = self.current.join(F.broadcast(kept_out), list(self.keys), "left_anti")
        return standing.unionByName(self.failing, allowMissingColumns=True)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name a row of the silver table."""
        return self.target.table.keys or tuple(struct_type(self.changes, "key").names)

    @property
    def identity(self) -> tuple[str, ...]:
        """The key columns that the source's rows do not carry themselves: a positional key."""
        row = struct_type(self.changes, "row").names
        return tuple(name for name in struct_type(self.changes, "key").names if name not in row)

    def recorded(self, app_id: str) -> Recorded:
        """Return what a commit of the cut carries, for the one whose position ``app_id`` names."""
        cut = self.cut
        note = CommitNote(
            feed=self.target.feed.name,
            table=self.target.name,
            epoch=cut.epoch,
            first_position=cut.spans[0][0],
            last_position=cut.last,
            replaced=cut.replaces,
            updates=len(cut.begins),
            notes=self.notes,
        )
        return Recorded(app_id, cut.last, note.to_json())


def decoded(changes: DataFrame) -> DataFrame:
    """Return the change rows, every column of the contract, or fail: one that tells of a bad frame is no change. Lazy.

    The failure is in ``op``, on which all depends, not in a filter, before which Spark may put others.
    """
    failed = F.raise_error(F.lit("a frame cannot be decoded")).cast("string")
    listed = complete(changes)
    return listed.withColumn("op", F.when(F.col("error").isNotNull(), failed).otherwise(F.col("op")))
