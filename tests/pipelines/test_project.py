"""The Python API: what a notebook sees, and that nothing of it reaches what is the notebook's own."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

import silverfold
from silverfold.conf.errors import ConfigError, QueryFailed, SilverfoldError, SparkUnavailable, StoreUnavailable
from silverfold.pipelines.project import Following
from tests.support.project_folder import bronze_of, quotes, write_project

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the settings of a feed in ``my``; nothing has landed."""
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def land(folder: Path) -> None:
    """Land a snapshot of two rows, then an update of one, up to position 9."""
    history = quotes()
    history.snapshot("quotes", {1: {"Sym": "AAPL", "Bid": 10}, 2: {"Sym": "IBM", "Bid": 20}})
    history.update("quotes", modified={1: {"Bid": 11}})
    history.land(bronze_of(folder / "warehouse"), "market")


def test_every_public_name_is_there_and_documented():
    assert len(silverfold.__all__) <= 8
    for name in silverfold.__all__:
        assert getattr(silverfold, name).__doc__
        assert name in dir(silverfold)
    with pytest.raises(AttributeError, match="has no attribute 'open_projects'"):
        silverfold.open_projects  # noqa: B018 - to look it up is the test


def test_importing_it_loads_nothing_and_status_and_verify_need_no_spark(project_folder: Path):
    program = """
import sys, silverfold
assert not {"pyspark", "pydantic", "silverfold.connectors", "silverfold.pipelines"} & set(sys.modules)
project = silverfold.open_project("my")
print(project.feeds, project.status().feeds[0].landed_position, project.verify("market").equal)
assert not {"pyspark", "typer", "silverfold.jobs"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, cwd=project_folder
    )
    assert (done.stdout, done.stderr) == ("('market',) None False\n", "")


def test_what_is_not_in_the_settings_is_refused_by_its_name(project_folder: Path):
    project = silverfold.open_project("my")
    for call in (
        lambda: project.build("shop"),
        lambda: project.follow("shop"),
        lambda: project.verify("market", tables=["trades"]),
        lambda: project.status("shop"),
        lambda: project.rebuild("market", "trades"),
        lambda: silverfold.open_project("nowhere"),
        lambda: silverfold.open_project(environ={}).build(),
    ):
        with pytest.raises(ConfigError):
            call()


def test_the_folder_is_that_of_the_environment_if_none_is_given(project_folder: Path):
    assert silverfold.open_project(environ={"SILVERFOLD_CONF": "my"}).feeds == ("market",)


def test_a_build_prints_nothing_and_tells_the_standard_librarys_loggers(
    project_folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    built = silverfold.open_project("my").build("market")

    assert built.complete
    assert [(feed.feed, feed.landed_position) for feed in built.feeds] == [("market", None)]
    assert capsys.readouterr() == ("", "")
    assert [record.name for record in caplog.records] == ["silverfold.build"]
    assert "nothing has landed for feed market" in caplog.records[0].getMessage()
    assert caplog.records[0].levelno == logging.WARNING


def test_what_ends_a_following_build_is_raised_where_it_is_stopped():
    def fail(_: threading.Event) -> Any:
        raise StoreUnavailable("gone")

    following = Following(fail)
    with pytest.raises(StoreUnavailable, match="gone"):
        following.stop()
    assert not following.is_running


@pytest.fixture
def caller(spark: SparkSession) -> Iterator[SparkSession]:
    """A notebook's session, which is the active one and whose settings are not ours."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", "America/New_York")
    mine.createDataFrame([], "nothing int")  # makes it the active one
    yield mine
    spark.createDataFrame([], "nothing int")


def test_the_readmes_notebook_runs_as_printed_and_leaves_the_session_as_it_was(
    caller: SparkSession, project_folder: Path, capsys: pytest.CaptureFixture[str]
):
    land(project_folder)
    page = README.read_text(encoding="utf-8")
    (notebook,) = re.findall(r"^```\n(import silverfold\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    before, handlers = caller.conf.getAll, list(logging.getLogger().handlers)

    found: dict[str, Any] = {}
    exec(notebook, found)

    assert notebook.count("\n") <= 12
    assert capsys.readouterr().out.startswith("quotes 9 None\n")
    assert SparkSession.getActiveSession() is caller
    assert (caller.conf.getAll, caller.catalog.listTables()) == (before, [])
    assert logging.getLogger().handlers == handlers
    rows = found["quotes"]
    assert rows.sparkSession is caller
    assert sorted((row["Sym"], row["Bid"]) for row in rows.collect()) == [("AAPL", 11), ("IBM", 20)]


def test_a_table_is_read_as_of_now_a_position_or_a_time(caller: SparkSession, project_folder: Path):
    land(project_folder)
    project = silverfold.open_project("my", spark=caller)
    for name in ("quotes", "market__quotes"):
        with pytest.raises(QueryFailed, match="not built yet"):
            project.read(name)
    with pytest.raises(QueryFailed, match="there is no table trades; tables: market__quotes, quotes"):
        project.read("trades")
    before = datetime.now(UTC)
    project.build()

    assert project.read("quotes").count() == 2
    assert project.read("Market__Quotes", at=9, feed="market").count() == 2
    assert project.read("quotes", at=datetime.now(UTC).replace(tzinfo=None)).count() == 2
    for at, why in (
        (10, "no position 10"),
        (8, "no cut at or before position 8"),
        (before, "was not built yet"),
        (before + timedelta(days=1), "has not come"),
    ):
        with pytest.raises(QueryFailed, match=why):
            project.read("quotes", at=at)


class WithoutDelta:
    """Answers as a session without Delta's extension, whose parser knows no OPTIMIZE."""

    version = "4.1.0"

    def sql(self, _statement: str) -> None:
        raise ParseException("Syntax error at or near 'OPTIMIZE'", errorClass="PARSE_SYNTAX_ERROR")


def test_a_session_without_delta_is_refused_by_one_line(project_folder: Path):
    land(project_folder)
    session: Any = WithoutDelta()
    project = silverfold.open_project("my", spark=session)
    for work in (project.build, lambda: project.read("quotes")):
        with pytest.raises(SparkUnavailable, match=f"^{re.escape(LACKS_DELTA)}") as refused:
            work()
        assert "\n" not in str(refused.value)


LACKS_DELTA = "the running Spark session lacks Delta: start it with spark.jars.packages = io.delta:delta-spark_"
NO_DELTA = """
import silverfold
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
project = silverfold.open_project("my")
for work in (project.build, lambda: project.read("quotes")):
    try:
        work()
    except silverfold.SilverfoldError as error:
        print(error)
print(spark.range(3).count())
"""


@pytest.mark.nightly  # it takes a JVM without Delta's JARs
@pytest.mark.spark
def test_a_true_session_without_delta_is_refused_and_lives_on(project_folder: Path):
    """By day the session above answers as one."""
    land(project_folder)
    done = subprocess.run(
        [sys.executable, "-c", NO_DELTA], capture_output=True, text=True, check=False, timeout=300, cwd=project_folder
    )
    lines = [line[: len(LACKS_DELTA)] for line in done.stdout.splitlines()]
    assert lines == [LACKS_DELTA, LACKS_DELTA, "3"], done.stderr


def test_all_errors_have_one_base():
    assert silverfold.SilverfoldError is SilverfoldError
