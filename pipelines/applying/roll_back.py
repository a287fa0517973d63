"""Roll back writes to a silver table's companion tables by a cut or rebuild whose silver commit never happened.

Rows in the side table are not undone: the next cut rewrites all of them.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError, Overtaken, RebuildNeeded
from silverfold.pipelines.applying.silver import OpenedTables, SilverTable
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.companions import ROLLED_BACK, Companion
from silverfold.pipelines.storage.cuts import newest_note
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.transforms.merge import USER_METADATA, overwrite
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import path_table


def restore(session: SparkSession, path: str, version: int, *, metadata: str) -> None:
    """Restore the table at a path or URL to a version. Positions in its log are unchanged. Runs Spark jobs.

    Args:
        session: Not shared with other writers.
        metadata: Text for the commit's ``userMetadata``.

    Raises:
        ApplyError: Spark or Delta refused, for example if files of that version were removed. Nothing was committed.
    """
    session.conf.set(USER_METADATA, metadata)
    try:
        with named_errors(path):
            session.sql(f"RESTORE TABLE {path_table(path)} TO VERSION AS OF {version:d}").collect()
    finally:
        session.conf.unset(USER_METADATA)


def roll_back(silver: SilverTable) -> None:
    """Do as `open_rolled_back`, apart from a cut."""
    with sole_writer(silver.places, silver.feed.name, silver.name), named_errors(silver.name):
        open_rolled_back(silver)


def open_rolled_back(silver: SilverTable) -> OpenedTables:
    """Open the tables of a cut, with each companion table restored to the rows that count. Safe to repeat.

    Raises:
        RebuildNeeded: The version that counts is unknown, or its files are missing.
        Overtaken: Another process wrote at the same moment.
        StoreUnavailable: Try again.
    """
    opened = silver.opened()
    built = opened.position >= 0
    if not built and opened.history.written > 1:
        raise _needed(silver, "there is a history of several cuts, and no table")
    # A history kept earlier must not be lost.
    is_retained = built and opened.note is not None and opened.note.history is None
    parts = [*([] if is_retained else [(silver.history, opened.history)]), (silver.tombstones, opened.tombstones)]
    uncommitted = [(place, found) for place, found in parts if not (found.is_committed or found.is_gone)]
    for place, found in uncommitted:
        _roll_back_part(silver, place, found, before=-1 if opened.note is None else opened.note.last_position)
    return silver.opened() if uncommitted else opened


def _roll_back_part(silver: SilverTable, place: Place, found: Companion, *, before: int) -> None:
    newest = newest_note(found.newest)
    assert newest is not None, "a commit of ours made it so"
    version = -1 if found.committed is None else found.committed.version()
    note = replace(
        newest, first_position=before, last_position=before, replaced=False, updates=0, notes={ROLLED_BACK: version}
    )
    try:
        if found.committed is None:
            rows = silver.session.read.format("delta").load(place.url).limit(0)
            overwrite(rows, place.url, metadata=note.to_json())
        else:
            restore(silver.session, place.url, version, metadata=note.to_json())
    except Overtaken:
        raise
    except ApplyError as error:
        raise _needed(silver, f"{place} cannot be taken back to version {version}: {error}") from error


def _needed(silver: SilverTable, reason: str) -> RebuildNeeded:
    return RebuildNeeded(reason, feed=silver.feed.name, table=silver.name)
