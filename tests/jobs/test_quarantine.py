from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

import silverfold.pipelines.holding.quarantine_log
from silverfold.jobs import cli
from silverfold.jobs.quarantine import Outcome, outcome_text, show
from silverfold.pipelines.holding.quarantine import Quarantined
from silverfold.pipelines.holding.quarantine_log import (
    PASSED,
    SKIPPED,
    Hold,
    hold,
    quarantined,
    resolve,
    skip,
    undo_skip,
)
from silverfold.pipelines.places import Places
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.misreading import misreading

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
BAD_FRAME = Hold(
    position=17, update_position=15, error_class="UNDECODABLE_FRAME", reason="[group] ends at byte 40", found_at=NOON
)
TWICE = Hold(position=21, update_position=21, error_class="DUPLICATE_KEY", reason="two rows of a key", found_at=NOON)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(f"{tmp_path}/warehouse")


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """A folder of settings with one feed of two tables."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/warehouse"\n')
    (tmp_path / "feeds" / "market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n'
        '[tables.quotes]\nsource = "Quotes"\n[tables.trades]\nsource = "Trades"\n'
    )
    return str(tmp_path)


def run(conf: str, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", conf, "quarantine", *arguments])
    return left.value.code


def reach(places: Places, table: str, position: int) -> None:
    """Commit a position to a silver table, as a build does."""
    write_deltalake(
        places.silver(FEED, table).url,
        pa.table({"n": [1]}),
        commit_properties=CommitProperties(app_transactions=[Transaction(f"apply/{FEED}/{table}", position)]),
    )


def resolutions(places: Places, table: str) -> list[str | None]:
    return [each.resolution for each in quarantined(places, FEED, table)]


def test_the_list_for_scripts_has_what_holds_and_what_was_skipped(
    conf: str, places: Places, capsys: pytest.CaptureFixture[str]
):
    hold(places, FEED, "trades", BAD_FRAME)
    skip(places, FEED, "quotes", BAD_FRAME, now=NOON.replace(hour=13))

    assert run(conf, "list", FEED, "--json") == 0

    shared = {"update_position": 15, "error_class": "UNDECODABLE_FRAME", "reason": "[group] ends at byte 40"}
    began = "2024-05-01T12:00:00+00:00"
    skipped = {"resolved_at": "2024-05-01T13:00:00+00:00", "resolution": "skipped"}
    assert json.loads(capsys.readouterr().out) == [
        {"table": "quotes", "position": 17, **shared, "state": "skipped", "found_at": began, **skipped},
        {
            "table": "trades",
            "position": 17,
            **shared,
            "state": "holding",
            "found_at": began,
            "resolved_at": None,
            "resolution": None,
        },
    ]


def test_what_is_over_is_listed_when_asked_for(conf: str, places: Places, capsys: pytest.CaptureFixture[str]):
    hold(places, FEED, "quotes", BAD_FRAME)
    resolve(places, FEED, "quotes", lambda known: PASSED, now=NOON.replace(hour=13))
    hold(places, FEED, "trades", BAD_FRAME)
    reach(places, "trades", 18)  # its builder died before it could note that it went on

    run(conf, "list", FEED, "--json")
    by_default = json.loads(capsys.readouterr().out)
    run(conf, "list", FEED, "--json", "--all")
    everything = json.loads(capsys.readouterr().out)

    assert by_default == []
    assert [(row["table"], row["state"]) for row in everything] == [("quotes", "resolved"), ("trades", "resolved")]


def test_people_get_a_table():
    out = io.StringIO()

    show([Quarantined("quotes", BAD_FRAME, applied=14)], out, as_json=False)

    printed = " ".join(out.getvalue().split())
    assert "│ quotes │ 17 │ 15 │ holding │ UNDECODABLE_FRAME │ 2024-05-01 12:00:00 UTC │ [group] ends at byte 40 │" in (
        printed
    )


def test_an_empty_quarantine_says_so(conf: str, capsys: pytest.CaptureFixture[str]):
    assert run(conf, "list", FEED) == 0

    assert capsys.readouterr().out == "nothing is quarantined\n"


def test_a_holding_frame_can_be_skipped_and_the_skip_be_undone(
    conf: str, places: Places, capsys: pytest.CaptureFixture[str]
):
    hold(places, FEED, "quotes", BAD_FRAME)

    skipped = run(conf, "skip", FEED, "quotes", "17"), resolutions(places, "quotes")
    undone = run(conf, "skip", FEED, "quotes", "17", "--undo"), resolutions(places, "quotes")

    assert (skipped, undone) == ((0, ["skipped"]), (0, ["skip undone"]))
    assert capsys.readouterr().out == (
        "silverfold: quotes: the build goes on without frame 17: what it carried is missing, or NULL, "
        "until a snapshot passes it\n"
        "silverfold: quotes: frame 17 holds it again, unless a build is passing it just now: see status\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quotes", "18"), "POSITION: found 18, allowed: 17, which holds quotes"),
        (("trades", "17"), "POSITION: found 17, allowed: a frame that cannot be decoded; trades holds for something"),
        (("trade", "17"), "TABLE: found 'trade', allowed: quotes, trades"),
        (("quotes", "17", "--undo"), "POSITION: found 17, allowed: a skipped frame that quotes has yet to pass: none"),
    ],
)
def test_only_a_frame_that_holds_a_table_can_be_skipped(
    conf: str, places: Places, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
):
    hold(places, FEED, "quotes", BAD_FRAME)
    hold(places, FEED, "trades", Hold(**{**vars(TWICE), "position": 17}))

    code = run(conf, "skip", FEED, *arguments)

    printed = capsys.readouterr().err.replace("holds for DUPLICATE_KEY", "holds for something")
    assert (code, printed) == (2, f"silverfold: command line: {message}\n")


def test_nothing_that_a_table_has_passed_can_be_skipped_or_undone(
    conf: str, places: Places, capsys: pytest.CaptureFixture[str]
):
    hold(places, FEED, "quotes", BAD_FRAME)
    reach(places, "quotes", 18)
    skip(places, FEED, "trades", BAD_FRAME, now=NOON)
    reach(places, "trades", 18)

    codes = run(conf, "skip", FEED, "quotes", "17"), run(conf, "skip", FEED, "trades", "17", "--undo")

    assert codes == (2, 2)
    assert capsys.readouterr().err == (
        "silverfold: command line: POSITION: found 17, allowed: none: nothing holds quotes\n"
        "silverfold: command line: POSITION: found 17, allowed: a skipped frame that trades has yet to pass: none\n"
    )
    assert (resolutions(places, "quotes"), resolutions(places, "trades")) == ([None], [SKIPPED])


def test_a_skip_cannot_be_undone_once_a_build_has_gone_on_without_the_frame(
    conf: str, places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def overtaken(*arguments: Any, **named: Any) -> None:
        reach(places, "quotes", 18)
        undo_skip(*arguments, **named)

    skip(places, FEED, "quotes", BAD_FRAME, now=NOON)
    monkeypatch.setattr(silverfold.pipelines.holding.quarantine_log, "undo_skip", overtaken)

    code = run(conf, "skip", FEED, "quotes", "17", "--undo")

    assert (code, resolutions(places, "quotes")) == (2, [SKIPPED])
    assert "a skipped frame that quotes has yet to pass; it just has" in capsys.readouterr().err


def test_where_nothing_holds_there_is_nothing_to_try_again(conf: str, capsys: pytest.CaptureFixture[str]):
    codes = run(conf, "retry", FEED), run(conf, "retry", FEED, "quotes"), run(conf, "retry", FEED, "quots")

    assert codes == (0, 0, 2)
    assert capsys.readouterr().out == (
        "silverfold: nothing holds a table of feed market\nsilverfold: nothing holds table quotes\n"
    )


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome("quotes", [17], None), "quotes went beyond position 17"),
        (Outcome("quotes", [], "no fix"), "quotes holds: no fix"),
        (Outcome("quotes", [17, 23], "at 40"), "quotes went beyond positions 17, 23 and holds: at 40"),
        (Outcome("quotes", [], None), "quotes stands where it stood"),
    ],
)
def test_what_trying_again_did_is_a_line(outcome: Outcome, line: str):
    assert outcome_text(outcome) == line


def test_trying_again_tells_which_table_passed_and_which_still_holds(
    spark: SparkSession, conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    built = Built(spark, tmp_path / "warehouse", {"quotes": table(), "trades": table()})
    history = LandedHistory({"quotes": {"Qty": "Long"}, "trades": {"Qty": "Long"}})
    history.connect()
    for name in ("quotes", "trades"):
        history.snapshot(name, {1: {"Qty": 10}})
    for number in (11, 12):
        history.update("quotes", modified={1: {"Qty": number}})  # 10 to 12 and 13 to 15
    history.begin("trades")
    history.inside("trades", b"\xff" * 8)
    history.end("trades")
    built.land(history)
    built.build(misreading(built.start(), lambda position: position in (11, 14)))
    before = built.rows("quotes")
    capsys.readouterr()

    code = run(conf, "retry", FEED)

    assert (before, code, built.rows("quotes")) == ({1: {"Qty": 10}}, 1, {1: {"Qty": 12}})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "silverfold: quotes went beyond position 11"
    assert second.startswith("silverfold: trades holds: trades: frame 17 cannot be decoded: ")


def test_neither_list_nor_skip_loads_spark(conf: str, places: Places):
    hold(places, FEED, "quotes", BAD_FRAME)
    program = f"""
import sys
import silverfold.pipelines.holding.quarantine_log
from silverfold.jobs import cli
for arguments in (["list", {FEED!r}], ["skip", {FEED!r}, "quotes", "17"]):
    try: cli.main(["--conf", sys.argv[1], "quarantine", *arguments])
    except SystemExit as end: print("", arguments[0], end.code, "pyspark" in sys.modules)
"""

    done = subprocess.run([sys.executable, "-c", program, conf], capture_output=True, text=True, check=True, timeout=60)

    loaded = [line for line in done.stdout.splitlines() if line.endswith((" True", " False"))]
    assert loaded == [" list 0 False", " skip 0 False"], done.stderr
