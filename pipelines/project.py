"""The Python API: a project is a folder of settings, and what the commands do with its feeds, as functions.

For notebooks and orchestrators. Nothing here prints, exits, handles signals or configures logs: results are returned as
frozen objects, those that the commands print with ``--json``; errors are `conf.errors`; logs go where
`pipelines.logs` says. Spark is loaded by the methods that need it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from silverfold.conf.errors import ConfigError
from silverfold.conf.load import load_settings
from silverfold.connectors.feeds import OpenFeed, chosen_tables, open_feeds
from silverfold.connectors.registry import open_feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from silverfold.conf.model import Settings
    from silverfold.pipelines.applying.run import BuildReport
    from silverfold.pipelines.quality.check import Check
    from silverfold.pipelines.reading.status import Status
    from silverfold.pipelines.upkeep.maintain import MaintenanceReport
    from silverfold.pipelines.upkeep.rebuild_table import RebuildReport
    from silverfold.pipelines.verifying.verify import Verification

_TABLES = ("arguments", "tables")


def open_project(
    conf: str | Path | None = None,
    *,
    env: str | None = None,
    environ: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Project:
    """Return the project in a folder. Reads its settings; connects to nothing, and starts nothing.

    Args:
        conf: Folder with ``settings.toml`` and ``feeds/``, as for ``--conf``; by default ``SILVERFOLD_CONF``, if set.
        env: Name of the packaged settings, as for ``--env``; by default ``SILVERFOLD_ENV``, else ``local``.
        environ: Environment variables, for settings and secrets; by default those of the process.
        spark: Session to use. By default the active one; if there is none, one is started when it is needed, as the
            settings say, and lives on with the process.

    Raises:
        ConfigError: A file is not TOML, or a key is invalid. ``others`` has the further errors, from all files.
    """
    environ = dict(os.environ) if environ is None else environ
    folder = conf or environ.get("SILVERFOLD_CONF")
    env = env or environ.get("SILVERFOLD_ENV") or "local"
    return Project(load_settings(None if folder is None else Path(folder), env, environ), spark)


class Project:
    """The feeds of a folder of settings. Made by `open_project`.

    Methods may be called from several threads. The caller's Spark session is never stopped and keeps its settings: work
    is done in sessions beside it (`pipelines.spark.session`). It must have Delta's JARs and SQL extension.

    All methods raise ConfigError if a feed, or a table, is not in the settings, or a setting of the feed is invalid;
    those with Spark raise SparkUnavailable if it does not start, lacks Delta, or ends.
    """

    def __init__(self, settings: Settings, spark: SparkSession | None = None) -> None:
        self._settings, self._spark = settings, spark

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self._settings

    @property
    def feeds(self) -> tuple[str, ...]:
        """Names of the feeds in the settings."""
        return tuple(self._settings.feeds)

    def build(self, *feeds: str) -> BuildReport:
        """Bring the silver tables of some feeds, or of all, up to what has landed.

        As ``silverfold build --once``: safe to repeat, and beside receivers and other builds. A table that holds does
        not raise: ``complete`` is False, and its ``fault`` says why.

        Raises:
            SilverfoldError: None of the feeds can be opened, such as StoreUnavailable.
        """
        return self._build(feeds, follow=False, stop=threading.Event())

    def follow(self, *feeds: str) -> Following:
        """Build some feeds, or all, as frames land, in a thread of its own until stopped.

        As ``silverfold build --follow``. Raises nothing but ConfigError; other errors are raised by `Following.stop`.
        From now on the project keeps to the session that is active now: meanwhile one of the build's may be.
        """
        from silverfold.pipelines.spark.running import active_session, leaving_active  # noqa: PLC0415 - load only what is called

        self._open(feeds)
        before = active_session()  # its own thread does not know it
        self._spark = self._running()

        def work(stop: threading.Event) -> BuildReport:
            with leaving_active(before):
                return self._build(feeds, follow=True, stop=stop)

        return Following(work)

    def verify(
        self, feed: str, *, tables: Sequence[str] = (), against_source: bool = False, patience: float = 30.0
    ) -> Verification:
        """Compare silver tables with what bronze, or the source, says they must hold. Without Spark.

        As ``silverfold verify``: a table that differs, or cannot be read, does not raise; ``equal`` is False.

        Args:
            tables: By default all of the feed's.
            patience: With ``against_source``: seconds in which silver must be found to be the source's table.

        Raises:
            SourceUnavailable: With ``against_source``, the source cannot be reached.
        """
        from silverfold.pipelines.verifying.verify_feed import verify_feed  # noqa: PLC0415 - as above

        connector, opened = open_feed(feed, self._settings)
        chosen = chosen_tables(opened, tables, argument=_TABLES)
        return verify_feed(self._settings, connector, opened, chosen, patience=patience if against_source else None)

    def status(self, *feeds: str) -> Status:
        """Return what has landed and what is applied of some feeds, or of all. Reads the store, without Spark.

        As ``silverfold status``: what cannot be read is left out, and ``unreadable`` says why.
        """
        from silverfold.pipelines.reading.status import read_all  # noqa: PLC0415 - as above

        return read_all(self._settings, open_feeds(self._settings, feeds or None))

    def read(self, table: str, *, at: int | datetime | None = None, feed: str | None = None) -> DataFrame:
        """Return a table's rows, as ``silverfold sql`` sees them. Lazy, on the caller's session.

        Args:
            table: A silver table, its ``__history`` or ``__aside``; or ``<feed>__<table>``, where several feeds have
                one.
            at: A position of the table's feed; or a time, in UTC unless it has a zone, which gives the newest position
                that all of the feed's tables had reached by then. By default each action reads the newest version.
            feed: Look among this feed's tables only.

        Raises:
            QueryFailed: There is no such table, it is not built, or it cannot be read as of then.
            StoreUnavailable: The store does not answer.
        """
        from silverfold.pipelines.reading.tables import read_table  # noqa: PLC0415 - as above
        from silverfold.pipelines.spark.running import check_delta  # noqa: PLC0415 - as above

        session = self._running()
        if session is None:
            session = self._start("read")
        else:
            check_delta(session)
        return read_table(session, self._settings, table, at=at, feed=feed)

    def check(self, feed: str, *, tables: Sequence[str] = ()) -> Check:
        """Judge the rows of a feed's tables by the tables' rules. One Spark job a table.

        As ``silverfold check``: rows that fail a rule do not raise; ``passed`` is False where one is to ``fail``.
        """
        from silverfold.pipelines.quality.check import check_feed  # noqa: PLC0415 - as above

        _, opened = open_feed(feed, self._settings)
        with self._beside("check") as spark:
            return check_feed(spark, self._settings, opened, chosen_tables(opened, tables, argument=_TABLES))

    def maintain(self, feed: str, *, dry_run: bool = False) -> MaintenanceReport:
        """Keep a feed's tables small: drop old frames, join and remove files. Runs Spark jobs; once a day or so.

        As ``silverfold maintain``: a step that fails does not raise; ``complete`` is False.
        """
        from silverfold.pipelines.upkeep.maintain import Maintenance  # noqa: PLC0415 - as above

        connector, opened = open_feed(feed, self._settings)
        with self._beside("maintain") as spark:
            return Maintenance(spark(), self._settings, connector, opened, datetime.now(UTC), dry_run).report()

    def rebuild(self, feed: str, table: str) -> RebuildReport:
        """Make a silver table anew from bronze and swap it in, in one commit. Runs Spark jobs.

        As ``silverfold rebuild``: a table that cannot be rebuilt stays as it was; ``rebuilt`` is False.

        Raises:
            StoreUnavailable: The store does not answer; the table is as it was.
        """
        from silverfold.pipelines.upkeep.rebuild_table import rebuild_table  # noqa: PLC0415 - as above

        connector, opened = open_feed(feed, self._settings)
        chosen_tables(opened, [table], argument=_TABLES)
        with self._beside("rebuild") as spark:
            return rebuild_table(spark, self._settings, connector, opened, table)

    def _build(self, feeds: Sequence[str], *, follow: bool, stop: threading.Event) -> BuildReport:
        from silverfold.pipelines.applying.run import build_feeds  # noqa: PLC0415 - as above

        opened = self._open(feeds)
        with self._beside("build") as spark:
            return build_feeds(spark, self._settings, opened, follow=follow, stop=stop)

    def _open(self, feeds: Sequence[str]) -> list[OpenFeed]:
        opened = open_feeds(self._settings, feeds or None)
        if not opened:
            raise ConfigError(file="settings", key="feeds", found="no feeds", allowed="files feeds/FEED.toml")
        return opened

    def _running(self) -> SparkSession | None:
        from silverfold.pipelines.spark.running import active_session  # noqa: PLC0415 - as above

        return self._spark or active_session()

    def _start(self, what: str, running: SparkSession | None = None) -> SparkSession:
        from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

        return start_spark(self._settings, app=f"silverfold {what}", running=running)

    @contextmanager
    def _beside(self, what: str) -> Iterator[Callable[[], SparkSession]]:
        """Yield a function that returns a session to work with; afterwards the active one is as before."""
        from silverfold.pipelines.spark.running import active_session, leaving_active  # noqa: PLC0415 - as above

        with leaving_active(active_session()):
            yield partial(self._start, what, self._running())


class Following:
    """A build that follows its feeds in a thread, until it is stopped. Made by `Project.follow`.

    Use it in a ``with`` block, which stops it, or call `stop`. Stopping may take as long as the cuts at work.
    """

    def __init__(self, work: Callable[[threading.Event], BuildReport]) -> None:
        self._stop = threading.Event()
        self._result: Future[BuildReport] = Future()
        threading.Thread(target=self._run, args=(work,), name="silverfold follow", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended: it ends by itself only on an error, which `stop` raises."""
        return not self._result.done()

    def stop(self) -> BuildReport:
        """Stop after the cuts at work; return what came of all. Safe to repeat.

        Raises:
            SilverfoldError: It has ended before, with this error.
        """
        self._stop.set()
        return self._result.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, work: Callable[[threading.Event], BuildReport]) -> None:
        try:
            self._result.set_result(work(self._stop))
        except BaseException as error:
            self._result.set_exception(error)
