"""The build command: what its exit code says."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

import silverfold.pipelines.applying.build
import silverfold.pipelines.spark.session
from silverfold.conf.errors import ExpectationFailed
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build
from silverfold.connectors.frames import Kind
from silverfold.jobs import cli
from silverfold.jobs.common.context import Invocation
from silverfold.pipelines.applying.build import Step
from silverfold.pipelines.applying.run import BuildReport, BuiltFeed, BuiltTable, TableFault, run
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import record
from silverfold.pipelines.storage.remove_tree import remove_tree
from tests.pipelines.storage.test_cuts import CUT
from tests.support.deephaven.landed_history import LandedHistory

NOW = datetime(2026, 5, 1, tzinfo=UTC)

FEED = """
connector = "deephaven"
address = "unused:1"
[tables.quotes]
source = "Quotes"
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/market.toml").write_text(FEED)
    return tmp_path


def test_a_table_that_holds_is_told_by_the_exit_code(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    places = Places(str(conf / "lake"))
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    history = LandedHistory({"quotes": {"_position": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"_position": 0}})
    history.land(places.bronze("market"), "market")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    expected = "silverfold: quotes holds: quotes: the source has a column _position, which is a name of ours\n"
    assert (ended.value.code, capsys.readouterr().out) == (1, expected)

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market", "--json"])

    built = json.loads(capsys.readouterr().out)
    (quotes,) = built["feeds"][0]["tables"]
    assert (ended.value.code, built["complete"], quotes["position"]) == (1, False, None)
    assert quotes["fault"] == {
        "error_class": "SCHEMA_DRIFT",
        "reason": "quotes: the source has a column _position, which is a name of ours",
        "retryable": False,
        "position": None,
    }


def test_a_build_with_nothing_to_do_starts_no_spark(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def start(*_: object, **__: object) -> None:
        raise AssertionError("there is nothing to apply")

    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    monkeypatch.setattr(silverfold.pipelines.spark.session, "start_spark", start)
    history = LandedHistory({"quotes": {"Sym": "String"}})
    history.connect()
    history.begin("quotes", Kind.SNAPSHOT)  # it has not come whole
    history.land(Places(str(conf / "lake")).bronze("market"), "market")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    assert (ended.value.code, capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize("made_whole", [False, True])
def test_a_commit_of_silver_that_a_power_cut_emptied_is_told_until_all_is_made_anew(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made_whole: bool
):
    places = Places(str(conf / "lake"))
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    LandedHistory({"quotes": {"Sym": "String"}}).land(places.bronze("market"), "market")
    silver = Path(places.silver("market", "quotes").url)
    for n in range(3):
        write_deltalake(silver, pa.table({"n": [n]}), mode="append")
    (silver / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    if made_whole:
        record(places, "market", replace(CUT, delta_version=2, replaced=True))

    with pytest.raises(SystemExit):
        cli.main(["--conf", str(conf), "build", "market"])

    assert ('"a commit is an empty file: rows may be missing"' in capsys.readouterr().err) == (not made_whole)


def test_a_cut_that_is_not_small_starts_spark_before_anything_else(conf: Path, monkeypatch: pytest.MonkeyPatch):
    class Started(Exception):
        """Spark is asked for. Tests without Spark run before it is there: to name a column would fail."""

    def start() -> SparkSession:
        raise Started

    places = Places(str(conf / "lake"))
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 1}})
    history.land(places.bronze("market"), "market")
    monkeypatch.setattr("silverfold.pipelines.applying.cut_job.read_cut", lambda *_: None)
    connector, feed = Invocation(conf_dir=conf, env="local").feed("market", load_settings(conf, "local", {}))
    building = silverfold.pipelines.applying.build.FeedBuild.open(
        start, load_settings(conf, "local", {}), connector, feed, places=places
    )
    building.refresh()

    with pytest.raises(Started):
        building.step("quotes")


def test_a_build_says_that_nothing_has_landed(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (0, "")
    entry = json.loads(output.err)
    assert entry["event"] == f"nothing has landed for feed market in {conf}/lake/bronze/market"
    assert (entry["level"], entry["advice"]) == ("warning", "start `silverfold receive` (again)")


def test_a_build_says_that_bronze_ends_before_its_tables(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    land(conf, "market", "Qty")
    with suppress(SystemExit):
        cli.main(["--conf", str(conf), "build", "market"])
    capsys.readouterr()
    remove_tree(Places(str(conf / "lake")).bronze("market"))

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    assert ended.value.code == 1
    assert '"bronze of feed market ends before the position that its tables have reached"' in capsys.readouterr().err


def land(conf: Path, feed: str, *columns: str) -> None:
    """Land a table of one row for a feed, and its settings."""
    (conf / f"feeds/{feed}.toml").write_text(FEED)
    history = LandedHistory({"quotes": dict.fromkeys(columns, "Long")})
    history.connect()
    history.snapshot("quotes", {1: dict.fromkeys(columns, 7)})
    history.land(Places(str(conf / "lake")).bronze(feed), feed)


def test_several_feeds_are_built_in_one_session_and_one_that_holds_harms_no_other(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    land(conf, "market", "_position")
    land(conf, "shop", "Qty")
    land(conf, "store", "Qty")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "--all"])

    expected = "silverfold: market.quotes holds: quotes: the source has a column _position, which is a name of ours\n"
    assert (ended.value.code, capsys.readouterr().out) == (1, expected)
    places = Places(str(conf / "lake"))
    rows = {
        feed: spark.read.format("delta").load(places.silver(feed, "quotes").url).count() for feed in ("shop", "store")
    }
    assert rows == {"shop": 1, "store": 1}


def test_a_feed_whose_tables_cannot_be_read_is_told_and_the_others_are_built(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    land(conf, "market", "Qty")
    land(conf, "shop", "Qty")
    for file in (conf / "lake/bronze/market").glob("*.parquet"):
        file.write_bytes(b"")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "--all"])

    output = capsys.readouterr()
    assert ended.value.code == 3, output
    assert "feed cannot be read" in output.err + output.out
    assert spark.read.format("delta").load(Places(str(conf / "lake")).silver("shop", "quotes").url).count() == 1


def test_a_table_that_cannot_be_read_is_told_and_the_others_of_its_feed_are_built(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    feed = conf / "feeds" / "market.toml"
    feed.write_text(feed.read_text() + '[tables.trades]\nsource = "Trades"\n')
    history = LandedHistory({"quotes": {"Qty": "Long"}, "trades": {"Qty": "Long"}})
    history.connect()
    for stream in ("quotes", "trades"):
        history.snapshot(stream, {1: {"Qty": 7}})
    places = Places(str(conf / "lake"))
    history.land(places.bronze("market"), "market")
    log = Path(places.silver("market", "quotes").url) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("garbage")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    output = capsys.readouterr()
    assert ended.value.code == 3, output
    assert "silver/market/quotes" in output.err
    assert spark.read.format("delta").load(places.silver("market", "trades").url).count() == 1


@dataclass
class ScriptedBuild:
    """A build of one table whose steps are told in advance."""

    steps: list[Step]
    feed = SimpleNamespace(name="market")
    settings = SimpleNamespace(build=Build())
    tables = ("quotes",)
    landed = 0

    def refresh(self) -> None:
        pass

    def step(self, _: str) -> Step:
        return self.steps.pop(0)


def test_a_table_that_is_tried_by_halves_goes_on_only_when_something_is_applied() -> None:
    longer, shorter = (ExpectationFailed(reason, table="quotes") for reason in ("small: 6", "small: 1"))
    halved = Step("quotes", None, unfinished=True)
    held = [Step("quotes", None, error=shorter, unfinished=True), Step("quotes", None, error=shorter)]
    steps = [Step("quotes", None, error=longer, unfinished=True), halved, *held]

    with capture_logs() as logged:
        faults = run([ScriptedBuild(steps)])  # type: ignore[list-item]  # scripted

    assert faults == {("market", "quotes"): shorter}
    assert [entry["event"] for entry in logged if entry["log_level"] != "debug"] == ["table holds"]


class Stopped(ScriptedBuild):
    """A build that is stopped within its first step."""

    stop: threading.Event

    def step(self, _: str) -> Step:
        self.stop.set()
        return self.steps.pop(0)


def test_a_build_that_is_stopped_before_its_end_says_so(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, stop: threading.Event, **__: object) -> BuildReport:
        stop.set()
        return BuildReport(at=NOW, warehouse="w", complete=False, interrupted=True, feeds=())

    monkeypatch.setattr("silverfold.pipelines.applying.run.build_feeds", stopped)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market", "--json"])

    output = capsys.readouterr()
    assert (ended.value.code, json.loads(output.out)["interrupted"]) == (130, True)
    assert output.err == "silverfold: interrupted: what had landed may not all be built\n"


def test_a_stopped_run_begins_no_further_step() -> None:
    build = Stopped([Step("quotes", None, unfinished=True), Step("quotes", None)])
    build.stop = threading.Event()

    assert run([build], build.stop) == {}  # type: ignore[list-item]  # scripted

    assert len(build.steps) == 1


def test_cuts_are_counted_by_table() -> None:
    cut = replace(CUT, updates=2, inserted=3, updated=1, deleted=1)
    steps = [
        Step("quotes", None, applied=cut, unfinished=True),
        Step("quotes", None, applied=cut),
        Step("quotes", None),
    ]
    counts: dict[tuple[str, str], Counter[str]] = {}

    run([ScriptedBuild(steps)], counts=counts)  # type: ignore[list-item]  # scripted

    assert counts == {
        ("market", "quotes"): Counter({"cuts": 2, "updates": 4, "inserted": 6, "updated": 2, "deleted": 2})
    }


def test_the_keys_for_scripts_stay():
    fault = TableFault(error_class="STORE_UNAVAILABLE", reason="no", retryable=True, position=None)
    table = BuiltTable(table="t", position=3, cuts=1, updates=1, inserted=1, updated=0, deleted=0, fault=fault)
    feed = BuiltFeed(feed="market", landed_position=3, tables=(table,))
    built = BuildReport(at=NOW, warehouse="w", complete=False, interrupted=False, feeds=(feed,)).model_dump()

    assert list(built) == ["at", "warehouse", "complete", "interrupted", "feeds"]
    assert list(built["feeds"][0]) == ["feed", "landed_position", "tables"]
    counted = ["cuts", "updates", "inserted", "updated", "deleted"]
    assert list(built["feeds"][0]["tables"][0]) == ["table", "position", *counted, "fault"]
    assert list(built["feeds"][0]["tables"][0]["fault"]) == ["error_class", "reason", "retryable", "position"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "command line: FEED: found nothing, allowed: names of feeds, or --all"),
        (["market", "--all"], "command line: FEED: found 'names and --all', allowed: names of feeds, or --all"),
        (["market", "none"], "none"),
    ],
)
@pytest.mark.parametrize("command", ["build", "receive"])
def test_which_feeds_must_be_said(
    conf: Path, capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], message: str
):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), command, *arguments])

    assert ended.value.code == 2
    assert message in capsys.readouterr().err
