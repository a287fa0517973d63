"""What was told of a database comes to what the database holds, whatever is cut on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building_once import all_rows, build_once
from tests.support.sqlitecloud.live import FEED, TABLES, Live, living, run
from tests.support.sqlitecloud.same import stored, unlike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"artist": ("id",), "track": ("album", "nr"), "pair": ("nr", "side")}


@pytest.mark.parametrize(
    ("server_options", "options"),
    [
        pytest.param(ServerOptions(pacing=Pacing.JOINED), {}, id="session, new words, joined"),
        pytest.param(
            ServerOptions(capture=CaptureMode.HOOK_FULL, dialect=Dialect(Vocabulary.OLD), pacing=Pacing.SPLIT),
            {"page_rows": 5, "max_rows": 2},
            id="hook with whole rows, old words, split, in pages",
        ),
        pytest.param(
            ServerOptions(capture=CaptureMode.HOOK_CHANGED, dialect=Dialect(Vocabulary.MIXED), notification_frame="+"),
            {"fence": False, "canary_seconds": 0},
            id="hook with changed columns, mixed words, no fence",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_has_landed_comes_to_what_sqlite_holds(
    tmp_path: Path, server_options: ServerOptions, options: Mapping[str, Any]
) -> None:
    with living(tmp_path, Random(7), server_options, **options) as live:
        for stage in range(4):
            live.work(30)
            interrupt(live, stage)
            live.work(30)
        last = live.landed()
        for table in TABLES:
            expected = fold_bronze(LandedTable(live.places.bronze(FEED), CONNECTOR, live.feed, table, last)).expected()
            assert unlike(stored(live.path, table), expected.rows, KEYS[table]) == []


def interrupt(live: Live, stage: int) -> None:
    """Cut connections, or change a table."""
    if stage == 1:
        live.server.disconnect_listeners()
    elif stage == 2:
        live.server.disconnect_all()
    elif stage == 3:
        run(live.sessions[0], "ALTER TABLE artist ADD COLUMN country TEXT DEFAULT 'none'")
        run(live.sessions[1], "UPDATE artist SET country = 'some' WHERE id < 6")


def test_silver_equals_sqlite_and_shows_each_commit_whole(spark: SparkSession, tmp_path: Path) -> None:
    with living(tmp_path, Random(11), ServerOptions(pacing=Pacing.JOINED)) as live:
        with polled(live) as polls:
            for stage in (0, 2, 3):
                live.work(40)
                interrupt(live, stage)
                live.work(40)
                live.landed()
                build(spark, live)

        for table in TABLES:
            rows = all_rows(DeltaTable(live.places.silver(FEED, table).url))
            assert unlike(stored(live.path, table), rows, KEYS[table]) == []
            assert verify_table(live.places, CONNECTOR, live.feed, table).verdict is Verdict.EQUAL
        pairs = [cut for cut in read_cuts(live.places, FEED) if cut.table == "pair"]
        assert len(pairs) > 2
        for cut in pairs:
            assert sides_agree(DeltaTable(live.places.silver(FEED, "pair").url, version=cut.delta_version))
        assert len(polls) > len(pairs)
        assert all(polls)


@contextmanager
def polled(live: Live) -> Iterator[list[bool]]:
    """Read the pairs in silver again and again, as a reader beside the builds does; return what each reading found."""
    over, found = threading.Event(), list[bool]()

    def poll() -> None:
        while not over.wait(0.05):
            if (opened := open_table(live.places.silver(FEED, "pair"))) is not None:
                found.append(sides_agree(opened))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def sides_agree(pairs: DeltaTable) -> bool:
    """Tell whether every commit that is in a table of pairs is there as a whole: it told both sides the same."""
    rows = all_rows(pairs)
    left, right = ({row["nr"]: row["told"] for row in rows if row["side"] == side} for side in ("left", "right"))
    return left == right


def build(spark: SparkSession, live: Live) -> None:
    assert build_once(spark, live.path.parent / "warehouse", CONNECTOR, live.feed) == {}
