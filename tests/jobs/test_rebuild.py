"""The rebuild command: what it says, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from silverfold.jobs import cli
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.places import Places
from tests.support.deephaven.landed_history import LandedHistory


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/market.toml").write_text(
        'connector = "deephaven"\naddress = "unused:1"\n[tables.quotes]\nsource = "Quotes"\n'
    )
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path / "lake"))
    return tmp_path


def exits(conf: Path, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "rebuild", "market", *arguments])
    return left.value.code


def test_a_table_is_rebuilt_where_there_is_something_to_build_from(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str]
):
    nothing = exits(conf, "quotes"), capsys.readouterr().out
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 5}})
    history.land(Places(str(conf / "lake")).bronze("market"), "market")
    something = exits(conf, "quotes"), capsys.readouterr().out

    again = exits(conf, "quotes", "--json"), json.loads(capsys.readouterr().out)

    message = "silverfold: quotes was not rebuilt, it stands as it was: quotes: nothing to build it from has landed\n"
    assert nothing == (1, message)
    assert something == (0, "quotes: rebuilt from 1 update; position 5, version 0\n")
    assert again[0] == 0
    begins = ["at", "warehouse", "feed", "table", "rebuilt", "error_class", "reason", "position", "delta_version"]
    assert list(again[1]) == [*begins, "updates", "history_begins_at", "base_position", "damaged_logs"]
    assert (again[1]["rebuilt"], again[1]["position"], again[1]["delta_version"]) == (True, 5, 1)


def test_a_table_that_cannot_be_rebuilt_has_its_reason_in_the_object(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str]
):
    code, found = exits(conf, "quotes", "--json"), json.loads(capsys.readouterr().out)

    assert (code, found["rebuilt"], found["position"]) == (1, False, None)
    assert (found["error_class"], found["reason"]) == ("APPLY_ERROR", "quotes: nothing to build it from has landed")


def test_a_table_nobody_configured_is_wrong_use(conf: Path, capsys: pytest.CaptureFixture[str]):
    assert exits(conf, "quote") == 2
    assert "found 'quote', allowed: quotes" in capsys.readouterr().err


def test_a_frame_that_cannot_be_decoded_can_be_left_out_as_the_message_says(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str]
):
    """Nothing holds the table any more that `quarantine skip` could take: its quarantine was removed by hand."""
    places = Places(str(conf / "lake"))
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 5}})  # 3 to 5
    history.begin("quotes")
    history.inside("quotes", b"nonsense")
    history.end("quotes")
    history.update("quotes", modified={1: {"Qty": 6}})
    history.land(places.bronze("market"), "market")
    skipping = {"SILVERFOLD__FEEDS__MARKET__TABLES__QUOTES__ON_BAD_FRAME": "skip"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in skipping.items():
            environment.setenv(name, value)
        with pytest.raises(SystemExit):
            cli.main(["--conf", str(conf), "build", "market"])
    shutil.rmtree(conf / "lake" / "_silverfold" / "market" / "quarantine")

    refused = exits(conf, "quotes"), capsys.readouterr().out
    with pytest.MonkeyPatch.context() as environment:
        for name, value in skipping.items():
            environment.setenv(name, value)
        done = exits(conf, "quotes")

    assert refused[0] == 1
    assert 'with on_bad_frame = "skip" in the table\'s settings it is rebuilt without the frame\n' in refused[1]
    assert done == 0
    (row,) = spark.read.format("delta").load(places.silver("market", "quotes").url).collect()
    assert row["Qty"] == 6
    assert [(each.position, each.resolution) for each in quarantined(places, "market", "quotes")] == [(7, "skipped")]
