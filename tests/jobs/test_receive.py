"""The receive command as a process: how it stops, what it leaves behind, what its exit code says."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest

import silverfold.jobs.receive
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.feeds import open_feeds
from silverfold.jobs.cli import main
from silverfold.jobs.common.context import Invocation
from silverfold.jobs.demo.tables import TABLES
from silverfold.pipelines.places import Places
from tests.support.landing import landed, marks
from tests.support.polling import tries, wait_until
from tests.support.receiver_thread import ReceiverThread
from tests.support.replay import replay

PATIENCE = 120.0
DEMO = TABLES["baskets"]
IN_A_CHILD = {"program": ("-m", "silverfold.jobs.databricks"), "feeds": ("receive", "market")}


@pytest.fixture
def table():
    return DEMO.filled(100, Random(1))


@pytest.fixture
def server(table):
    with TableServer.start() as server:
        server.export_table(DEMO.source, table)
        yield server


@pytest.fixture
def conf(tmp_path, server):
    (tmp_path / "feeds").mkdir()
    write_feed(tmp_path, server.port)
    return tmp_path


def write_feed(conf, port):
    (conf / "feeds/market.toml").write_text(
        f"""
        connector = "deephaven"
        address = "127.0.0.1:{port}"
        commit = {{ interval_ms = 10 }}
        reconnect = {{ first = 0.05, longest = 0.1, connect_timeout = 5.0 }}
        [tables.baskets]
        source = "{DEMO.source}"
        """
    )


@pytest.fixture
def places(conf):
    return Places(str(conf / "lake"))


@contextmanager
def started(conf, *arguments, program=("-m", "silverfold.jobs.receive"), feeds=("market",)):
    command = [sys.executable, *program, "--conf", str(conf), *feeds, *arguments]
    environ = os.environ | {"SILVERFOLD__WAREHOUSE": str(conf / "lake")}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def received_here(conf, monkeypatch):
    """Run the command in this process; return its exit code."""
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(conf / "lake"))
    monkeypatch.setattr(silverfold.jobs.receive, "collect_rarely", lambda: None)  # other tests share this process

    def received(*arguments):
        with pytest.raises(SystemExit) as left:
            main(["--conf", str(conf), "receive", "market", *arguments])
        return left.value.code

    return received


def ended(process):
    """Exit code and what was logged."""
    _, logged = process.communicate(timeout=PATIENCE)
    return process.returncode, logged


@contextmanager
def receiving(conf):
    """Receive the feed beside the block, in a thread of this process; stop in order at its end."""
    run = Invocation(conf_dir=conf)
    ((connector, feed),) = open_feeds(run.settings(), ["market"])
    thread = ReceiverThread(feed, connector, Places(str(conf / "lake")), Random(2))
    try:
        yield
    finally:
        thread.stop()


def wait_for_landed(places, condition, what):
    """Wait for frames that meet a condition. They are read when there is a commit more, not each time anew."""
    log = places.bronze("market").local / "_delta_log"
    seen = set()

    def met():
        nonlocal seen
        before, seen = seen, set(log.glob("*.json"))
        return seen != before and condition(landed(places))

    wait_until(met, what, seconds=PATIENCE)


def wait_for_snapshot(places, epoch=1):
    def has_snapshot(frames):
        return any(frame.epoch >= epoch and (frame.kind, frame.boundary) == ("snapshot", "end") for frame in frames)

    wait_for_landed(places, has_snapshot, "a snapshot to land")


def wait_for_rows(places, table):
    def has_all(frames):
        return replay(frames, "baskets").keys() == table.rows().keys()

    wait_for_landed(places, has_all, "the last rows to land")


@pytest.mark.parametrize(
    ("number", "again", "command"),
    [
        (signal.SIGTERM, None, {}),
        (signal.SIGINT, 0.0, {}),
        (signal.SIGTERM, None, IN_A_CHILD),
        pytest.param(signal.SIGTERM, 0.002, {}, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, None, {}, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 0.0, {}, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, 0.002, {}, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, 0.0, IN_A_CHILD, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_stops_it_cleanly_with_everything_landed_also_where_it_is_sent_twice(
    conf, places, table, *, number, again, command
):
    with started(conf, **command) as process:
        wait_for_snapshot(places)
        process.send_signal(number)
        if again is not None:
            time.sleep(again)
            process.send_signal(number)
        code, logged = ended(process)
    assert code == 0, logged
    assert [each["mark"] for each in marks(places)] == ["opened", "calibrated", "snapshot asked", "closed"]
    assert len(replay(landed(places), "baskets")) == 100
    assert [line for line in logged.splitlines() if not line.startswith('{"')] == []
    assert '"event": "stopped"' in logged.splitlines()[-1]


def test_it_ends_by_itself_after_the_time_asked_for(received_here, places):
    assert received_here("--for", "0.5") == 0
    assert marks(places, "closed")[-1]["reason"] == "stopped here"


def test_it_waits_for_a_source_that_is_not_there_and_stops_when_told(received_here, places, server):
    server.close()
    assert received_here("--for", "0.5") == 0
    assert {each["error_class"] for each in marks(places, "closed")} >= {"SOURCE_UNAVAILABLE"}


def test_the_second_receiver_of_a_feed_fences_the_first(conf, places, table):
    with started(conf) as first:
        wait_for_snapshot(places)
        with receiving(conf):
            wait_for_snapshot(places, epoch=2)
            change_steadily(table, until=lambda: first.poll() is not None)
            code, logged = ended(first)
            wait_for_rows(places, table)
    assert code == 4, logged
    assert "receive/market is another's now" in logged
    frames = landed(places)
    assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
    assert replay(frames, "baskets").keys() == table.rows().keys()


def test_of_several_feeds_in_one_process_one_that_is_fenced_leaves_the_others(conf, places, table):
    def rows_of_bazaar():
        return replay(landed(places.bronze("bazaar")), "baskets").keys()

    (conf / "feeds/bazaar.toml").write_text((conf / "feeds/market.toml").read_text())
    with started(conf, feeds=("--all",)) as both, ThreadPoolExecutor(1) as pool:
        wait_for_snapshot(places)
        fenced_line = pool.submit(lambda: next(line for line in both.stderr if "feed ended" in line))
        with receiving(conf):
            wait_for_snapshot(places, epoch=2)
            change_steadily(table, until=fenced_line.done)
            wait_for_rows(places, table)
        fenced = json.loads(fenced_line.result())
        wait_until(lambda: rows_of_bazaar() == table.rows().keys(), "the other feed to go on", seconds=PATIENCE)
        both.send_signal(signal.SIGTERM)
        code, logged = ended(both)
    assert (fenced["feed"], fenced["error_class"], code) == ("market", "FENCED", 4), logged


def test_of_several_feeds_one_that_ends_by_a_bug_leaves_the_others(conf, monkeypatch):
    stopped = []

    async def receive_feed(feed, connector, places, *, stop, **_):
        if feed.name == "market":
            raise ValueError("a bug")
        await stop.wait()
        stopped.append(feed.name)

    monkeypatch.setattr(silverfold.jobs.receive, "receive_feed", receive_feed)
    (conf / "feeds/bazaar.toml").write_text((conf / "feeds/market.toml").read_text())
    run = Invocation(conf_dir=conf)
    feeds = open_feeds(run.settings())
    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(silverfold.jobs.receive.until_stopped(feeds, run.settings(), 0.5))
    assert stopped == ["bazaar"]


def test_a_wrong_setting_is_exit_code_2(tmp_path, capsys):
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/market.toml").write_text('connector = "deephaven"\n[tables.baskets]\nsource = "B"\n')
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(tmp_path), "receive", "market"])
    assert left.value.code == 2
    assert "address" in capsys.readouterr().err


def test_a_store_that_cannot_be_opened_is_exit_code_3(conf, received_here, capsys):
    (conf / "lake").mkdir()
    (conf / "lake" / "bronze").write_text("a file where a folder should be")
    assert received_here() == 3
    assert "Traceback" not in capsys.readouterr().err


def test_a_receiver_loads_neither_spark_nor_pandas_nor_the_parser_of_conditions():
    program = """
