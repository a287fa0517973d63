"""One silver table of a feed: its location, its kind, its tables as a cut finds them, and the settings it has.

The table's own Delta log holds the position (``txnAppId = apply/<feed>/<table>``); there is no separate checkpoint.
Each commit records the settings that decide which rows the table has. Rows written under other settings mean something
else, so a cut continues from them only if it replaces all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from uuid import uuid4

from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from silverfold.conf.errors import ApplyError, RebuildNeeded, SilverfoldError, of_decoder
from silverfold.conf.files import FULL
from silverfold.conf.model import Table
from silverfold.conf.names import caseless
from silverfold.connectors.base import Connector, Cut, Decoder, Feed, TableKind
from silverfold.pipelines.applying.table_settings import follow_settings, properties_of
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.spark.session import close_session, own_session
from silverfold.pipelines.storage.commit_note import NOT_RECORDED, CommitNote
from silverfold.pipelines.storage.companions import (
    GONE,
    NONE,
    Companion,
    companion_versions,
    find_companion,
    history_position,
)
from silverfold.pipelines.storage.cuts import app_id, from_record, newest_note, position_reached, recorded_in
from silverfold.pipelines.storage.row_settings import RowSettings, describe_difference, differing, row_settings
from silverfold.pipelines.store import open_table
from silverfold.transforms.expectations import Rule, rules_digest, rules_of
from silverfold.transforms.merge import set_defaults
from silverfold.transforms.sql import path_table


@dataclass(frozen=True)
class SilverTable:
    """One silver table of a feed, and the session that only it writes with.

    Args:
        spark: Returns a session of the JVM that runs the jobs; called only once there is work.
        token: Unique to this builder; identifies its commits.
    """

    spark: Callable[[], SparkSession]
    feed: Feed
    connector: Connector
    decoder: Decoder
    name: str
    places: Places
    token: str = field(default_factory=lambda: uuid4().hex)
    _followed: set[str] = field(default_factory=set)
    """URLs of the tables that follow their settings (`follow_settings`)."""

    @cached_property
    def session(self) -> SparkSession:
        """The table's own session: commit settings belong to a session."""
        return session_for(self.spark(), self.conf)

    def close(self) -> None:
        """Close the table's session if it was opened."""
        if "session" in self.__dict__:
            close_session(self.session)

    @property
    def conf(self) -> Table:
        """The table's settings."""
        return self.feed.tables[self.name]

    @property
    def table_kind(self) -> TableKind:
        """The kind of table: state, changelog or append."""
        return self.connector.table_kind(self.conf)

    @property
    def place(self) -> Place:
        """Location of the table."""
        return self.places.silver(self.feed.name, self.name)

    @property
    def sql_name(self) -> str:
        """The table's name in SQL."""
        return path_table(self.place.url)

    @property
    def app_id(self) -> str:
        """Application id under which the table's commits carry its position."""
        return app_id(self.feed.name, self.name)

    @property
    def history(self) -> Place:
        """Location of the history."""
        return self.places.history(self.feed.name, self.name)

    @property
    def tombstones(self) -> Place:
        """Location of the tombstones."""
        return self.places.tombstones(self.feed.name, self.name)

    @property
    def side_table(self) -> Place:
        """Location of the side table."""
        return self.places.side_table(self.feed.name, self.name)

    @property
    def upsert(self) -> bool:
        """Whether an update without an existing row inserts one: the table never has a snapshot."""
        return not self.connector.has_snapshots(self.conf)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The table's rules."""
        return rules_of(self.conf)

    @property
    def rules_digest(self) -> str:
        """Digest that changes whenever the rules do."""
        return rules_digest(self.rules)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Call the decoder inside the block. Its own failures are the table's, like those in a worker of Spark.

        Errors of `conf.errors`, of Spark, and of a lack of memory or disk pass as they are.

        Raises:
            ApplyError: The decoder has a bug.
        """
        try:
            yield
        except (SilverfoldError, PySparkException, Py4JError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise ApplyError(": ".join(of_decoder(error)), table=self.name) from error

    def row_settings(self, source_keys: Sequence[str]) -> RowSettings:
        """Return the settings that decide which rows the table has. ``keys`` default to the source's own."""
        return row_settings(self.connector, self.feed, self.name, self.conf.keys or source_keys)

    def position(self) -> int:
        """Return the position the table has reached, read from its log; -1 for none."""
        return position_reached(self.places, self.feed.name, self.name)

    def opened(self) -> OpenedTables:
        """Open the silver table and its companion tables, as far as they exist. Raises StoreUnavailable."""
        table = open_table(self.place)
        note, recorded = newest_note(table), recorded_in(table, self.app_id)
        version = companion_versions(note, built=recorded >= 0)
        return OpenedTables(
            table=table,
            recorded=recorded,
            note=note,
            history=find_companion(self.history, version.history) if self.conf.keeps_history else NONE,
            tombstones=find_companion(self.tombstones, version.tombstones) if self.connector.source_ordered else NONE,
            side=find_companion(self.side_table, version.aside) if self.table_kind is TableKind.STATE else NONE,
        )

    def follow_settings(self, *, anew: bool = False) -> None:
        """Give the tables that exist what their settings say, each once (`pipelines.applying.table_settings`).

        Args:
            anew: Once more: a table was overwritten, which ends its clustering.
        """
        if anew:
            self._followed.clear()
        follow_settings(self.session, self.places, self.feed.name, self.name, self.conf, followed=self._followed)

    def read(self, place: Place, opened: DeltaTable) -> DataFrame:
        """Return the rows of a table at the version opened, so that later writes do not invalidate a cache. Lazy."""
        return self.session.read.format("delta").option("versionAsOf", opened.version()).load(place.url)


