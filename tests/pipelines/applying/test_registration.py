"""Tables are registered in a catalog once they exist, with comments, and no name of somebody else's is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.registration import Registration
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.spark.session import own_session
from silverfold.pipelines.upkeep.rebuild import Rebuild
from tests.support.running import run_once
from tests.support.stub_connector import FEED, STREAM, StubConnector
from tests.support.stub_warehouse import StubWarehouse, change

CATALOG = "spark_catalog.`select`"
"""A schema whose name needs quotes. Spark's own catalog allows no spaces."""
NAME = f"`spark_catalog`.`select`.`{STREAM}`"
RULES = {"small": {"condition": "b < 5", "action": "quarantine"}}


class DescribedColumns(StubConnector):
    """A connector whose source describes a column."""

    def column_comments(self, feed: object, table: str) -> dict[str, str]:
        return {"b": "A `number`: it's\n\\ or ${b}", "no column": "of this table"}


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session that has the schema of `CATALOG`, empty."""
    session = own_session(spark)
    session.sql(f"CREATE SCHEMA {CATALOG} LOCATION '{tmp_path}/schema'").collect()
    yield session
    session.sql(f"DROP SCHEMA {CATALOG} CASCADE").collect()


def tables_of(session: SparkSession) -> list[str]:
    """Return the names in the schema of `CATALOG`."""
    return sorted(row.tableName for row in session.sql(f"SHOW TABLES IN {CATALOG}").collect())


def build_of(stub: StubWarehouse) -> FeedBuild:
    """Return the build of a new process that registers tables."""
    started = stub.started(expect=RULES)
    feed = replace(started.feed, catalog=CATALOG)
    return FeedBuild.open(lambda: stub.spark, started.settings, stub.connector, feed)


def test_tables_are_found_by_name_and_rebuilt_ones_too(session: SparkSession, tmp_path: Path):
    stub = StubWarehouse(session, tmp_path / "it's a lake", DescribedColumns())
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", key, a="x", b=key) for key in range(3)])
    stub.history.end_snapshot()
    assert logged(lambda: run_once(build_of(stub))) == [("warning", NAME)]  # the catalog is in memory
    assert tables_of(session) == [STREAM]

    stub.history.update([change("update", 1, b=9)])
    build = build_of(stub)
    assert run_once(build) == {}
    assert tables_of(session) == [STREAM, f"{STREAM}__aside"]
    assert [row.b for row in session.table(f"{CATALOG}.{STREAM}__aside").collect()] == [9]

    Rebuild(stub.spark, build.settings, stub.connector, build.feed, STREAM, "again").run()
    assert sorted(row.k for row in session.table(NAME).collect()) == [0, 2]
    rebuilt = DeltaTable(stub.places.silver(FEED, STREAM).url)
    assert rebuilt.metadata().description == f"silverfold: feed {FEED}, source T ({FEED}), keys lane, k"
    comments = {field.name: field.metadata.get("comment") for field in rebuilt.schema().fields}
    assert {each for each in comments.items() if each[1]} == {("b", "A `number`: it's\n\\ or ${b}")}


def registration(start: Callable[[], SparkSession], folder: Path, catalog: str, comment: str | None) -> Registration:
    """Return the names of a table that a build made, which has a comment if it was registered."""
    no_session: Any = None
    stub = StubWarehouse(no_session, folder, StubConnector())
    feed = replace(stub.feed_with(), catalog=catalog)
    silver = SilverTable(start, feed, stub.connector, stub.connector.decoder(feed), STREAM, stub.places)
    write_deltalake(silver.place.url, pa.table({"n": [1]}), description=comment, mode="ignore")
    return Registration(silver)


def logged(run: Callable[[], object]) -> list[tuple[str, str]]:
    """Return what is logged of registrations, with names."""
    with capture_logs() as lines:
        run()
    return [(line["log_level"], line["name"]) for line in lines if "name" in line]


def test_a_name_of_another_table_stays_as_it_is(session: SparkSession, tmp_path: Path):
    session.sql(f"CREATE TABLE {NAME} (other BIGINT) USING delta LOCATION '{tmp_path}/other'").collect()
    names = registration(lambda: session, tmp_path, CATALOG, None)

    assert logged(names.after_cut) == [("error", NAME)]
    assert logged(names.after_cut) == []

    assert session.table(NAME).columns == ["other"]
    assert DeltaTable(names.silver.place.url).metadata().description is None


def test_what_cannot_be_registered_is_by_a_later_build(session: SparkSession, tmp_path: Path):
    names = registration(lambda: session, tmp_path, "no_schema", None)
    assert logged(names.after_cut) == [("warning", f"`no_schema`.`{STREAM}`")]
    assert logged(names.after_cut) == []

    registration(lambda: session, tmp_path, CATALOG, None).at_rest()

    assert session.table(NAME).count() == 1


@pytest.mark.parametrize(
    ("catalog", "comment", "starts"), [("lake", None, True), ("lake", "of ours", False), ("", None, False)]
)
def test_spark_is_started_for_a_table_that_was_never_registered_alone(
    tmp_path: Path, catalog: str, comment: str | None, starts: bool
):
    started: list[str] = []

    def start() -> SparkSession:
        started.append("Spark")
        raise StoreUnavailable("as in a test")

    names = registration(start, tmp_path, catalog, comment)
    names.at_rest()
    names.at_rest()
    assert started == ["Spark"] * starts
