"""The live view: on a terminal of its own as a process, and its loop in this one."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.text import Text

from silverfold.jobs.common.live_view import watch

PATIENCE = 60.0


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/lake"\n')
    (tmp_path / "feeds/market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n[tables.quotes]\nsource = "Quotes"\n'
    )
    return tmp_path


@contextmanager
def on_terminal(conf: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `status --watch` on a terminal; yield the process, and what a user types into and reads from."""
    user, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 60))
    command = [sys.executable, "-m", "silverfold.jobs.status", "--conf", str(conf), "--watch"]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(command, env={**os.environ, "TERM": "xterm"}, **streams) as process:
        try:
            yield process, user
        finally:
            process.kill()
            os.close(terminal)
            os.close(user)


def shown_until(user: int, text: str) -> str:
    """Read what the terminal shows until it has a text."""
    shown = b""
    while text.encode() not in shown:
        assert select.select([user], [], [], PATIENCE)[0], shown
        shown += os.read(user, 65_536)
    return shown.decode(errors="replace")


@pytest.mark.parametrize("way", ["q", "Q", signal.SIGINT, signal.SIGTERM])
def test_a_key_or_a_signal_ends_it_with_0_and_the_terminal_is_as_before(conf: Path, way: str | signal.Signals):
    with on_terminal(conf) as (process, user):
        before = termios.tcgetattr(user)
        shown_until(user, "not_built")
        assert termios.tcgetattr(user) != before
        if isinstance(way, str):
            os.write(user, way.encode())
        else:
            process.send_signal(way)
        assert process.wait(PATIENCE) == 0
        assert "\x1b[?1049l" in shown_until(user, "\x1b[?25h")
        assert termios.tcgetattr(user) == before


def test_a_store_that_does_not_answer_does_not_hold_up_the_end(conf: Path):
    with socket.create_server(("127.0.0.1", 0)) as store:
        address = f"http://127.0.0.1:{store.getsockname()[1]}"
        (conf / "settings.toml").write_text(
            'warehouse = "s3://bucket/lake"\n[storage_options]\n'
            f'AWS_ENDPOINT_URL = "{address}"\nAWS_ALLOW_HTTP = "true"\n'
            'AWS_ACCESS_KEY_ID = "a"\nAWS_SECRET_ACCESS_KEY = "b"\nAWS_REGION = "us-east-1"\n'
        )
        with on_terminal(conf) as (process, user):
            asked, _ = store.accept()  # the reading is inside the store's library
            with asked:
                shown_until(user, "reading for")
                os.write(user, b"q")
                assert process.wait(PATIENCE) == 0
            shown_until(user, "\x1b[?25h")


def test_an_error_of_a_reading_ends_the_view_and_is_raised():
    def read() -> str:
        raise ZeroDivisionError

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        watch(read, lambda newest, _: Text(str(newest)), io.StringIO())
    assert signal.getsignal(signal.SIGINT) is before


def test_it_reads_again_and_shows_the_newest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("silverfold.jobs.common.live_view.PAUSE", 0.001)
    monkeypatch.setattr("silverfold.jobs.common.live_view._TICK", 0.001)
    count, seen = iter(range(1_000_000)), list[int | None]()

    def picture(newest: int | None, _age: float) -> Text:
        seen.append(newest)
        if newest is not None and newest >= 3:
            signal.raise_signal(signal.SIGINT)
        return Text()

    watch(lambda: next(count), picture, io.StringIO())

    assert seen[0] in (None, 0)
    assert seen[-1] >= 3
    assert "read" not in [thread.name for thread in threading.enumerate()]
