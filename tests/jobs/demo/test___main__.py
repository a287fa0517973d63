"""The demo as a user runs it, how it ends when it is ended, and how it tells what went wrong."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from silverfold.conf.errors import SparkUnavailable
from silverfold.conf.secrets import Secret
from silverfold.jobs import cli
from silverfold.jobs.common.context import Invocation
from silverfold.jobs.demo.stage import perform, write_conf
from tests.support.polling import wait_until

ROOT = Path(__file__).parents[3]
GENEROUS = 550
"""Seconds: the machine may be busy with much else."""


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo with its temporary folders inside ``folder``; end it in any case."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "silverfold.jobs.demo.__main__", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=GENEROUS)


def processes_in(folder: Path) -> int:
    """Count the processes that were given this temporary folder, whatever groups and sessions they are in."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            found += f"TMPDIR={folder}\0".encode() in (process / "environ").read_bytes()
    return found


@pytest.mark.spark
def test_a_short_demo_shows_everything_and_proves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = tmp_path / "kept"
    with running("--seconds", "1", "--rows", "200", "--keep", str(workspace), folder=tmp_path / "tmp") as process:
        out, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, err) == (0, ""), out
    parts = [
        "silverfold demo: a source, a receiver and a build on this machine\n",
        "2 tables of 200 rows, all 22 column types\n",
        " s  Spark has started\n",
        " s  both silver tables stand: the build follows the changes from now on\n",
        " s  the source broke the connection: a new epoch begins with new snapshots\n",
        " s  the source is quiet from now on\n",
        " s  the receiver stopped in order, with everything landed\n",
        "demo (deephaven): landed up to ",
        ", epoch 2\nreceiver closed since ",
        "│ trades  │ synced │",
        "│ baskets │ synced │",
        "\nA query over silver:\nSELECT Symbol, ",
        "\n5 rows\n",
        "\nSilver, read without Spark, against the source's own rows:\ntrades: equal: ",
        "\nSilver is the source, cell for cell.\n",
        f"\nkept: {workspace}\n  silverfold --conf {workspace}/conf status\n",
    ]
    rest = out
    for part in parts:  # in this order, whatever else a slow machine has time to tell between them
        _, found, rest = rest.partition(part)
        assert found, f"{part!r} is not told in its turn:\n{out}"
    assert (
        len(re.findall(r"^(?:trades|baskets): equal: [\d,]+ rows at position \d+, version \d+;", out, re.MULTILINE))
        == 2
    )
    wait_until(lambda: not processes_in(tmp_path / "tmp"), "demo, receiver and JVM to be gone", pause=0.1)
    with pytest.raises(SystemExit) as left:
        cli.main(["--conf", str(workspace / "conf"), "status", "--json"])
    assert left.value.code == 0
    (feed,) = json.loads(capsys.readouterr().out)["feeds"]
    assert [(each["table"], each["state"], each["epoch"]) for each in feed["tables"]] == [
        ("trades", "synced", 2),
        ("baskets", "synced", 2),
    ]
    assert feed["receiver"]["reason"] == "stopped here"


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """Start processes as a script's ``&`` does: they ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.spark
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """While Spark starts, which takes seconds on any machine."""
    ended_in_order(tmp_path, signal.SIGINT, 130, phase=None)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.usefixtures("in_the_background")
def test_a_terminated_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    ended_in_order(tmp_path, signal.SIGTERM, 143, phase="Spark has started")


def ended_in_order(tmp_path: Path, number: int, code: int, *, phase: str | None) -> None:
    with running(folder=tmp_path / "tmp") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        next(line for line in lines if "receiver: process" in line)
        wait_until(lambda: processes_in(tmp_path / "tmp") >= 2, "itself and its receiver")  # it shows once it has begun
        if phase is None:
            time.sleep(1)
        else:
            next(line for line in lines if phase in line)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, err) == (code, "")
    assert out.endswith("stopping receiver, source and Spark\n")
    wait_until(lambda: not processes_in(tmp_path / "tmp"), "demo, receiver and JVM to be gone", pause=0.1)
    assert list((tmp_path / "tmp").glob("silverfold-*")) == []


def test_what_ends_with_the_demo_is_told_to_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    home = tmp_path / "home"
    home.mkdir()
    with ExitStack() as clients, ExitStack() as cleanup:

        def connect_and_fail(*_: object, **__: object) -> None:
            port = re.search(r"a table server on 127\.0\.0\.1:(\d+)", out.getvalue())
            assert port is not None
            clients.enter_context(socket.create_connection(("127.0.0.1", int(port[1]))))  # stays to the end
            wait_until(
                lambda: (home / "demo.log").read_text().count("client_connected") >= 2, "the client to be served"
            )
            raise SparkUnavailable("no Java")

        monkeypatch.setattr("silverfold.jobs.demo.stage.start_spark", connect_and_fail)
        with pytest.raises(SparkUnavailable):
            perform(Invocation(environ={}), home, cleanup, Console(file=out, width=200), seconds=1, rows=10)
        cleanup.close()
    left = (home / "demo.log").read_text().count("client_left")
    structlog.reset_defaults()
    assert left >= 2  # the receiver, and the one that stayed to the end


def test_a_folder_in_use_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(SystemExit) as left:
        cli.main(["demo", "--keep", str(tmp_path)])
    assert left.value.code == 2
    assert "is not empty" in re.sub(r"[│\s]+", " ", capsys.readouterr().err)


def test_the_demos_settings_are_its_own_but_for_sparks_options(tmp_path: Path) -> None:
    mine, home = tmp_path / "mine", tmp_path / 'with "quotes" and ü'
    (mine / "feeds").mkdir(parents=True)
    (mine / "settings.toml").write_text(
        'warehouse = "mine"\nspark = { "spark.jars.ivy" = "C:\\\\ivy", "spark.key" = { env = "KEY" } }\n'
    )
    (mine / "feeds" / "market.toml").write_text('connector = "deephaven"\ntables.quotes.source = "Quotes"\n')
    environ = {"SILVERFOLD__WAREHOUSE": "elsewhere", "SILVERFOLD_CONF": "other", "HOME": "/home/me"}

    ours = write_conf(Invocation(mine, environ=environ), home, "127.0.0.1:7777")

    settings = ours.settings()
    assert settings.warehouse == str(home / "warehouse")
    assert settings.spark["spark.jars.ivy"] == "C:\\ivy"
    assert settings.spark["spark.key"] == Secret(env="KEY")
    assert ours.environ == {"HOME": "/home/me"}
    assert list(settings.feeds) == ["demo"]
    _, feed = ours.feed("demo", settings)
    assert feed.address == "127.0.0.1:7777"
    assert {name: (table.source, table.keys) for name, table in feed.tables.items()} == {
        "trades": ("Trades", ()),
        "baskets": ("Baskets", ("Id",)),
    }


def test_the_users_java_options_win(tmp_path: Path) -> None:
    environ = {"SILVERFOLD__SPARK": '{ "spark.driver.extraJavaOptions" = "-Xint" }'}
    ours = write_conf(Invocation(environ=environ), tmp_path, "127.0.0.1:7777")
    assert ours.settings().spark["spark.driver.extraJavaOptions"] == "-Xint"


def test_a_receiver_that_dies_ends_the_demo_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    with ExitStack() as cleanup:

        def kill_the_receiver(*_: object, **__: object) -> tuple[None, Future[None], threading.Event]:
            pid = re.search(r"receiver: process (\d+)", out.getvalue())
            assert pid is not None
            wait_until(lambda: (tmp_path / "receiver.log").stat().st_size > 0, "the receiver to have begun")
            os.kill(int(pid[1]), signal.SIGKILL)
            return None, Future(), threading.Event()

        monkeypatch.setattr("silverfold.jobs.demo.stage._follow", kill_the_receiver)
        run = Invocation(environ=dict(os.environ))
        assert not perform(run, tmp_path, cleanup, Console(file=out, width=1000), seconds=1, rows=10)
    structlog.reset_defaults()
    assert "the demo did not get to its end: the receiver ended with exit code -9:\n{" in out.getvalue()
