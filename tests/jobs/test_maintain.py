"""The maintain command: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import silverfold.pipelines.upkeep.maintain
from silverfold.conf.errors import StoreUnavailable
from silverfold.jobs import cli
from silverfold.pipelines.places import Places
from tests.support.deephaven.landed_history import LandedHistory


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A feed that has landed something and built nothing."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/market.toml").write_text(
        'connector = "deephaven"\naddress = "unused:1"\n[tables.quotes]\nsource = "Quotes"\n'
    )
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path / "lake"))
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.land(Places(str(tmp_path / "lake")).bronze("market"), "market")
    return tmp_path


def exits(conf: Path, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "maintain", "market", *arguments])
    return left.value.code


def test_it_tells_what_it_does_to_each_table(spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str]):
    assert exits(conf) == 0
    assert capsys.readouterr().out == (
        "bronze/market: nothing to drop: quotes is not built: it needs every frame\n"
        "bronze/market: 0 files joined\n"
        "bronze/market: 0 files removed\n"
    )

    assert exits(conf, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["at", "warehouse", "feed", "dry_run", "complete", "steps"]
    assert (found["dry_run"], found["complete"]) == (True, True)
    reason = "nothing to drop: quotes is not built: it needs every frame"
    assert found["steps"][0] == {"table": "bronze/market", "result": reason, "failed": False}


def test_what_cannot_be_done_this_time_is_told_by_the_exit_code(
    spark: SparkSession, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def unavailable(*_: object) -> None:
        raise StoreUnavailable("full")

    monkeypatch.setattr(silverfold.pipelines.upkeep.maintain, "compact", unavailable)

    assert exits(conf) == 3
    assert "bronze/market: left for the next run: full\n" in capsys.readouterr().out
