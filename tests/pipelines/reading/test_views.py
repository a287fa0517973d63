from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession

from silverfold.pipelines.places import Places, history_of, side_table_of
from silverfold.pipelines.reading.time_travel import AsOf
from silverfold.pipelines.reading.views import Views, register_views
from silverfold.pipelines.storage.commit_note import CommitNote


def built(places: Places, feed: str, table: str, *numbers: int) -> None:
    write_deltalake(places.silver(feed, table).url, pa.table({"n": pa.array(numbers, pa.int64())}), mode="append")


def commit_with_history(places: Places, history: int | None = 0, side: int | None = None) -> None:
    """Let quotes of market have a cut with which these versions count, by default version 0 of its history."""
    note = CommitNote(
        feed="market",
        table="quotes",
        epoch=1,
        first_position=1,
        last_position=9,
        replaced=False,
        updates=1,
        history=history,
        aside=side,
    )
    properties = CommitProperties(custom_metadata={"userMetadata": note.to_json()})
    write_deltalake(places.silver("market", "quotes").url, pa.table({"n": [1]}), commit_properties=properties)


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


def test_a_name_that_feed_and_table_have_together_with_another_feeds_history_is_no_view(
    session: SparkSession, warehouse: Path
):
    places = Places(str(warehouse))
    built(places, "quotes", "history", 1)
    built(places, "market", "quotes__history", 2)
    commit_with_history(places)

    views = register_views(session, places, {"quotes": ["history"], "market": [history_of("quotes")]})

    assert not session.catalog.tableExists("quotes__history")
    assert [row.n for row in session.sql("SELECT n FROM history").collect()] == [1]
    assert [row.n for row in session.sql("SELECT n FROM market__quotes__history").collect()] == [2]
    message = "several feeds have a table quotes__history: use history or market__quotes__history"
    assert views.why_missing("quotes__history") == message


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


def test_a_history_is_called_as_its_folder_is_and_shows_what_stood_as_of_a_position(
    session: SparkSession, warehouse: Path
):
    places = Places(str(warehouse))
    versions = [(1, 2, 4), (1, 4, 7), (1, 7, None), (2, 2, 3), (2, 8, 9)]
    table = pa.table(dict(zip(["n", "__START_AT", "__END_AT"], zip(*versions, strict=True), strict=True)))
    write_deltalake(places.history("market", "quotes").url, table)
    commit_with_history(places)
    names = {"market": [history_of("quotes"), history_of("trades")]}

    views = register_views(session, places, names)
    newest = session.sql("SELECT * FROM quotes__history").collect()
    register_views(session, places, names, [AsOf("market", 6, until={"quotes__history": 5})])
    then = session.sql("SELECT * FROM market__quotes__history")

    assert sorted(map(tuple, newest), key=repr) == sorted(versions, key=repr)
    expected = session.createDataFrame([(1, 2, 4), (1, 4, None), (2, 2, 3)], "n long, __START_AT long, __END_AT long")
    assert_df_equality(then, expected, ignore_row_order=True)
    assert views.why_missing("trades__history") == (
        "table trades__history of feed market is not built yet: run `silverfold build market --once`"
    )


def test_what_a_table_keeps_aside_may_be_nothing_and_is_shown_only_as_of_now(session: SparkSession, warehouse: Path):
    places = Places(str(warehouse))
    built(places, "market", "quotes", 1)
    names = {"market": ["quotes", side_table_of("quotes"), side_table_of("trades")]}

    views = register_views(session, places, names)
    nothing = session.sql("SELECT n, _present, _reasons FROM quotes__aside")
    then = register_views(session, places, names, [AsOf("market", 6, versions={"quotes": 0})])

    assert nothing.collect() == []
    assert (views.why_missing("trades__aside") or "").startswith("table trades__aside of feed market is not built yet")
    assert then.why_missing("quotes__aside") == (
        "table quotes__aside of feed market is shown only as of now: ask without --at"
    )


def test_a_history_that_does_not_count_or_rows_aside_that_are_gone_are_said_to_be(
    session: SparkSession, warehouse: Path
):
    places = Places(str(warehouse))
    commit_with_history(places, history=None, side=0)
    write_deltalake(places.history("market", "quotes").url, pa.table({"n": [1]}))
    names = {"market": [history_of("quotes"), side_table_of("quotes")]}

    views = register_views(session, places, names)

    assert views.built == {}
    for name in names["market"]:
        assert views.why_missing(name) == (
            f"table {name} of feed market is not what its table was built with: run `silverfold rebuild market quotes`"
        )


def test_a_history_whose_folder_is_gone_is_made_by_a_rebuild(session: SparkSession, warehouse: Path):
    places = Places(str(warehouse))
    commit_with_history(places)

    views = register_views(session, places, {"market": [history_of("quotes")]})

    assert (views.why_missing("quotes__history") or "").endswith("run `silverfold rebuild market quotes`")


def test_a_name_nobody_configured_has_no_reason():
    assert Views({}, {"quotes": ("market", "quotes")}, {}).why_missing("trades") is None
