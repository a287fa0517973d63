from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipelines.places import Places
from pipelines.views import Views, register_views


def built(places: Places, feed: str, table: str, *numbers: int) -> None:
    write_deltalake(places.silver(feed, table).url, pa.table({"n": pa.array(numbers, pa.int64())}), mode="append")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


def test_tables_are_called_by_name_and_by_feed_and_name(session: SparkSession, warehouse: Path):
    places = Places(str(warehouse))
    built(places, "market", "quotes", 1, 2)

    views = register_views(session, places, {"market": ["quotes"]})

    expected = session.createDataFrame([(1,), (2,)], "n long")
    assert_df_equality(session.sql("SELECT * FROM quotes"), expected, ignore_row_order=True)
    assert_df_equality(session.sql("SELECT * FROM market__quotes"), expected, ignore_row_order=True)
    assert views == Views({"market__quotes": ("market", "quotes"), "quotes": ("market", "quotes")}, {}, {})


def test_a_view_shows_the_newest_version(session: SparkSession, warehouse: Path):
    places = Places(str(warehouse))
    built(places, "market", "quotes", 1)
    register_views(session, places, {"market": ["quotes"]})

    built(places, "market", "quotes", 2)

    assert [row.n for row in session.sql("SELECT n FROM quotes ORDER BY n").collect()] == [1, 2]


def test_a_name_of_several_feeds_is_no_view(session: SparkSession, warehouse: Path):
    places = Places(str(warehouse))
    built(places, "lab", "Quotes", 1)
    built(places, "market", "quotes", 2)

    views = register_views(session, places, {"market": ["quotes"], "lab": ["Quotes"]})

    assert [row.n for row in session.sql("SELECT n FROM lab__quotes").collect()] == [1]
    assert not session.catalog.tableExists("quotes")
    assert views.why_missing("quotes") == "several feeds have a table quotes: use lab__quotes or market__quotes"


def test_a_table_not_built_yet_says_how_to_build_it(session: SparkSession, warehouse: Path):
    views = register_views(session, Places(str(warehouse)), {"market": ["quotes"]})

    assert views.why_missing("market__Quotes") == (
        "table quotes of feed market is not built yet: run `silverfold build market --once`"
    )


def test_a_name_nobody_configured_has_no_reason():
    assert Views({}, {"quotes": ("market", "quotes")}, {}).why_missing("trades") is None
