"""How a cut's frames are read, here or by Spark where they are many; and what a table is made with."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from silverfold.conf.errors import ApplyError, StoreUnavailable
from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows, InProcess, InSpark
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.pipelines.applying.cut_job import read_frames
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.rebuild import Rebuild
from tests.support.sqlitecloud.feed import SqliteCloudFeed, notified
from tests.support.stub_connector import FEED, StubConnector
from tests.support.stub_connector import STREAM as STUB_STREAM
from tests.support.stub_warehouse import StubWarehouse, change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, STREAM = 3_000, "notify:said"


def cut_of(spans: tuple[tuple[int, int], ...], left_out: tuple[int, ...] = ()) -> Cut:
    ends = tuple(last for _, last in spans)
    return Cut(STREAM, 1, -1, ends[-1], spans, ends, ends, replaces=False, left_out=left_out)


@pytest.fixture(scope="module")
def channel_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SilverTable:
    feed = SqliteCloudFeed(tmp_path_factory.mktemp("said"), {"said": {"channel": "said"}}, epoch=1)
    feed.land(*(notified({"channel": "said", "type": "MESSAGE", "payload": str(at)}) for at in range(COUNT)))
    assert CONNECTOR.stream(feed.feed, "said") == STREAM
    return SilverTable(lambda: spark, feed.feed, CONNECTOR, CONNECTOR.decoder(feed.feed), "said", feed.places)


def frames_of(silver: SilverTable, cut: Cut) -> ArrowRows:
    return read_frames(silver, open_table(silver.places.bronze(silver.feed.name)), cut)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyError("a value"), ApplyError),
        (OSError("no such schema"), ApplyError),
        (OSError(errno.ENOSPC, "No space left on device"), OSError),
        (MemoryError(), MemoryError),
        (StoreUnavailable("no route"), StoreUnavailable),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_only_a_bug_of_a_decoder_is_an_error_of_its_table(
    tmp_path: Path, error: BaseException, raised: type[BaseException]
):
    feed = SqliteCloudFeed(tmp_path, {"said": {"channel": "said"}}, epoch=1)
    no_session: Any = None
    silver = SilverTable(no_session, feed.feed, CONNECTOR, CONNECTOR.decoder(feed.feed), "said", feed.places)
    with pytest.raises(raised) as found, silver.decoding():
        raise error
    if raised is ApplyError:
        assert str(found.value) == f"said: DECODER_FAILED: {type(error).__name__} in the decoder"


@pytest.mark.parametrize("few", [COUNT, 0], ids=["here", "by Spark"])
def test_a_cut_of_a_thousand_ranges_is_read_either_way(channel_table: SilverTable, few: int, monkeypatch: Any):
    monkeypatch.setattr("silverfold.pipelines.landing.bronze._FEW_FRAMES", few)
    spans = tuple((at, at) for at in range(0, COUNT, 3))
    frames = frames_of(channel_table, cut_of(spans, left_out=(3, 9)))
    assert type(frames) is (InProcess if few else InSpark)
    found = frames.dataframe().select("frame_seq").toPandas()["frame_seq"]
    assert sorted(found) == [at for at in range(0, COUNT, 3) if at not in {3, 9}]


def test_files_that_go_while_they_are_read_are_an_error_of_the_table(
    channel_table: SilverTable, monkeypatch: Any, tmp_path: Path
):
    monkeypatch.setattr("silverfold.pipelines.landing.bronze._FEW_FRAMES", 0)
    monkeypatch.setattr("silverfold.pipelines.applying.cut_job.files_between", lambda *_: [f"{tmp_path}/gone.parquet"])
    with pytest.raises(StoreUnavailable, match=r"cannot read .*gone.parquet \(PATH_NOT_FOUND\)"):
        frames_of(channel_table, cut_of(((0, COUNT - 1),)))


@pytest.mark.parametrize("vectors", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_table_is_made_with_what_delta_has_settings_for_and_follows_other_ones(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool
) -> None:
    monkeypatch.setattr("silverfold.pipelines.applying.write.WHOLE_FILES", {})  # as of a table that is large
    stub = StubWarehouse(spark, warehouse, StubConnector())
    places = (stub.places.silver(FEED, STUB_STREAM), stub.places.history(FEED, STUB_STREAM))

    def clustering() -> list[list[str]]:
        return [spark.sql(f"DESCRIBE DETAIL delta.`{place.url}`").collect()[0].clusteringColumns for place in places]

    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", key, a="x", b=key) for key in range(9)])
    stub.history.end_snapshot()
    settings: dict[str, Any] = {"deletion_vectors": vectors, "change_data_feed": True, "cluster_by": ("B",)}
    assert stub.build(**settings) == {}
    started = stub.started(**settings, stored_as_scd_type=2)
    Rebuild(spark, started.settings, stub.connector, started.feed, STUB_STREAM, "a").run()  # which makes the history
    assert clustering() == [["b"], ["b"]]
    stub.history.update([change("update", 1, b=5), change("delete", 2)])
    assert stub.build(**settings, stored_as_scd_type=2) == {}

    for place in places:
        table = DeltaTable(place.url)
        assert ("deletionVectors" in (table.protocol().reader_features or ())) == vectors
        assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
        if not vectors:
            assert 5 in table.to_pyarrow_table()["b"].to_pylist()

    stub.history.update([change("update", 1, b=6)])
    other = {"deletion_vectors": not vectors, "change_data_feed": False, "cluster_by": ()}
    assert stub.build(**other, stored_as_scd_type=2) == {}
    assert clustering() == [[], []]
    for place in places:
        found = DeltaTable(place.url).metadata().configuration
        expected = (str(not vectors).lower(), "false")
        assert (found["delta.enableDeletionVectors"], found["delta.enableChangeDataFeed"]) == expected
