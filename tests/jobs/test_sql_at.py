"""Queries as of a position or a time, over tables that a build made.

Positions: 0 to 3 the connection, 4 to 6 a snapshot of quotes, 7 to 9 of trades, 10 to 12 and 13 to 15
updates of quotes. Builds ran after 6 and after 12.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.errors import ConfigError
from silverfold.connectors.registry import CONNECTORS
from silverfold.jobs import cli
from silverfold.jobs.sql import chosen_feeds, moment_or_position
from silverfold.pipelines.storage.cuts import read_cuts
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.stub_connector import CONNECTOR, gone, partial_update, put
from tests.support.versioned_table import VersionedTable

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", 0),
        ("20240501", 20_240_501),
        ("2024-05-01T11:59:59Z", NOON.replace(hour=11, minute=59, second=59)),
        ("2024-05-01T13:30:00+02:00", NOON.replace(hour=11, minute=30)),
        ("2024-05-01 10:00", NOON.replace(hour=10)),
        ("2024-05-01", NOON.replace(hour=0)),
    ],
)
def test_digits_alone_are_a_position_and_a_time_is_in_utc_unless_it_says_otherwise(text: str, meant: object):
    assert moment_or_position(text, NOON) == meant


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("-1", "a position, or a time such as"),
        ("yesterday", "a position, or a time such as"),
        ("2024-05-01T12:00:01Z", "a time that has come: it is 2024-05-01T12:00:00"),
    ],
)
def test_what_is_neither_position_nor_past_is_refused(text: str, allowed: str):
    with pytest.raises(ConfigError, match=f"^command line: --at: found '{text}', allowed: {allowed}"):
        moment_or_position(text, NOON)


def test_a_position_is_of_one_feed():
    with pytest.raises(ConfigError, match="--feed: found nothing, allowed: lab, market: whose position it is"):
        chosen_feeds(["lab", "market"], None, 7)


@pytest.mark.parametrize(
    ("feed", "then", "chosen"),
    [(None, NOON, ["lab", "market"]), ("lab", 7, ["lab"]), ("lab", None, ["lab"]), (None, None, ["lab", "market"])],
)
def test_without_a_name_all_feeds_are_queried(feed: str | None, then: int | datetime | None, chosen: list[str]):
    assert chosen_feeds(["lab", "market"], feed, then) == chosen


class Answer(NamedTuple):
    """What the command left behind."""

    code: int | str | None
    out: str
    err: str


TABLES = {"quotes": table(), "trades": table()}


class Warehouse:
    """The settings and tables of the feed."""

    def __init__(self, spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        (folder / "feeds").mkdir()
        (folder / "settings.toml").write_text(f'warehouse = "{folder}/warehouse"\n')
        (folder / "feeds" / "market.toml").write_text(
            'connector = "deephaven"\naddress = "127.0.0.1:1"\n'
            '[tables.quotes]\nsource = "Quotes"\n[tables.trades]\nsource = "Trades"\n'
        )
        self.built = Built(spark, folder / "warehouse", TABLES)

    def ask(self, query: str, *arguments: str) -> Answer:
        with pytest.raises(SystemExit) as left:
            cli.main(["--conf", str(self.folder), "sql", query, *arguments])
        return Answer(left.value.code, *self.capsys.readouterr())


@pytest.fixture(scope="module")
def market_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tables once; each test reads and damages a copy."""
    folder = tmp_path_factory.mktemp("market")
    built, history = Built(spark, folder, TABLES), LandedHistory({name: {"Qty": "Long"} for name in TABLES})
    history.connect()
    history.snapshot("quotes", {1: {"Qty": 10}})
    built.land_and_build(history)
    history.snapshot("trades", {1: {"Qty": 7}})
    history.update("quotes", modified={1: {"Qty": 11}})
    built.land_and_build(history)
    history.update("quotes", modified={1: {"Qty": 12}})
    assert built.land(history) == 15
    return folder


