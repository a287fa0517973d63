"""Simulates the death of a process at any Delta commit, whichever library makes it. Knows no step of the engine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

import deltalake
import deltalake.table
import pyspark.sql
from pyspark.sql.merge import MergeIntoWriter
from pyspark.sql.readwriter import DataFrameWriter

from tests.support.deaths import Died

_COMMANDS = ("MERGE", "ALTER", "CREATE", "REPLACE", "INSERT", "UPDATE", "DELETE", "OPTIMIZE", "VACUUM", "RESTORE")
"""First words of SQL statements that commit."""
_OURS = ("silverfold", "jobs", "pipelines", "connectors", "transforms", "deltalake")
"""Packages whose modules may have imported functions that commit."""


class Commits:
    """Counts commits to any Delta table by any writer; at one of them the process dies.

    Args:
        last: Number of the commit, from 0, at which it dies.
        after: Die after the commit rather than before it.
    """

    def __init__(self, last: int, *, after: bool) -> None:
        self.made = 0
        self._last, self._after, self._dead, self._lock = last, after, False, Lock()

    def counted(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        """Return the commit, wrapped and counted; does nothing once the process is dead."""
        return self.begun(commit, lambda *_args: None)

    def saved(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """Return Spark's table writer, wrapped. A process that dies at the first write leaves a log that has begun.

        Writes that go nowhere, only to compute the rows, are not counted.
        """
        counted = self.begun(save, lambda _writer, path: begin_log(Path(path)))
        return lambda writer, *where: (counted if where else save)(writer, *where)

    def begun(self, commit: Callable[..., Any], begin: Callable[..., None]) -> Callable[..., Any]:
        """Return the commit, wrapped; a process that dies before its end still begins it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                dies = self._dead or self.made == self._last
                does = not self._dead and (not dies or self._after)
                begins = not self._dead and not does
                self._dead, self.made = dies, self.made + 1
            if begins:
                begin(*args)
            found = commit(*args, **kwargs) if does else None
            if dies:
                raise Died
            return found

        return call

    def command(self, sql: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that runs SQL, wrapped: statements that commit are counted."""
        counted = self.counted(sql)

        def run(session: Any, query: str, *args: Any, **kwargs: Any) -> Any:
            commits = query.lstrip().upper().startswith(_COMMANDS)
            return (counted if commits else sql)(session, query, *args, **kwargs)

        return run

    def unless_dead(self, remove: Callable[..., Any]) -> Callable[..., Any]:
        """Return the cleanup function, wrapped: it does nothing once the process is dead."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return None if self._dead else remove(*args, **kwargs)

        return call


class Interrupted(Commits):
    """Counts commits; calls another function right before or right after one of them.

    Args:
        other: The function, called once.
    """

    def __init__(self, at: int, other: Callable[[], object], *, after: bool) -> None:
        super().__init__(at, after=after)
        self._other = other

    def begun(self, commit: Callable[..., Any], begin: Callable[..., None]) -> Callable[..., Any]:
        """Return the commit, wrapped: it is carried out completely."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                is_it, self.made = self.made == self._last, self.made + 1
            if is_it and not self._after:
                self._other()
            found = commit(*args, **kwargs)
            if is_it and self._after:
                self._other()
            return found

        return call


def begin_log(table: Path) -> None:
    """Leave a table's folder as a process does that is killed during the first commit."""
    log = table / "_delta_log"
    if not log.exists():
        (log / "_staged_commits").mkdir(parents=True)
        (log / ".00000000000000000000.json.1d2e.tmp").write_text('{"commitInfo":')


@contextmanager
def dying_at_commit(last: int, *, after: bool) -> Iterator[Commits]:
    """Inside the block, let the process die at its nth commit, from 0, if it gets that far."""
    with counting(Commits(last, after=after)) as commits:
        yield commits


@contextmanager
def counting(commits: Commits) -> Iterator[Commits]:
    """Count every commit inside the block."""
    write = deltalake.write_deltalake
    ours = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in _OURS]
    writers = [module for module in ours if vars(module).get("write_deltalake") is write]
    changed: list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = [
        *((module, "write_deltalake", commits.counted) for module in writers),
        (DataFrameWriter, "save", commits.saved),
        (MergeIntoWriter, "merge", commits.counted),
        (deltalake.table.TableOptimizer, "compact", commits.counted),
        (deltalake.table.TableAlterer, "set_table_properties", commits.counted),
        (pyspark.sql.SparkSession, "sql", commits.command),
        (shutil, "rmtree", commits.unless_dead),
    ]
    patches = [patch.object(owner, name, counted(getattr(owner, name))) for owner, name, counted in changed]
    for each in patches:
        each.start()
    try:
        yield commits
    finally:
        for each in patches:
            each.stop()
