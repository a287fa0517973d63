"""Which settings of Delta a table follows; `test_silver` shows on tables that it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import types as T
from structlog.testing import capture_logs

from silverfold.conf.errors import SchemaDrift
from silverfold.conf.model import Table
from silverfold.pipelines.applying.table_settings import follow_settings, properties_of
from silverfold.pipelines.places import Places
from silverfold.transforms.evolve import check_names


class Refusing:
    """A session that refuses every statement."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.statements = error or AnalysisException("this Spark cannot"), list[str]()

    def sql(self, statement: str) -> None:
        self.statements.append(statement)
        raise self.error


def follow(session: Any, folder: Path, table: Table, followed: set[str]) -> list[str]:
    """Let a table follow its settings; return the events that are logged."""
    places = Places(str(folder))
    write_deltalake(places.silver("market", "quotes").url, pa.table({"n": [1]}), mode="ignore")
    with capture_logs() as lines:
        follow_settings(session, places, "market", "quotes", table, followed=followed)
    return [line["event"] for line in lines]


@pytest.mark.parametrize("setting", [{"cluster_by": ("n",)}, {"change_data_feed": True}])
def test_a_setting_that_is_refused_is_logged_once_and_holds_no_rows(tmp_path: Path, setting: dict[str, Any]):
    session, table, followed = Refusing(), Table(source="q", **setting), set[str]()
    assert follow(session, tmp_path, table, followed) == ["a setting of the table cannot be followed"]
    assert follow(session, tmp_path, table, followed) == []
    assert len(session.statements) == 1


def test_a_statement_that_is_interrupted_is_tried_again_and_no_fault_of_the_setting(tmp_path: Path):
    cancelled = (
        "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 27 cancelled as part of cancellation of all jobs"
    )
    session, table, followed = Refusing(Py4JError(cancelled)), Table(source="q", change_data_feed=True), set[str]()
    assert follow(session, tmp_path, table, followed) == []
    assert follow(session, tmp_path, table, followed) == []
    assert len(session.statements) == 2


@pytest.mark.parametrize("setting", [{}, {"deletion_vectors": False}, {"change_data_feed": False}])
def test_a_table_that_has_what_is_set_is_left_alone(tmp_path: Path, setting: dict[str, Any]):
    session = Refusing()
    assert follow(session, tmp_path, Table(source="q", **setting), set()) == []
    assert session.statements == []


class Clustered(Refusing):
    """A session with a table that is clustered by some columns, named as DESCRIBE DETAIL does."""

    def __init__(self, *columns: str) -> None:
        super().__init__()
        self.columns = list(columns)

    def sql(self, statement: str) -> Any:
        self.statements.append(statement)
        return SimpleNamespace(select=lambda _: self, collect=list)

    def collect(self) -> list[tuple[list[str]]]:
        return [(self.columns,)]


def test_a_clustering_column_with_a_name_in_quotes_is_the_one_that_is_set(tmp_path: Path):
    session = Clustered("`c d`", "`e``f`", "n")
    assert follow(session, tmp_path, Table(source="q", cluster_by=("c d", "e`f", "N")), set()) == []
    assert [statement for statement in session.statements if statement.startswith("ALTER")] == []


def test_what_is_not_set_is_left_to_sessions_and_users():
    assert properties_of(Table(source="q")) == {}
    assert properties_of(Table(source="q", deletion_vectors=True)) == {"delta.enableDeletionVectors": "true"}


@pytest.mark.parametrize("columns", [("a", "A"), ("a", " "), ("a", "b", "c", "d", "e")])
def test_a_table_is_clustered_by_up_to_four_columns(columns: tuple[str, ...]):
    with pytest.raises(ValidationError):
        Table(source="q", cluster_by=columns)


def test_a_change_feed_has_columns_of_its_own():
    row = T.StructType().add("_Change_Type", T.StringType())
    check_names(row, reserved=Table(source="q").reserved_names, table="t")
    with pytest.raises(SchemaDrift, match="which is a name of Delta's"):
        check_names(row, reserved=Table(source="q", change_data_feed=True).reserved_names, table="t")