def session_for(running: SparkSession, table: Table) -> SparkSession:
    """Return a separate session for writing a table and creating its companion tables."""
    session = own_session(running)
    set_defaults(session, properties_of(table))
    return session


@dataclass(frozen=True)
class OpenedTables:
    """A silver table and its companion tables as a cut finds them, each opened once.

    Args:
        table: None if it does not exist.
        recorded: Value that the table's log records (`storage.cuts.to_record`); -1 for none.
        note: Commit note of the table's newest cut; None without one.
        side: The side table.
    """

    table: DeltaTable | None
    recorded: int
    note: CommitNote | None
    history: Companion
    tombstones: Companion
    side: Companion

    @property
    def position(self) -> int:
        """The position the table has reached; -1 for none."""
        return from_record(self.recorded)[0]

    @property
    def generation(self) -> int:
        """How often the table was rebuilt, or came under other rules or settings."""
        return from_record(self.recorded)[1]


def check_built(
    silver: SilverTable,
    cut: Cut,
    known: CommitNote,
    settings: RowSettings,
    opened: OpenedTables,
    *,
    columns: Sequence[str],
) -> None:
    """Raise RebuildNeeded if today's settings give the rows another meaning, or a companion table does not match.

    Args:
        columns: Those that the rows have now. A snapshot brings other keys only where the earlier ones are columns yet.
    """
    feed, table = silver.feed.name, silver.name
    then = settings if known.settings is None else known.settings
    other = differing(then, settings)
    has_keys = {*map(caseless, then.get("keys", ()))} <= {*map(caseless, columns)}
    anew = cut.replaces and not silver.conf.keeps_history and has_keys
    if other and not anew:
        reason = describe_difference(other[0], then, settings, what="the table")
        raise RebuildNeeded(reason, feed=feed, table=table, undo="put that back")
    if silver.conf.keeps_history:
        if known.history is None:
            raise RebuildNeeded("its newest cut was applied without a history", feed=feed, table=table)
        if opened.history.committed is None:
            raise RebuildNeeded(GONE["history"], feed=feed, table=table)
        reached = history_position(opened.history) if known.history == NOT_RECORDED else known.last_position
        if reached != known.last_position:
            reason = f"its history is at position {reached}, the table at {known.last_position}"
            raise RebuildNeeded(reason, feed=feed, table=table)
    if (
        known.tombstones not in (None, NOT_RECORDED)
        and silver.connector.source_ordered
        and opened.tombstones.committed is None
    ):
        raise RebuildNeeded(GONE["tombstones"], feed=feed, table=table)
    if known.aside is not None and opened.side.committed is None:
        raise RebuildNeeded(GONE["aside"], feed=feed, table=table)
