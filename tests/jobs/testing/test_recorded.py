"""Records of landed frames, and silver built from them; one build shows most of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from silverfold.conf.errors import ConfigError, QueryFailed
from silverfold.jobs.testing.recorded import in_warehouse
from silverfold.pipelines.landing.bronze import last_position, read_whole_frames
from silverfold.pipelines.landing.bronze_table import SCHEMA, create, lost_from, note_lost, retained_from, retention_id
from silverfold.pipelines.landing.dropped import Dropped, dropped_of
from silverfold.pipelines.places import Place
from silverfold.pipelines.project import Project, open_project
from silverfold.testing import SilverFeed, assert_silver_equals, build_recorded, record
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.project_folder import QUOTES, bronze_of, quotes, write_project

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: settings in ``my``; frames 0 to 10, of which the last update is 8 to 10."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    history = quotes(Ask="Long")
    history.snapshot("quotes", {1: {"Sym": "AAPL", "Bid": 10, "Ask": 12}, 2: {"Sym": "IBM", "Bid": 20, "Ask": 23}})
    history.update("quotes", modified={1: {"Bid": 11}})
    history.land(bronze_of(tmp_path / "warehouse"), "market")
    return tmp_path


def frames(place: Place) -> pa.Table:
    return pa.Table.from_batches(read_whole_frames(place, last=1 << 40), SCHEMA)


def test_a_record_is_one_small_file_with_the_same_frames(landed: Path):
    folder = landed / "tests" / "market"

    assert record("my", "market", folder) == 10

    assert frames(Place(str(folder))) == frames(bronze_of(landed / "warehouse"))
    assert last_position(Place(str(folder)), "market") == 10
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    assert sorted(file.suffix for file in files) == [".json", ".json", ".parquet"]
    assert sum(file.stat().st_size for file in files) < 10_000


def test_a_record_may_end_before_the_newest_frame(landed: Path):
    assert record("my", "market", "earlier", last=7) == 7
    assert frames(Place("earlier"))["frame_seq"].to_pylist() == list(range(8))
    assert last_position(Place("earlier"), "market") == 7


@pytest.mark.parametrize("last", [5.5, "5", True, 11])
def test_what_is_not_the_position_of_a_frame_ends_no_record(landed: Path, last: Any):
    with pytest.raises(ConfigError, match=f"last: found {last!r}, allowed: a position from 0 to 10"):
        record("my", "market", "half", last=last)
    assert not Path("half").exists()


def test_a_record_that_is_too_large_is_refused_with_the_position_up_to_which_it_is_not(landed: Path):
    sizes = [200 + len(body) for body in frames(bronze_of(landed / "warehouse"))["body"].to_pylist()]
    most = sum(sizes[:5])
    with pytest.raises(ConfigError, match=f"max_bytes: found {most}, allowed: more, or last=4: the frames after"):
        record("my", "market", "small", max_bytes=most)
    assert not Path("small").exists()
    assert record("my", "market", "small", last=4, max_bytes=most) == 4


def test_what_cannot_be_recorded_is_refused(landed: Path):
    record("my", "market", "there")
    for arguments, options, why in (
        (("my", "shop", "new"), {}, "feeds: found 'shop'"),
        (("my", "market", "there"), {}, "folder: found 'there', allowed: one that is not there yet"),
        (("my", "market", "new"), {"last": 11}, "last: found 11, allowed: a position from 0 to 10"),
        (("my", "market", "new"), {"last": -1}, "last: found -1"),
    ):
        with pytest.raises(ConfigError, match=why):
            record(*arguments, **options)
    write_project(landed / "empty", settings='warehouse = "nothing"\n')
    with pytest.raises(ConfigError, match=r"feed: found 'market', allowed: one of which .*/nothing/bronze/market has"):
        record(landed / "empty" / "my", "market", "new")


def test_a_record_knows_what_bronze_dropped_and_lost(landed: Path):
    bronze = bronze_of(landed / "warehouse")
    dropped = Dropped(floor=3, complete=-1, begins=2)
    known = [Transaction(retention_id("market"), 3), *dropped.transactions("market", "quotes")]
    properties = CommitProperties(app_transactions=known)
    table = create(bronze)
    write_deltalake(table, SCHEMA.empty_table(), mode="append", commit_properties=properties)
    note_lost(table, 6, 6)
    note_lost(table, 9, 20)

    record("my", "market", "copy", last=10)

    copy = Place("copy")
    assert (retained_from(copy, "market"), dropped_of(copy, "market", "quotes")) == (3, dropped)
    assert lost_from(copy) == [(6, 6), (9, 10)]


def test_what_cannot_be_built_is_refused(landed: Path):
    record("my", "market", "market")
    session: Any = None
    for folder, warehouse, stops, why in (
        ("nothing", "new", (), "folder: found 'nothing', allowed: a record of the feed market"),
        (
            "market",
            "warehouse",
            (),
            "warehouse: found 'warehouse', allowed: a folder without tables of the feed market",
        ),
        ("market", "new", (3, 11), "stops: found 11, allowed: positions from 0 to 10"),
        ("market", "new", (5.0,), r"stops: found 5\.0, allowed: positions from 0 to 10"),
    ):
        with pytest.raises(ConfigError, match=why):
            build_recorded(session, "my", "market", folder, warehouse, stops=stops)


def test_the_readmes_test_runs_as_printed(spark: SparkSession, landed: Path, tmp_path: Path):
    page = README.read_text(encoding="utf-8")
    (command,) = re.findall(r"^python -c '(from silverfold\.testing .*)'$", page, re.MULTILINE)
    (program,) = re.findall(r"^```\n(import pyspark.*?def test_spreads.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert program.count("\n") <= 15
    names: dict[str, Any] = {}

    exec(command)
    exec(program, names)
    names["test_spreads"](spark, tmp_path / "tables")


TABLES = """
[tables.quotes]
source = "Quotes"
stored_as_scd_type = 2
[tables.rated]
source = "Quotes"
keys = ["Sym"]
expect = { bid_positive = { condition = "Bid > 0", action = "quarantine" } }
[tables.strict]
source = "Quotes"
expect = { bid_positive = { condition = "Bid > 0", action = "fail" } }
"""

ELSEWHERE = """
storage_options = { key = { env = "NOT_THERE" } }
spark = { "spark.key" = { env = "NOT_THERE" } }
"""
"""Settings of another store, and secrets that are not on this machine."""


@pytest.fixture(scope="module")
def market_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SilverFeed]:
    """Three tables of the same rows, built at `LAST_SNAPSHOT` and after all: then the bid of AAPL is negative."""
    folder = tmp_path_factory.mktemp("project")
    conf = write_project(folder, TABLES, settings=ELSEWHERE)
    history = LandedHistory({name: {"Sym": "String", "Bid": "Long"} for name in ("quotes", "rated", "strict")})
    history.connect()
    for name in history.columns:
        history.snapshot(name, {1: {"Sym": "AAPL", "Bid": 10}, 2: {"Sym": "IBM", "Bid": 20}})
    for name in history.columns:
        history.update(name, modified={1: {"Sym": "AAPL", "Bid": -1}})
    history.land(bronze_of(folder / "landed"), "market")
    bronze = bronze_of(folder / "landed").url
    return build_recorded(spark, conf, "market", bronze, folder / "warehouse", stops=[LAST_SNAPSHOT], may_hold=True)


LAST_SNAPSHOT = 16
"""Positions 0 to 4 the connection, then a snapshot of each table in 4 frames, then an update of each in 4."""


def test_a_table_is_compared_as_of_now_or_a_stop(spark: SparkSession, market_built: SilverFeed):
    ibm = {"Sym": "IBM", "Bid": 20}
    assert_silver_equals(spark, market_built, "quotes", [ibm, {"Sym": "AAPL", "Bid": -1}])
    assert_silver_equals(spark, market_built, "quotes", [{"Sym": "AAPL", "Bid": 10}, ibm], at=LAST_SNAPSHOT)
    then = market_built.read("quotes", at=LAST_SNAPSHOT)
    assert {row["Sym"]: row["Bid"] for row in then.collect()} == {"AAPL": 10, "IBM": 20}
    with pytest.raises(AssertionError, match=r"^quotes of feed market at 16 has 1 rows \(left\)"):
        assert_silver_equals(spark, market_built, "quotes", [ibm], at=LAST_SNAPSHOT)


def test_histories_and_side_tables_are_compared_with_what_silverfold_adds_to_them(
    spark: SparkSession, market_built: SilverFeed
):
    versions = [
        {"Sym": "AAPL", "Bid": 10, "__START_AT": 8, "__END_AT": 20},
        {"Sym": "AAPL", "Bid": -1, "__START_AT": 20},
        {"Sym": "IBM", "Bid": 20, "__START_AT": 8},
    ]
    assert_silver_equals(spark, market_built, "quotes__history", versions)
    assert_silver_equals(
        spark, market_built, "quotes__history", [{"Sym": each["Sym"], "Bid": each["Bid"]} for each in versions]
    )
    side_row, added = {"Sym": "AAPL", "Bid": -1, "_reasons": ["bid_positive"]}, {"_row_key": 1, "_position": 23}
    assert_silver_equals(spark, market_built, "rated__aside", [side_row])
    with pytest.raises(AssertionError, match="lacks 1 that are"):
        assert_silver_equals(spark, market_built, "rated__aside", [side_row], engine_columns=True)
    assert_silver_equals(spark, market_built, "rated__aside", [{**side_row, **added}], engine_columns=True)
    assert_silver_equals(spark, market_built, "rated", [{"Sym": "IBM", "Bid": 20}])


def test_the_columns_of_a_side_table_are_known_without_the_rules_that_made_it(
    spark: SparkSession, market_built: SilverFeed
):
    settings = market_built.project.settings
    ruleless = settings.feeds["market"].model_copy(update={"tables": {"rated": {"source": "Quotes", "keys": ["Sym"]}}})
    project = Project(settings.model_copy(update={"feeds": {"market": ruleless}}))

    assert_silver_equals(spark, SilverFeed(project, "market"), "rated__aside", [{"Sym": "AAPL", "Bid": -1}])


def test_the_number_of_a_row_in_its_frame_is_compared_only_if_it_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    conf, compared = write_project(tmp_path), Mock()
    stream = 'connector = "sbe"\naddress = "h:1"\noptions = { schema = "builtin", framing = "sofh" }\n[tables.Trade]\n'
    (conf / "feeds" / "stream.toml").write_text(stream)
    monkeypatch.setattr("silverfold.pipelines.reading.tables.read_table", Mock())
    monkeypatch.setattr("silverfold.jobs.testing.rows.assert_rows_equal", compared)

    assert_silver_equals(Mock(), SilverFeed(open_project(conf), "stream"), "Trade", [])

    assert {"_position", "_ordinal"} <= compared.call_args.kwargs["optional"]


def test_why_a_table_holds_is_in_the_message(spark: SparkSession, market_built: SilverFeed):
    assert [*market_built.faults] == ["strict"]
    with pytest.raises(AssertionError, match=r"\nThe table holds: EXPECTATION_FAILED: .*bid_positive"):
        assert_silver_equals(spark, market_built, "strict", [{"Sym": "IBM", "Bid": 20}])


def test_what_is_not_there_cannot_be_compared(spark: SparkSession, market_built: SilverFeed):
    with pytest.raises(ConfigError, match="arguments: table: found 'trades', allowed: quotes, rated, strict"):
        assert_silver_equals(spark, market_built, "trades", [])
    with pytest.raises(QueryFailed, match="no position 99"):
        assert_silver_equals(spark, market_built, "quotes", [], at=99)


def test_without_chispa_it_is_said_what_to_install(market_built: SilverFeed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "chispa", None)
    with pytest.raises(ModuleNotFoundError, match=r"install silverfold\[testing\]"):
        assert_silver_equals(market_built.project._spark, market_built, "quotes", [])


def test_a_table_that_holds_fails_the_test_that_builds_it(spark: SparkSession, tmp_path: Path):
    rule = 'expect = { none = { condition = "Bid > 99", action = "fail" } }\n'
    conf = write_project(tmp_path, f'[tables.quotes]\nsource = "Quotes"\n{rule}')
    history = quotes()
    history.snapshot("quotes", {1: {"Sym": "AAPL", "Bid": 10}})
    history.land(bronze_of(tmp_path / "landed"), "market")

    with pytest.raises(AssertionError, match=r"^table quotes, built from .*, holds: EXPECTATION_FAILED: "):
        build_recorded(spark, conf, "market", bronze_of(tmp_path / "landed").url, tmp_path / "warehouse")


def test_a_test_registers_its_tables_in_no_catalog(tmp_path: Path):
    settings = open_project(write_project(tmp_path, f'catalog = "main.lake"\n{QUOTES}')).settings
    assert settings.feeds["market"].catalog == "main.lake"
    assert in_warehouse(settings, tmp_path).feeds["market"].catalog == ""


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("s3://b/x", "a folder on this machine"),
        ("~/x", "~ stands for nothing here"),
        ("a%20b", "without % in its path"),
    ],
)
def test_a_record_is_in_a_folder_in_which_tables_can_be(landed: Path, folder: str, allowed: str):
    before = {*landed.rglob("*")}
    with pytest.raises(ConfigError, match=f"arguments: folder: found '{folder}', allowed: .*{allowed}"):
        record("my", "market", folder)
    assert {*landed.rglob("*")} == before


def test_a_limit_that_the_first_frame_exceeds_is_refused_with_its_size(landed: Path):
    with pytest.raises(ConfigError, match=r"allowed: at least \d+, which the first frame takes"):
        record("my", "market", "small", max_bytes=10)
