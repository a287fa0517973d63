from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from silverfold.jobs import cli
from silverfold.jobs.status import duration, show
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import (
    Fault,
    FeedStatus,
    LastCut,
    ReceiverState,
    ReceiverStatus,
    Status,
    TableState,
    TableStatus,
)
from tests.support.deephaven.landed_history import LandedHistory

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
STATUS = Status(
    at=NOON,
    warehouse="/data",
    feeds=(
        FeedStatus(
            feed="market",
            connector="deephaven",
            epoch=2,
            landed_position=120,
            landed_at=NOON - timedelta(milliseconds=250),
            receiver=ReceiverStatus(
                state=ReceiverState.CLOSED,
                since=NOON - timedelta(seconds=90),
                reason="[reset] by peer",
                error_class="SOURCE_UNAVAILABLE",
            ),
            tables=(
                TableStatus(
                    table="quotes",
                    state=TableState.HELD,
                    fault=Fault(
                        error_class="UNDECODABLE_FRAME", reason="[group] ends at byte 40", position=117, since=NOON
                    ),
                    epoch=2,
                    landed_position=119,
                    applied_position=110,
                    lag_updates=3,
                    lag_seconds=4.25,
                    rows=1234,
                    versions=5678,
                    last_cut=LastCut(
                        position=110,
                        delta_version=8,
                        committed_at=NOON - timedelta(hours=3, minutes=5),
                        seconds=1.5,
                        replaced=False,
                        updates=2,
                        inserted=5,
                        updated=0,
                        deleted=1,
                        ignored=0,
                    ),
                ),
                TableStatus(
                    table="trades",
                    state=TableState.NOT_BUILT,
                    fault=None,
                    epoch=None,
                    landed_position=None,
                    applied_position=None,
                    lag_updates=0,
                    lag_seconds=0.0,
                    rows=None,
                    last_cut=None,
                    degraded=True,
                    skipped_positions=tuple(range(1, 13)),
                ),
            ),
            source={
                "shard 7": {"batches_behind": 3, "seconds_behind": 0.0, "records_redelivered": 250},
                "shard 8": {"batches_behind": 0},
            },
        ),
    ),
)


@pytest.fixture
def printed() -> str:
    out = io.StringIO()
    show(STATUS, out)
    return out.getvalue()


@pytest.mark.parametrize(
    "expected",
    [
        "market (deephaven): landed up to 120, 250 ms ago, epoch 2",
        "receiver closed since 2024-05-01 11:58:30 UTC, 1 min 30 s ago: [reset] by peer (SOURCE_UNAVAILABLE)",
        "\nshard 7: 3 batches behind, 250 records redelivered\n",
        "3 updates, 4.2 s",
        "1234, 5678",
        "3 h 5 min ago, version 8: +5 -1",
        "quotes: held at position 117: UNDECODABLE_FRAME: [group] ends at byte 40",
        "quotes: after a fix run `silverfold quarantine retry market quotes`; ",
        "`silverfold quarantine skip market quotes 117` goes on without the frame",
        "not_built, degraded",
        "trades: degraded: went on without positions 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more",
    ],
)
def test_people_are_told_how_things_stand(printed: str, expected: str):
    assert expected in printed


def test_parts_of_a_source_without_lag_are_not_shown(printed: str) -> None:
    assert "shard 8" not in printed


def test_the_keys_for_scripts_stay():
    (feed,) = STATUS.model_dump(mode="json")["feeds"]
    (quotes, _trades) = feed["tables"]

    assert list(STATUS.model_dump()) == ["at", "warehouse", "feeds", "unreadable"]
    assert list(feed) == [
        "feed",
        "connector",
        "epoch",
        "landed_position",
        "landed_at",
        "receiver",
        "tables",
        "lost_positions",
        "source",
    ]
    assert list(feed["receiver"]) == ["state", "since", "reason", "error_class"]
    assert list(quotes) == [
        "table",
        "state",
        "fault",
        "epoch",
        "landed_position",
        "applied_position",
        "lag_updates",
        "lag_seconds",
        "rows",
        "last_cut",
        "degraded",
        "skipped_positions",
        "versions",
        "tombstones",
        "rows_aside",
        "begins_at_position",
        "base_position",
        "built_otherwise",
        "warning",
        "lacks_positions",
        "emptied_version",
        "degraded_keys",
    ]
    assert list(quotes["fault"]) == ["error_class", "reason", "position", "since"]
    assert list(quotes["last_cut"]) == [
        "position",
        "delta_version",
        "committed_at",
        "seconds",
        "replaced",
        "updates",
        "inserted",
        "updated",
        "deleted",
        "ignored",
    ]


