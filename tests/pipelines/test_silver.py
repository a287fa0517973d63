"""How a cut's frames are read: here, or by Spark where they are many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conf.errors import ApplyError
from connectors.arrow_rows import InProcess, InSpark
from connectors.base import Cut
from connectors.sqlitecloud.connector import CONNECTOR
from pipelines.silver import SilverTable
from tests.support.sqlitecloud_feed import SqliteCloudFeed, notified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, STREAM = 3_000, "notify:said"


def cut_of(spans: tuple[tuple[int, int], ...], left_out: tuple[int, ...] = ()) -> Cut:
    ends = tuple(last for _, last in spans)
    return Cut(STREAM, 1, -1, ends[-1], spans, ends, ends, replaces=False, left_out=left_out)


@pytest.fixture(scope="module")
def said(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SilverTable:
    feed = SqliteCloudFeed(tmp_path_factory.mktemp("said"), {"said": {"channel": "said"}}, epoch=1)
    feed.land(*(notified({"channel": "said", "type": "MESSAGE", "payload": str(at)}) for at in range(COUNT)))
    assert CONNECTOR.stream(feed.feed, "said") == STREAM
    return SilverTable(lambda: spark, feed.feed, CONNECTOR, "said", feed.places)


@pytest.mark.parametrize("few", [COUNT, 0], ids=["here", "by Spark"])
def test_a_cut_of_a_thousand_ranges_is_read_either_way(said: SilverTable, few: int, monkeypatch: Any):
    monkeypatch.setattr("pipelines.bronze._FEW_FRAMES", few)
    spans = tuple((at, at) for at in range(0, COUNT, 3))
    frames = said.frames(cut_of(spans, left_out=(3, 9)))
    assert type(frames) is (InProcess if few else InSpark)
    found = frames.dataframe().select("frame_seq").toPandas()["frame_seq"]
    assert sorted(found) == [at for at in range(0, COUNT, 3) if at not in {3, 9}]


def test_files_that_go_while_they_are_read_are_an_error_of_the_table(
    said: SilverTable, monkeypatch: Any, tmp_path: Path
):
    monkeypatch.setattr("pipelines.bronze._FEW_FRAMES", 0)
    monkeypatch.setattr("pipelines.silver.files_between", lambda *_: [f"{tmp_path}/gone.parquet"])
    with pytest.raises(ApplyError, match="PATH_NOT_FOUND"):
        said.frames(cut_of(((0, COUNT - 1),)))
