"""The verify command: its exit codes, what it prints, and what scripts depend on."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.registry import CONNECTORS
from silverfold.jobs import cli
from silverfold.jobs.verify import show
from silverfold.pipelines.holding.quarantine_log import Hold, hold
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze import last_position
from silverfold.pipelines.places import Places
from silverfold.pipelines.verifying.verify import (
    Difference,
    DifferingRange,
    TableVerification,
    Verdict,
    Verification,
    unknown,
)
from silverfold.pipelines.verifying.verify_log import last_verified
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.stub_connector import put
from tests.support.written_history import WrittenHistory
from tests.support.written_silver import write_silver

SCHEMA = pa.schema([("_row_key", pa.int64()), ("Qty", pa.int64()), ("_position", pa.int64())])


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A feed whose tables hold row 1 with 5; silver of quotes has it so, there is none of trades."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n'
        '[tables.quotes]\nsource = "Quotes"\n[tables.trades]\nsource = "Trades"\n'
    )
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path / "lake"))
    history = LandedHistory({"quotes": {"Qty": "Long"}, "trades": {"Qty": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 5}})
    places = Places(str(tmp_path / "lake"))
    history.land(places.bronze("market"), "market")
    write(tmp_path, 5)
    return tmp_path


def write(conf: Path, qty: int) -> None:
    row = {"_row_key": 1, "Qty": qty, "_position": 5}
    write_silver(Places(str(conf / "lake")), "market", "quotes", [row], position=6, schema=SCHEMA)


def exits(conf: Path, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "verify", "market", *arguments])
    return left.value.code


def printed_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_equal_tables_end_with_0(conf: Path, capsys: pytest.CaptureFixture[str]):
    assert exits(conf, "--json") == 0

    found = printed_json(capsys)
    assert (found["equal"], found["against"], found["feed"]) == (True, "bronze", "market")
    assert [(table["table"], table["verdict"]) for table in found["tables"]] == [
        ("quotes", "equal"),
        ("trades", "not_built"),
    ]


def test_what_was_found_is_recorded_for_reports_without_cells(conf: Path, capsys: pytest.CaptureFixture[str]):
    places = Places(str(conf / "lake"))
    assert exits(conf) == 0
    write(conf, 6)
    assert exits(conf, "--table", "quotes") == 1

    quotes, trades = last_verified(places, "market")

    assert (quotes.table, quotes.against, quotes.verdict, quotes.position) == ("quotes", "bronze", "different", 6)
    assert (quotes.found_rows, quotes.missing_rows, quotes.different_cells) == (1, 0, 1)
    assert (trades.table, trades.verdict, trades.found_rows) == ("trades", "not_built", None)
    assert trades.at < quotes.at
    assert capsys.readouterr().err == ""


def test_a_result_that_cannot_be_recorded_is_told_and_stands(conf: Path, capsys: pytest.CaptureFixture[str]):
    (conf / "lake/_silverfold").write_text("no folder")

    assert exits(conf) == 0

    output = capsys.readouterr()
    assert "quotes: equal" in output.out
    assert "reports will not show this" in output.err
    assert output.err.count("\n") == 1


def test_of_a_feed_that_has_nothing_nothing_is_recorded(conf: Path):
    shutil.rmtree(conf / "lake")
    assert exits(conf) == 1
    assert not (conf / "lake").exists()


def test_a_table_that_is_held_or_has_landed_and_is_not_built_ends_with_1(
    conf: Path, capsys: pytest.CaptureFixture[str]
):
    places, found_at = Places(str(conf / "lake")), datetime(2024, 5, 1, tzinfo=UTC)
    bad = Hold(position=9, update_position=9, error_class="UNDECODABLE_FRAME", reason="no", found_at=found_at)
    hold(places, "market", "quotes", bad)
    assert exits(conf, "--json", "--table", "quotes") == 1
    (quotes,) = printed_json(capsys)["tables"]
    assert (quotes["verdict"], quotes["reason"]) == ("equal", "it is held at position 9: UNDECODABLE_FRAME")

    assert exits(conf, "--table", "trades") == 0
    history = LandedHistory({"trades": {"Qty": "Long"}})
    history.connect()
    history.snapshot("trades", {1: {"Qty": 5}})
    history.land(places.bronze("market"), "market")
    capsys.readouterr()
    assert exits(conf, "--table", "trades") == 1
    assert "trades: not_built: frames of it have landed" in capsys.readouterr().out


def test_a_table_whose_builds_stop_at_a_hole_in_bronze_ends_with_1(conf: Path, capsys: pytest.CaptureFixture[str]):
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 6}})
    bronze = Places(str(conf / "lake")).bronze("market")
    batch = Batch(last_position(bronze, "market") + 4)
    for epoch, frame in history.frames:
        batch.add([frame], epoch, 1_700_000_000_000_000)
    write_deltalake(bronze.url, batch.prepare().table, mode="append")

    assert exits(conf, "--table", "quotes") == 1
    reason = "bronze of feed market lacks positions 7 to 9: put its files back"
    assert f"quotes: equal: {reason}" in capsys.readouterr().out.replace("\n", " ")
    (conf / "lake/silver/market/trades/_delta_log").mkdir(parents=True)
    (conf / "lake/silver/market/trades/_delta_log/00000000000000000000.json").write_text("{")
    assert exits(conf, "--table", "quotes") == 1, "whatever becomes of the others"


def test_a_difference_ends_with_1_and_is_named(conf: Path, capsys: pytest.CaptureFixture[str]):
    write(conf, 6)

    assert exits(conf, "--json") == 1

    (quotes, _) = printed_json(capsys)["tables"]
    assert quotes["differences"] == [{"key": {"_row_key": 1}, "column": "Qty", "expected": 5, "found": 6}]


def test_a_history_is_verified_beside_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(CONNECTORS, "told", "tests.support.stub_connector")
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path / "lake"))
    (tmp_path / "feeds").mkdir()
    settings = 'connector = "told"\n[tables.t]\nsource = "T"\nstored_as_scd_type = 2\n'
    (tmp_path / "feeds/told.toml").write_text(settings)
    written = WrittenHistory(tmp_path / "lake")
    written.source.connect()
    written.source.begin_snapshot()
    written.source.snapshot_rows([put(1, "x", op="snapshot")])
    written.source.end_snapshot()
    written.source.land()
    written.write([(1, "x", 2)], 3)
    written.keep([(1, "altered", 2, None)], 3)

    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(tmp_path), "verify", "told", "--table", "t"])

    output = capsys.readouterr().out
    assert left.value.code == 1
    assert "t: equal: 1 row at position 3, version 0; bronze says 1\n" in output
    assert "t__history: different: 1 row at position 3, version 0; bronze says 1; 1 cell differs\n" in output


def test_a_warehouse_in_which_nothing_has_landed_is_named(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", "/nowhere/lake")

    assert exits(conf) == 1

    assert "trades: not_built: nothing has landed for feed market in /nowhere/lake\n" in capsys.readouterr().out
    assert not Path("/nowhere").exists()


def test_one_table_can_be_chosen(conf: Path, capsys: pytest.CaptureFixture[str]):
    write(conf, 6)

    assert exits(conf, "--table", "trades", "--json") == 0
    assert [table["table"] for table in printed_json(capsys)["tables"]] == ["trades"]


def test_a_table_nobody_configured_is_wrong_use(conf: Path, capsys: pytest.CaptureFixture[str]):
    assert exits(conf, "--table", "quote") == 2
    assert "found 'quote', allowed: quotes, trades" in capsys.readouterr().err


def test_a_table_whose_files_are_gone_ends_with_3_and_keeps_no_other_from_being_verified(
    conf: Path, capsys: pytest.CaptureFixture[str]
):
    for file in (conf / "lake/silver/market/quotes").glob("*.parquet"):
        file.unlink()
    way_on = "else `silverfold rebuild market quotes` makes it anew"

    assert exits(conf, "--json") == 3
    quotes, trades = printed_json(capsys)["tables"]
    assert (quotes["verdict"], trades["verdict"]) == ("unknown", "not_built")
    assert way_on in quotes["reason"]

    assert exits(conf, "--table", "quotes") == 3
    assert way_on in capsys.readouterr().out.replace("\n", " ")


def test_a_source_that_cannot_be_reached_ends_with_3(conf: Path, capsys: pytest.CaptureFixture[str]):
    assert exits(conf, "--against-source") == 3
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_table_whose_source_sends_what_cannot_be_read_keeps_no_other_from_being_asked(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def watched(*given: object, **_: object) -> TableVerification:
        if given[-1] == "quotes":
            raise InvalidValue("value is not utf-8", reason="not_utf8")
        return unknown(str(given[-1]), None, verdict=Verdict.NOT_BUILT)

    monkeypatch.setattr("silverfold.pipelines.verifying.verify_feed.verify_against_source", watched)
    assert exits(conf, "--against-source", "--json") == 1
    assert [(table["verdict"], table["reason"]) for table in printed_json(capsys)["tables"]] == [
        ("unknown", "not_utf8: value is not utf-8"),
        ("not_built", None),
    ]


def test_the_command_never_loads_spark(conf: Path):
    program = (
        "import sys\nfrom silverfold.jobs import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "sys.exit(3 if 'pyspark' in sys.modules else 0)"
    )

    ran = subprocess.run([sys.executable, "-c", program, "--conf", conf, "verify", "market"], check=False, timeout=60)

    assert ran.returncode == 0


FOUND = Verification(
    at=datetime(2024, 5, 1, tzinfo=UTC),
    warehouse="/data",
    feed="market",
    against="bronze",
    equal=False,
    tables=(
        TableVerification(
            table="quotes",
            verdict=Verdict.DIFFERENT,
            reason=None,
            position=90,
            delta_version=7,
            folded_from=3,
            expected_rows=1000,
            found_rows=1001,
            missing_rows=0,
            extra_rows=1,
            different_cells=2,
            ranges=(
                DifferingRange(
                    first_key={"_row_key": 0},
                    last_key={"_row_key": 999},
                    expected_rows=1000,
                    found_rows=1001,
                    columns=("Bid",),
                ),
            ),
            differences=(Difference(key={"_row_key": 4}, column="Bid", expected=None, found="[x]"),),
        ),
    ),
)


@pytest.mark.parametrize(
    "expected",
    [
        "quotes: different: 1,001 rows at position 90, version 7; bronze says 1,000; 1 too many; 2 cells differ",
        "_row_key=4",
        "NULL",
        '"[x]"',
        "`silverfold rebuild market quotes` makes it anew",
    ],
)
def test_people_are_told_what_differs(expected: str):
    out = io.StringIO()
    show(FOUND, out)

    assert expected in out.getvalue()


def test_a_table_that_no_rebuild_makes_anew_has_its_own_way_on():
    out = io.StringIO()
    show(FOUND, out, {"quotes": "bronze has not what its base is made of [x]: put that back"})

    assert "no rebuild makes it anew: bronze has not what its base is made of [x]: put that back" in out.getvalue()
    assert "`silverfold rebuild" not in out.getvalue()


def test_the_keys_for_scripts_stay():
    found = FOUND.model_dump(mode="json")
    (table,) = found["tables"]

    assert list(found) == ["at", "warehouse", "feed", "against", "equal", "tables", "retryable"]
    assert list(table) == [
        "table",
        "verdict",
        "reason",
        "position",
        "delta_version",
        "folded_from",
        "expected_rows",
        "found_rows",
        "missing_rows",
        "extra_rows",
        "different_cells",
        "ranges",
        "differences",
        "base_position",
        "rows_aside",
    ]
    assert list(table["ranges"][0]) == ["first_key", "last_key", "expected_rows", "found_rows", "columns"]
    assert list(table["differences"][0]) == ["key", "column", "expected", "found"]
    assert [verdict.value for verdict in Verdict] == ["equal", "different", "not_built", "unknown"]
