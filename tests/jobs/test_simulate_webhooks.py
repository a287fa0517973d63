"""The simulator of webhooks as a process of its own, against the receiver as another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silverfold.connectors.sqlitecloud_webhooks.server.orders import Orders
from silverfold.jobs.cli import main
from silverfold.pipelines.places import Place
from tests.support.landing import landed
from tests.support.polling import tries
from tests.support.sqlitecloud.webhooks import free_port

FEED = """
connector = "sqlitecloud_webhooks"
address = "127.0.0.1:{port}"

[options]
database = "shop.sqlite"
secret = {{ env = "HOOK_SECRET" }}
header = "X-Webhook-Signature"

[tables.orders]
keys = ["id"]
types = {{ id = "bigint" }}
"""


def environment(folder: Path) -> dict[str, str]:
    ours = {"COLUMNS": "200", "HOOK_SECRET": "sesame", "SILVERFOLD__WAREHOUSE": str(folder / "lake")}
    return {**os.environ, **ours}


@contextmanager
def receiving(folder: Path, port: int) -> Iterator[None]:
    """Run the receiver of a feed, until it is stopped in order."""
    (folder / "feeds").mkdir()
    (folder / "feeds/shop.toml").write_text(FEED.format(port=port), encoding="utf-8")
    command = [sys.executable, "-m", "silverfold.jobs.cli", "--conf", str(folder), "receive", "shop"]
    with subprocess.Popen(command, env=environment(folder), stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in tries("the receiver to listen"):
        assert process.poll() is None, "the receiver has ended"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


def simulated(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "silverfold.jobs.cli", "simulate", "sqlitecloud-webhooks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment(folder))


def exits(*arguments: str) -> int | str | None:
    """Return the exit code of the command in this process: for what ends before anything is posted for long."""
    with pytest.raises(SystemExit) as left:
        main(["simulate", "sqlitecloud-webhooks", *arguments])
    return left.value.code


def test_orders_are_posted_signed_and_land_in_order_and_a_wrong_secret_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with receiving(tmp_path, port):
        done = simulated(
            tmp_path,
            "--to",
            url,
            "--secret-env",
            "HOOK_SECRET",
            "--changes-per-second",
            "100",
            "--changes-for",
            "0.5",
            "--seed",
            "4",
        )
        unsigned = exits("--to", url)
    first, last = done.stdout.strip().splitlines()
    assert (done.returncode, first) == (0, f"posting to {url}: table orders of shop.sqlite, key id")
    frames = landed(Place(str(tmp_path / "lake/bronze/shop")))
    bodies = [frame.body for frame in frames if frame.kind == "data"]
    orders = Orders(seed=4, action=url)
    assert bodies == [orders.change() for _ in bodies]
    assert last == f"quiet after {len(bodies):,} changes, {len(orders.rows):,} rows"
    assert len(bodies) > 1
    assert unsigned == 2
    assert "401: no header shows that the secret is known" in " ".join(capsys.readouterr().err.split())
    assert [json.loads(frame.body)["mark"] for frame in frames if frame.kind == "mark"] == [
        "opened",
        "refused",
        "closed",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing option '--to'"),
        (["--to", "127.0.0.1:80"], "is not a URL of http or https"),
        (["--to", "http://127.0.0.1:99999/"], "is not a URL of http or https"),
        (["--to", "http://127.0.0.1:1/", "--secret-env", "NOT_SET"], "NOT_SET"),
        (["--to", "http://127.0.0.1:1/", "--scheme", "md5"], "--scheme"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert exits(*arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_simulator_that_reaches_nobody_says_so_and_ends_with_its_time(tmp_path: Path) -> None:
    url, begun = f"http://127.0.0.1:{free_port()}/\n?key=k3y", time.monotonic()
    done = simulated(tmp_path, "--to", url, "--changes-for", "0.5")
    shown = url.partition("\n")[0]
    assert (done.returncode, time.monotonic() - begun < 20) == (3, True)
    assert done.stdout == f"posting to {shown}\\n?…: table orders of shop.sqlite, key id\n"
    first, last = done.stderr.splitlines()
    assert (json.loads(first)["event"], last.startswith(f"silverfold: {shown}")) == ("request not taken", True)
    assert "k3y" not in done.stdout + done.stderr


def test_a_simulator_that_reaches_nobody_ends_on_a_signal_with_exit_code_0(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "silverfold.jobs.simulate",
        "sqlitecloud-webhooks",
        "--to",
        f"http://127.0.0.1:{free_port()}/",
    ]
    with subprocess.Popen(
        command, env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stdout.read() == b"quiet after 0 changes, 1 row\n"
