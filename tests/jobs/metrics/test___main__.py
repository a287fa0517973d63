"""The command and the receiver's counters as processes: what they serve, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.jobs.cli import main
from silverfold.jobs.demo.tables import TABLES
from tests.support.polling import wait_until

PATIENCE = 120.0
DEMO = TABLES["baskets"]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of settings with one feed, whose source listens nowhere."""
    write_feed(tmp_path, 1)
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/lake"\n')
    return tmp_path


def write_feed(conf: Path, port: int) -> None:
    (conf / "feeds").mkdir(exist_ok=True)
    (conf / "feeds/market.toml").write_text(
        f'connector = "deephaven"\naddress = "127.0.0.1:{port}"\n[tables.baskets]\nsource = "{DEMO.source}"\n'
    )


@contextmanager
def running(conf: Path, job: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", f"silverfold.jobs.{job}", "--conf", str(conf), "market", *arguments],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that the command prints."""
    assert process.stdout is not None
    served, _, address = process.stdout.readline().strip().partition(" ")
    assert served == "serving"
    return address


def logged_address(process: subprocess.Popen[str]) -> str:
    """Return the address that a receiver logs."""
    assert process.stderr is not None
    events = (json.loads(line) for line in process.stderr)
    return next(event["address"] for event in events if event["event"] == "serving metrics")


def scraped(address: str) -> dict[str, float]:
    """Return the samples at an address, each under its name and the values of its labels."""
    with urlopen(address, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {" ".join([each.name, *each.labels.values()]): each.value for family in families for each in family.samples}


def exits(conf: Path, *arguments: str) -> int | str | None:
    """Return the exit code of the command in this process: for what it says without serving anything."""
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(conf), *arguments])
    return left.value.code


def test_a_live_receiver_and_its_store_are_served_each_by_its_own_process(conf: Path):
    with TableServer.start() as server:
        server.export_table(DEMO.source, DEMO.filled(100, Random(1)))
        write_feed(conf, server.port)
        with (
            running(conf, "receive", "--metrics-port", "0") as receiver,
            running(conf, "metrics", "--port", "0") as store,
        ):
            counters, shown = logged_address(receiver), address_of(store)
            wait_until(lambda: scraped(counters)["silverfold_received_frames_total market"] > 2, "frames", pause=0.1)
            wait_until(lambda: scraped(shown).get("silverfold_lag_updates market baskets"), "an update", pause=0.1)
            of_process, of_store = scraped(counters), scraped(shown)
            for process in (store, receiver):
                process.send_signal(signal.SIGTERM)
            assert [process.wait(PATIENCE) for process in (store, receiver)] == [0, 0]

    assert counters.startswith("http://127.0.0.1:")
    assert shown.startswith("http://127.0.0.1:")
    for each in (of_process, of_store):
        assert (each["silverfold_receiver_connected market"], each["silverfold_epochs_total market"]) == (1, 1)
    assert of_process["silverfold_received_bytes_total market"] > 100
    assert of_process["silverfold_commit_seconds_count market"] >= 1
    assert of_process["silverfold_snapshot_running market baskets"] == 0
    assert of_store["silverfold_feed_up market"] == 1
    assert of_store["silverfold_table_state market not_built baskets"] == 1


def test_a_request_that_the_store_keeps_waiting_does_not_hold_up_the_end(conf: Path):
    with socket.create_server(("127.0.0.1", 0)) as store:
        reached = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.getsockname()[1]}", "AWS_ALLOW_HTTP": "true"}
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        (conf / "settings.toml").write_text(
            'warehouse = "s3://bucket/lake"\n[storage_options]\n'
            + "".join(f'{name} = "{value}"\n' for name, value in (reached | keys).items())
        )
        with running(conf, "metrics", "--port", "0") as process:
            port = urlsplit(address_of(process)).port
            asking = socket.create_connection(("127.0.0.1", port))
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            asked, _ = store.accept()  # the request is inside the store's library
            with asking, asked:
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0


def test_a_file_is_written_at_once_and_once(conf: Path):
    file = conf / "silverfold.prom"
    assert exits(conf, "metrics", "--all", "--textfile", str(file)) == 0
    assert '\nsilverfold_feed_up{feed="market"} 1.0\n' in file.read_text()
    assert [each.name for each in conf.iterdir() if ".prom" in each.name] == [file.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--port: found nothing, allowed: a port, or --textfile"),
        (["--port", "1", "--textfile", "x"], "--port: found '--port and --textfile', allowed: a port, or --textfile"),
        (
            ["--textfile", "/nowhere/x.prom"],
            "--textfile: found '/nowhere/x.prom: No such file or directory', "
            "allowed: a file in a folder that can be written",
        ),
    ],
)
def test_a_mistake_is_one_line(conf: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    assert exits(conf, "metrics", "market", *arguments) == 2
    assert capsys.readouterr().err == f"silverfold: command line: {message}\n"


def test_the_port_of_a_feed_is_not_that_of_its_metrics(conf: Path, capsys: pytest.CaptureFixture[str]):
    feed = 'connector = "sqlitecloud_webhooks"\naddress = "127.0.0.1:18293"\n'
    options = '[options]\ndatabase = "a"\ninsecure = true\n'
    table = '[tables.t]\nkeys = ["id"]\ntypes = { id = "bigint" }\n'
    (conf / "feeds/hooks.toml").write_text(feed + options + table)

    assert exits(conf, "receive", "hooks", "--metrics-port", "18293") == 2
    allowed = "another port: the feed hooks listens there"
    assert capsys.readouterr().err == f"silverfold: command line: --metrics-port: found 18293, allowed: {allowed}\n"


@pytest.mark.parametrize("arguments", [["metrics", "--all", "--port"], ["receive", "--all", "--metrics-port"]])
def test_a_port_in_use_is_one_line_that_names_its_option(
    conf: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert exits(conf, *arguments, str(port)) == 3
    reason = f"cannot listen on 127.0.0.1:{port}: [Errno 98] Address already in use"
    assert capsys.readouterr().err == f"silverfold: {arguments[-1]}: {reason}\n"
    assert not (conf / "lake").exists()


@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_no_host_is_one_line_that_names_the_option_of_the_port(
    conf: Path, capsys: pytest.CaptureFixture[str], option: str
):
    command, host = ("metrics", "--host") if option == "--port" else ("receive", "--metrics-host")
    assert exits(conf, command, "--all", option, "0", host, "") == 3
    reason = "cannot listen on port 0 of no host: 127.0.0.1, or 0.0.0.0 for all"
    assert capsys.readouterr().err == f"silverfold: {option}: {reason}\n"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["metrics", "--all", "--port", "0"], "COMMAND: found 'metrics'"),
        (["receive", "--all", "--metrics-port", "0"], "--metrics-port: found 0"),
    ],
)
def test_without_its_library_it_names_what_to_install(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], found: str
):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert exits(conf, *arguments) == 2
    assert capsys.readouterr().err == (
        f"silverfold: command line: {found}, allowed: one whose packages are here: install silverfold[metrics]\n"
    )


def test_the_library_is_loaded_by_nobody_else():
    program = """
import sys, silverfold.jobs.receive, silverfold.jobs.status, silverfold.jobs.metrics.__main__
print("prometheus_client" in sys.modules, "pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False False\n"
