"""The build command: what its exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pipelines.spark
from connectors.base import Kind
from jobs import cli
from pipelines.places import Places
from tests.support.landed_history import LandedHistory

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

    said = "silverfold: quotes holds: quotes: the source has a column _position, which is a name of ours\n"
    assert (ended.value.code, capsys.readouterr().out) == (1, said)


def test_a_build_with_nothing_to_do_starts_no_spark(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def start(*_: object, **__: object) -> None:
        raise AssertionError("there is nothing to apply")

    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    monkeypatch.setattr(pipelines.spark, "start_spark", start)
    history = LandedHistory({"quotes": {"Sym": "String"}})
    history.connect()
    history.begin("quotes", Kind.SNAPSHOT)  # it has not come whole
    history.land(Places(str(conf / "lake")).bronze("market"), "market")

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(conf), "build", "market"])

    assert (ended.value.code, capsys.readouterr().out) == (0, "")