import sys, silverfold.jobs.receive
from silverfold.connectors.registry import find_connector
from silverfold.connectors.deephaven.receiver.receiver import DeephavenReceiver
print([name for name in ("pyspark", "pandas", "sqlglot") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


KILLED_BEFORE_A_COMMIT = """
write = silverfold.pipelines.landing.writer.write_deltalake
def step(*args, **kwargs):
    if due(): die()
    write(*args, **kwargs)
silverfold.pipelines.landing.writer.write_deltalake = step
"""

KILLED_WHILE_A_FILE_IS_WRITTEN = """
write = silverfold.pipelines.landing.writer.write_deltalake
def step(table, frames, **kwargs):
    def batches():
        yield from frames.slice(0, 1).to_batches()
        die()
    write(table, pyarrow.RecordBatchReader.from_batches(frames.schema, batches()) if due() else frames, **kwargs)
silverfold.pipelines.landing.writer.write_deltalake = step
"""

KILLED_AFTER_A_COMMIT_BEFORE_IT_IS_NOTED = """
write = silverfold.pipelines.landing.writer.write_deltalake
def step(*args, **kwargs):
    write(*args, **kwargs)
    if due(): die()
silverfold.pipelines.landing.writer.write_deltalake = step
"""

KILLED_DURING_A_COMPACTION = """
compact = silverfold.pipelines.landing.sink.compact
def step(place):
    threading.Timer(0.005, die).start()
    return compact(place)
silverfold.pipelines.landing.sink.compact = step
"""

KILLED = {
    "before a commit": KILLED_BEFORE_A_COMMIT,
    "while a file is written": KILLED_WHILE_A_FILE_IS_WRITTEN,
    "after a commit, before it is noted": KILLED_AFTER_A_COMMIT_BEFORE_IT_IS_NOTED,
    "during a compaction": KILLED_DURING_A_COMPACTION,
}
BY_DAY = ("while a file is written", "after a commit, before it is noted")
"""Steps that leave something behind: a file that no commit names, and a commit that nobody knows of."""

PRELUDE = """
import os, signal, sys, threading
import pyarrow
import silverfold.pipelines.landing.sink, silverfold.pipelines.landing.writer
from silverfold.jobs.cli import main_of

commits = 0

def due():
    global commits
    commits += 1
    return commits == 3

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "step", [*BY_DAY, *(pytest.param(step, marks=pytest.mark.nightly) for step in KILLED if step not in BY_DAY)]
)
def test_a_receiver_killed_at_any_step_goes_on_densely_when_it_is_started_again(conf, places, server, table, step):
    feed = (conf / "feeds/market.toml").read_text()
    (conf / "feeds/market.toml").write_text(feed.replace("interval_ms = 10", "interval_ms = 1, compact_every = 3"))
    program = conf / "killed.py"
    program.write_text(PRELUDE + KILLED[step] + 'main_of("receive")\n')
    with started(conf, program=(str(program),)) as process:
        wait_until(lambda: server.client_count, "it to connect", seconds=PATIENCE)
        change_steadily(table, until=lambda: process.poll() is not None)
        assert ended(process)[0] == -signal.SIGKILL
    before = landed(places)
    with receiving(conf):
        wait_for_snapshot(places, epoch=before[-1].epoch + 1)
    frames = landed(places)
    assert frames[: len(before)] == before
    assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
    assert replay(frames, "baskets").keys() == table.rows().keys()


def change_steadily(table, *, until):
    for _ in tries("it to be killed", seconds=PATIENCE):
        if until():
            return
        with table.update() as update:
            update.add([{"Id": 1}])
        time.sleep(0.01)
