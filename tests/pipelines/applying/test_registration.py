"""Tables are registered in a catalog once they exist, with comments, and no name of somebody else's is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from silverfold.conf.errors import SparkUnavailable, StoreUnavailable
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.registration import Registration
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.places import side_table_of
from silverfold.pipelines.spark.session import own_session
from silverfold.pipelines.upkeep.rebuild import Rebuild
from tests.support.running import run_once
from tests.support.stub_connector import FEED, STREAM, StubConnector
from tests.support.stub_warehouse import StubWarehouse, change

CATALOG = "spark_catalog.`select`"
"""A schema whose name needs quotes. Spark's own catalog allows no spaces."""
NAME, ASIDE = (f"`spark_catalog`.`select`.`{name}`" for name in (STREAM, side_table_of(STREAM)))
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


def test_a_name_of_another_table_or_a_view_stays_as_it_is(session: SparkSession, tmp_path: Path):
    session.sql(f"CREATE TABLE {NAME} (other BIGINT) USING delta LOCATION '{tmp_path}/other'").collect()
    session.sql(f"CREATE VIEW {ASIDE} AS SELECT 1 AS other").collect()
    names = registration(lambda: session, tmp_path, CATALOG, None)
    write_deltalake(names.silver.side_table.url, pa.table({"n": [1]}))

    with capture_logs() as lines:
        names.after_cut()
    taken = {line["name"]: line["event"] for line in lines if line["log_level"] == "error"}
    assert taken == {
        NAME: "the name is taken by a table at another place, and stays as it is",
        ASIDE: "the name is taken by a view, and stays as it is",
    }
    assert logged(names.after_cut) == []

    assert [session.table(name).columns for name in (NAME, ASIDE)] == [["other"], ["other"]]
    places = names.silver.place, names.silver.side_table
    assert [DeltaTable(place.url).metadata().description for place in places] == [None, None]


def test_what_cannot_be_registered_is_by_a_later_build(session: SparkSession, tmp_path: Path):
    names = registration(lambda: session, tmp_path, "no_schema", None)
    assert logged(names.after_cut) == [("warning", f"`no_schema`.`{STREAM}`")]
    assert logged(names.after_cut) == []

    registration(lambda: session, tmp_path, CATALOG, None).at_rest()
    assert session.table(NAME).count() == 1

    session.sql(f"DROP TABLE {NAME}").collect()
    registration(lambda: session, tmp_path, CATALOG, None).at_rest()  # it has a comment now, and Spark runs
    assert session.table(NAME).count() == 1


@pytest.mark.parametrize(
    ("catalog", "comment", "starts"), [("lake", None, True), ("lake", "of ours", False), ("", None, False)]
)
def test_spark_is_started_for_a_table_that_was_never_registered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: str, comment: str | None, starts: bool
):
    monkeypatch.setattr("silverfold.pipelines.applying.registration.active_session", lambda: None)
    started: list[str] = []

    def start() -> SparkSession:
        started.append("Spark")
        raise StoreUnavailable("as in a test")

    names = registration(start, tmp_path, catalog, comment)
    names.at_rest()
    names.at_rest()
    assert started == ["Spark"] * starts


def test_a_spark_that_has_ended_is_told_of_a_table_at_rest_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = Mock(side_effect=Py4JError("its JVM is gone"))
    monkeypatch.setattr("silverfold.pipelines.applying.registration.active_session", asked)
    monkeypatch.setattr("silverfold.pipelines.spark.session.has_ended", lambda: True)
    with pytest.raises(SparkUnavailable):
        registration(Mock(), tmp_path, "lake", "of ours").at_rest()


@pytest.mark.parametrize("look", [Registration.after_cut, Registration.at_rest])
def test_a_table_with_a_comment_is_looked_at_where_spark_runs_and_an_interrupt_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Registration], None]
):
    session = Mock()
    session.catalog.tableExists.side_effect = Py4JError("[SPARK_JOB_CANCELLED] Job 27 cancelled")
    monkeypatch.setattr("silverfold.pipelines.applying.registration.active_session", lambda: session)
    names = registration(lambda: session, tmp_path, "lake", "of ours")
    vars(names.silver)["session"] = session  # as if it had been opened

    assert logged(lambda: look(names)) == []
    session.catalog.tableExists.assert_called_once_with(f"`lake`.`{STREAM}`")