@pytest.fixture
def market(spark: SparkSession, market_built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Warehouse:
    shutil.copytree(market_built, tmp_path / "warehouse")
    return Warehouse(spark, tmp_path, capsys)


BOTH = "SELECT q.Qty, t.Qty FROM quotes q JOIN trades t USING (_row_key)"
QUOTES = "SELECT Qty FROM quotes"


def test_tables_are_read_as_of_a_position_or_say_why_they_cannot(market: Warehouse):
    assert market.ask(QUOTES, "--at", "6") == (0, "Qty\n10\n", "")
    assert market.ask(QUOTES, "--at", "11") == (0, "Qty\n10\n", "")
    assert market.ask(BOTH, "--at", "12", "--feed", FEED) == (0, "Qty,Qty\n11,7\n", "")
    assert market.ask(BOTH, "--at", "6") == (
        2,
        "",
        "silverfold: table trades of feed market has no cut at or before position 6: its first ends at position 9\n",
    )
    assert market.ask(QUOTES, "--at", "15") == (
        2,
        "",
        "silverfold: table quotes of feed market has reached only position 12, not 15: "
        "run `silverfold build market --once`\n",
    )
    assert market.ask(QUOTES, "--at", "16") == (
        2,
        "",
        "silverfold: feed market has landed only up to position 15: there is no position 16\n",
    )


@pytest.mark.nightly
def test_a_history_has_the_versions_that_had_begun_and_those_that_ended_later_stand(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(CONNECTORS, "told", "tests.support.stub_connector")
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/warehouse"\n')
    settings = 'connector = "told"\n[tables.t]\nsource = "T"\nstored_as_scd_type = 2\n'
    (tmp_path / "feeds" / "told.toml").write_text(settings)
    versioned = VersionedTable(spark, tmp_path / "warehouse", CONNECTOR)
    versioned.source.connect()
    versioned.source.begin_snapshot()
    versioned.source.snapshot_rows([put(1, "x", op="snapshot"), put(2, "y", op="snapshot")])
    versioned.source.end_snapshot()  # 3
    versioned.build()
    versioned.source.update([partial_update(1, "z"), gone(2)])  # 4
    versioned.build()
    capsys.readouterr()

    def ask(table: str, *arguments: str) -> str:
        query = f"SELECT k, a, __START_AT, __END_AT FROM {table} ORDER BY ALL"
        with pytest.raises(SystemExit):
            cli.main(["--conf", str(tmp_path), "sql", query, *arguments])
        out, err = capsys.readouterr()
        return out or err

    head = "k,a,__START_AT,__END_AT\n"
    assert ask("t__history") == head + "1,x,2,4\n1,z,4,\n2,y,2,4\n"
    assert ask("told__t__history", "--at", "3") == head + "1,x,2,\n2,y,2,\n"
    assert ask("history") == (
        "silverfold: there is no table history; tables: t, t__history, told__t, told__t__history\n"
    )


def test_a_time_gives_what_all_tables_had_then_and_says_which_position_that_is(market: Warehouse):
    quotes = read_cuts(market.built.places, FEED, table="quotes")
    first, second = (cut.committed_at.isoformat() for cut in quotes)
    (trades,) = (cut.committed_at.isoformat() for cut in read_cuts(market.built.places, FEED, table="trades"))

    assert market.ask(QUOTES, "--at", first) == (0, "Qty\n10\n", "silverfold: feed market as of position 6\n")
    assert market.ask(BOTH, "--at", max(second, trades)) == (
        0,
        "Qty,Qty\n11,7\n",
        "silverfold: feed market as of position 12\n",
    )
    code, _, err = market.ask(BOTH, "--at", first)
    assert (code, err.splitlines()[-1]) == (
        2,
        f"silverfold: table trades of feed market was not built yet at {first}: "
        f"its first cut was committed at {trades}",
    )


def test_a_lost_list_of_cuts_changes_no_answer(market: Warehouse):
    before = [market.ask(QUOTES, "--at", at) for at in ("6", "12")]
    shutil.rmtree(market.built.places.cuts(FEED).url)

    after = [market.ask(QUOTES, "--at", at) for at in ("6", "12")]

    assert after == before == [(0, "Qty\n10\n", ""), (0, "Qty\n11\n", "")]


def test_a_version_whose_files_were_removed_is_one_line(market: Warehouse):
    remove_files(market, version=0, still_needed=False)

    assert market.ask(QUOTES, "--at", "6") == (
        2,
        "",
        "silverfold: table quotes of feed market cannot be read as of position 6 any more: "
        "VACUUM removed 1 files of its version 0\n",
    )


def test_a_file_that_is_gone_while_the_query_runs_is_one_line_after_what_spark_logs(market: Warehouse):
    remove_files(market, version=1, still_needed=True)

    code, out, err = market.ask(QUOTES, "--at", "12")

    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("silverfold: [FAILED_READ_FILE.FILE_NOT_EXIST] ")


def remove_files(market: Warehouse, *, version: int, still_needed: bool) -> None:
    """Remove the files of a version, which the newest version needs or not."""
    place = market.built.places.silver(FEED, "quotes")
    if not still_needed:
        market.built.spark.sql(f"DELETE FROM delta.`{place.url}`")
    files = set(DeltaTable(place.url, version=version).file_uris())
    assert bool(files & set(DeltaTable(place.url).file_uris())) == still_needed
    for file in files:
        Path(file).unlink()
