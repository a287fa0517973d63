"""The simulator as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.table_listener import TableListener
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.registry import CONNECTORS, find_connector
from silverfold.connectors.sbe.protocol.schemas import feed_schema
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.framing.cutter import frames_of
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.framed import cutter_for
from silverfold.jobs.cli import main

BOTH = SubscribeMode.SNAPSHOT_WITH_UPDATES


@pytest.fixture
def trades(tmp_path: Path) -> Path:
    path = tmp_path / "trades.parquet"
    rows = pa.table({"Sym": ["AAPL", "IBM", None] * 10, "Price": [1.5, 2.5, None] * 10, "Size": list(range(30))})
    pyarrow.parquet.write_table(rows, path)
    return path


def exits(*arguments: str) -> int | str | None:
    """Return the exit code of the command in this process: for what it says without serving anything."""
    with pytest.raises(SystemExit) as left:
        main(["simulate", *arguments])
    return left.value.code


@contextmanager
def running(*arguments: str, connector: str = "deephaven") -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "silverfold.jobs.simulate", connector, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def port_of(process: subprocess.Popen[str]) -> int:
    announced = line(process)
    assert announced.startswith("listening on 127.0.0.1:")
    return int(announced.rpartition(":")[2])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_a_file_keeps_it_changing_and_ends_in_order_on_a_signal(trades: Path, number: signal.Signals) -> None:
    with running("--table", f"trades={trades}", "--changes-per-second", "200") as process:
        port = port_of(process)
        assert line(process) == "table trades: 30 rows, 3 columns"
        listener = TableListener()
        with TableClient("127.0.0.1", port, listener) as client:
            client.subscribe(1, BOTH, "trades")
            listener.expect_updates(5)
            assert {"Sym", "Price", "Size"} == {column.name for column in listener.columns(1)}
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert "quiet after" in process.stdout.read()


def test_it_is_quiet_once_the_time_is_over_and_still_serves(trades: Path) -> None:
    arguments = ("--table", f"trades={trades}", "--changes-per-second", "100", "--changes-for", "0.5", "--seed", "4")
    with running(*arguments) as one, running(*arguments) as other:
        found = []
        for process in (one, other):
            port = port_of(process)
            line(process)
            quiet_line = line(process)
            assert quiet_line.startswith("quiet after ")
            listener = TableListener()
            with TableClient("127.0.0.1", port, listener) as client:
                client.subscribe(1, SubscribeMode.SNAPSHOT_ONLY, "trades")
                listener.expect_updates(1)
                found.append((quiet_line, listener.rows(1)))
        assert len(found[0][1]) > 0
        if found[0][0] == found[1][0]:  # a busy machine may have made fewer of the same updates
            assert found[0][1] == found[1][1]


def test_tables_come_and_go_while_it_runs_and_lengths_may_count_otherwise(trades: Path) -> None:
    arguments = ["--table", f"trades={trades}", "--changes-per-second", "0", "--prefix-counts", "message+prefix"]
    arguments += ["--export-after", f"0.2:more={trades}", "--unexport-after", "0.4:trades"]
    arguments += ["--where", "big=trades:Size >= 10", "--last-by", "last=big:Sym, Price"]
    arguments += ["--where", "nor=none:Size > 0", "--where", "none=trades:Size < 0"]
    arguments += ["--where", "newest=last:Size >= 10"]
    with running(*arguments) as process:
        port = port_of(process)
        lines = {line(process) for _ in range(9)}
        assert {"table big: 20 rows, 3 columns", "table last: 3 rows, 3 columns"} <= lines
        assert "table newest: 3 rows, 3 columns" in lines
        assert {"table more is exported", "table trades is not exported any more"} <= lines
        listener = TableListener()
        with TableClient("127.0.0.1", port, listener) as client:
            client.subscribe(1, SubscribeMode.SNAPSHOT_ONLY, "more")
            listener.expect_updates(1)
            client.subscribe(2, SubscribeMode.SNAPSHOT_ONLY, "trades")
            listener.expect_subscription_errors(1)
        assert len(listener.rows(1)) == 30


def test_the_name_of_a_table_is_printed_on_one_line(trades: Path) -> None:
    with running(
        "--table", f"a\nb={trades}", "--changes-per-second", "0", "--where", "\u2028=a\nb:Size < 3"
    ) as process:
        port_of(process)
        found = [line(process) for _ in range(2)]
    assert found == ["table a\\nb: 30 rows, 3 columns", "table \\u2028: 3 rows, 3 columns"]


class StoppedAtTheEnd(threading.Event):
    """Stops no change, and comes as soon as the command waits for nothing else."""

    def wait(self, timeout: float | None = None) -> bool:
        return timeout is None


@pytest.mark.parametrize("connector", ["sbe", "sqlitecloud"])
def test_one_change_is_one(
    connector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as shop:
        shop.execute(
            "CREATE TABLE item(id INTEGER PRIMARY KEY CHECK (id < 0))"
        )  # an update that is refused counts as 1
    options = {"sbe": {"seed": 2}, "sqlitecloud": {"database": [path]}}[connector]
    simulate = find_connector(connector).simulator()
    monkeypatch.setattr(sys.modules[simulate.__module__], "stopped_by_signals", lambda: nullcontext(StoppedAtTheEnd()))
    simulate(port=0, changes_per_second=0.001, changes_for=100, **options)
    assert capsys.readouterr().out.splitlines()[-1] == "quiet after 1 change"


def test_a_market_is_sent_in_the_framing_asked_for_and_the_same_seed_sends_the_same() -> None:
    arguments = ("--framing", "b3", "--changes-per-second", "400", "--changes-for", "0.5", "--seed", "4")
    with (
        running(*arguments, connector="sbe") as process,
        socket.create_connection(("127.0.0.1", port_of(process))) as one,
    ):
        quiet_line = line(process)
        assert quiet_line.startswith("quiet after ")
        process.send_signal(signal.SIGTERM)
        with one:
            octets = b"".join(iter(lambda: one.recv(1 << 16), b""))
        assert process.wait(timeout=20) == 0
    schema = feed_schema("builtin")
    messages = [decode(schema, frame.body) for frame in frames_of(cutter_for(schema, FRAMINGS["b3"]), [octets])]
    assert [message.message.name for message in messages[:4]] == ["Security"] * 4
    market = Market(schema, seed=4, clock=lambda: 0)
    expected = [decode(schema, market.change().body).values for _ in range(500)]
    last = [{**message.values, "transactTime": 0} for message in messages[-20:]]
    at = expected.index(last[0])
    assert last == expected[at : at + 20]


LOADED = """
import sys
for called in sys.argv[1:]:
    from silverfold.jobs.cli import main  # anew: our own modules of the simulator before are gone
    try:
        main(["simulate", *called.split(), "--help"])
    except SystemExit:
        ours = [name for name in sys.modules if name.startswith("silverfold")]
        print("loaded:", *(name for name in ours if ".server" in name))
        for name in ours:
            del sys.modules[name]