def test_the_states_for_scripts_stay():
    assert [state.value for state in TableState] == [
        "stopped",
        "held",
        "not_built",
        "behind",
        "waiting_for_snapshot",
        "waiting_for_update_end",
        "synced",
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 ms"),
        (0.25, "250 ms"),
        (1.0, "1.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3_600 + 125, "1 h 2 min"),
        (2 * 86_400 + 3 * 3_600, "2 d 3 h"),
    ],
)
def test_spans_of_time_are_told_in_their_two_largest_units(seconds: float, expected: str):
    assert duration(seconds) == expected


def test_without_feeds_there_is_an_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path))

    with pytest.raises(SystemExit) as left:
        cli.main(["status", "--json"])

    assert left.value.code == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["feeds"], status["warehouse"]) == ([], str(tmp_path))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of settings with one feed that has never run."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/warehouse"\n')
    (tmp_path / "feeds" / "market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n[tables.quotes]\nsource = "Quotes"\n'
    )
    return tmp_path


def test_a_feed_can_be_chosen(conf: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "status", "market", "--json"])

    assert left.value.code == 0
    (feed,) = json.loads(capsys.readouterr().out)["feeds"]
    assert (feed["feed"], feed["connector"], feed["landed_position"]) == ("market", "deephaven", None)
    assert [(table["table"], table["state"]) for table in feed["tables"]] == [("quotes", "not_built")]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_feed_that_cannot_be_read_hides_no_other(conf: Path, capsys: pytest.CaptureFixture[str], flags: list[str]):
    (conf / "feeds" / "other.toml").write_text((conf / "feeds" / "market.toml").read_text())
    place = Places(f"{conf}/warehouse").bronze("market")
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.land(place, "market")
    for file in Path(place.local or "").glob("*.parquet"):
        file.unlink()

    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "status", *flags])

    output = capsys.readouterr()
    assert left.value.code == 3
    assert "other" in output.out
    assert '"market"' not in output.out
    assert output.err.startswith(f"silverfold: file://{place}/: ")
    assert ".parquet not found; as long as it is gone, put it back; else bronze's whole folder" in output.err


def test_a_table_that_cannot_be_read_hides_no_other(conf: Path, capsys: pytest.CaptureFixture[str]):
    feed = conf / "feeds" / "market.toml"
    feed.write_text(f'{feed.read_text()}[tables.trades]\nsource = "Trades"\n')
    places = Places(f"{conf}/warehouse")
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.land(places.bronze("market"), "market")
    log = Path(places.silver("market", "quotes").url) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("garbage")

    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "status", "--json"])

    output = capsys.readouterr()
    (found,) = json.loads(output.out)["feeds"]
    assert (left.value.code, [each["table"] for each in found["tables"]]) == (3, ["trades"])
    assert output.err.count("\n") == 1
    assert "`silverfold rebuild market quotes` makes it anew" in output.err


def test_a_feed_nobody_configured_is_wrong_use(conf: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "status", "markte"])

    assert left.value.code == 2
    assert "markte" in capsys.readouterr().err


def test_the_command_never_loads_spark(conf: Path):
    program = (
        "import sys\nfrom silverfold.jobs import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "sys.exit(3 if 'pyspark' in sys.modules else 0)"
    )

    ran = subprocess.run([sys.executable, "-c", program, "--conf", conf, "status"], check=False, timeout=60)

    assert ran.returncode == 0
