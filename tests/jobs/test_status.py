from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from silverfold.jobs import cli
from silverfold.jobs.status import LatestKnown, duration, live_picture, picture, show
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import (
    Fault,
    FeedStatus,
    ReceiverState,
    ReceiverStatus,
    Status,
    TableState,
)
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.statuses import last_cut, status_of

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
                status_of(
                    "quotes",
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
                    last_cut=last_cut(
                        position=110,
                        delta_version=8,
                        committed_at=NOON - timedelta(hours=3, minutes=5),
                        seconds=1.5,
                        updates=2,
                        inserted=5,
                        deleted=1,
                    ),
                ),
                status_of("trades", degraded=True, skipped_positions=tuple(range(1, 13))),
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


def view(status: Status | None, *, width: int = 200, age: float = 2.0) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(live_picture(status, age))
    return out.getvalue()


def test_the_view_shows_what_needs_attention_first():
    (feed,) = STATUS.feeds
    quotes, trades = feed.tables
    synced = trades.model_copy(update={"table": "calm", "state": TableState.SYNCED})
    ordered = STATUS.model_copy(update={"feeds": (feed.model_copy(update={"tables": (synced, trades, quotes)}),)})

    shown = view(ordered)

    places = [shown.index(text) for text in ("read 2.0 s ago; q ends it", "market (", "UNDECODABLE_FRAME", "epoch ")]
    rows = [shown.index(f"\u2502 {name} ") for name in ("quotes", "trades", "calm")]
    assert [*places[:3], *rows] == sorted([*places[:3], *rows])


def test_before_the_first_reading_the_view_says_so():
    assert view(None, age=75.0) == "silverfold status: reading for 1 min 15 s; q ends it\n"


def test_a_view_without_feeds_says_so():
    assert "no feeds are configured for warehouse /data" in view(STATUS.model_copy(update={"feeds": ()}))


@pytest.mark.parametrize("width", [20, 40, 99])
def test_on_a_narrow_terminal_tables_show_less_and_nothing_is_cut_off(width: int):
    shown = view(STATUS, width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert "applied" not in shown
    assert ("last cut" in shown) == (width >= 60)
    words = "".join(shown.split()).replace("\u2502", "")
    assert "runsilverfoldquarantineretrymarketquotes" in words.replace("`", "")


def test_a_wide_terminal_shows_all_and_without_a_view_any_does():
    assert "applied" in view(STATUS, width=100)
    out = io.StringIO()
    Console(file=out, width=80).print(picture(STATUS.feeds[0], NOON))
    assert "119" in out.getvalue()
    assert "119" not in view(STATUS, width=80)


def test_what_cannot_be_read_for_a_while_is_shown_as_it_was():
    known, fault = LatestKnown(), {"unreadable": ("s3://lake: no answer",)}
    (feed,) = STATUS.feeds
    quotes, trades = feed.tables
    nothing = STATUS.model_copy(update={"feeds": ()})
    known.after(STATUS)

    unread = known.after(nothing.model_copy(update=fault))
    newer = trades.model_copy(update={"rows": 7})
    part = STATUS.model_copy(update={"feeds": (feed.model_copy(update={"landed_position": 121, "tables": (newer,)}),)})
    half = known.after(part.model_copy(update=fault))

    assert unread.feeds == (feed,)
    assert "cannot be read: s3://lake: no answer: below is what was read before; it is tried again" in view(unread)
    assert [(each.landed_position, each.tables) for each in half.feeds] == [(121, (quotes, newer))]
    assert known.after(nothing).feeds == ()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            [],
            "found 'output that is no terminal', "
            "allowed: it where the output is a terminal; without it, or with --json, status is printed once",
        ),
        (["--json"], "found '--watch and --json', allowed: one of them: a view, or an object for scripts"),
    ],
)
def test_a_view_is_only_for_terminals(
    conf: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    message: str,
):
    monkeypatch.setattr("silverfold.jobs.status.watch", lambda *_: None)

    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(conf), "status", "--watch", *flags])

    assert left.value.code == 2
    assert capsys.readouterr().err == f"silverfold: command line: --watch: {message}\n"