"""


def test_a_simulator_loads_no_others_server_and_the_list_of_them_none() -> None:
    called = ["", *(connector.replace("_", "-") for connector in CONNECTORS)]
    done = subprocess.run([sys.executable, "-c", LOADED, *called], check=True, capture_output=True, text=True)
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("loaded:")]
    servers = [{name.split(".")[2] for name in line} - {"common"} for line in lines]
    assert servers == [set(), *({connector} for connector in CONNECTORS)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing option '--table'"),
        (["--table", "trades"], "is not NAME=FILE"),
        (["--table", "a=/no/such/file.parquet"], "/no/such/file.parquet: file: found"),
        (["--table", "a=/no/such/file.xlsx"], ".parquet, .pq, .csv or .csv.gz"),
        (["--table", "a=x.csv", "--port", "70000"], "--port"),
        (["--table", "a=x.csv", "--prefix-counts", "all"], "--prefix-counts"),
        (["--table", "{trades}", "--where", "big=other:Size > 1"], "a new name and a table that is exported"),
        (["--table", "{trades}", "--where", "big=trades:Nope > 1"], "no column Nope"),
        (["--table", "{trades}", "--last-by", "last=trades:Nope"], "rows cannot be grouped by Nope"),
        (["--table", "{trades}", "--export-after", "soon:b=x.csv"], "'soon:b=x.csv' does not begin with SECONDS:"),
        (["--table", "{trades}", "--export-after", "1:b"], "'1:b' is not SECONDS:NAME=FILE"),
        (["--table", "{trades}", "--unexport-after", "-1:b"], "'-1:b' does not begin with SECONDS:"),
        (["--table", "{trades}", "--unexport-after", "1:b"], "no table 'b' is exported"),
        (["--table", "a=x.csv", "--buffer-size", "10"], "--buffer-size"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(
    arguments: list[str],
    complaint: str,
    trades: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert exits("deephaven", *(each.replace("{trades}", f"trades={trades}") for each in arguments)) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("framing", "complaint"),
    [
        ("soph", "Did you mean 'sofh'"),
        ("whole", "whole is for one message, there are many"),
        ("cme-mdp3", "ends packets with their datagrams"),
    ],
)
def test_a_framing_that_cannot_be_sent_is_told_with_exit_code_2(
    framing: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert exits("sbe", "--framing", framing) == 2
    assert complaint in capsys.readouterr().err


def test_a_simulator_whose_packages_are_not_here_is_told_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert exits("sqlitecloud-webhooks", "--to", "http://127.0.0.1:1/") == 2
    assert "install silverfold[sqlitecloud-webhooks]" in capsys.readouterr().err


def test_a_port_in_use_is_told_with_exit_code_3(trades: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert exits("deephaven", "--table", f"trades={trades}", "--port", str(port)) == 3
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
