import errno
import io
import json

import pytest
import structlog

from silverfold.jobs.common.logs import start_logs


@pytest.fixture(autouse=True)
def _logs_of_the_process_stay():
    yield
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_event_is_a_line_of_json_with_time_and_level():
    out = io.StringIO()
    start_logs("info", out)
    structlog.get_logger().info("landed", feed="market", epoch=2, position=41)
    timestamp, rest = out.getvalue().split(", ", 1)
    assert timestamp.startswith('{"timestamp": "')
    assert timestamp.endswith('Z"')
    assert rest == '"level": "info", "event": "landed", "feed": "market", "epoch": 2, "position": 41}\n'


def test_what_is_below_the_level_is_dropped():
    out = io.StringIO()
    start_logs("warning", out)
    structlog.get_logger().info("landed")
    assert out.getvalue() == ""


def test_a_caught_exception_stays_on_the_events_line():
    out = io.StringIO()
    start_logs("info", out)
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger().exception("failed", feed="market")
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: bad")


def test_a_person_gets_plain_text():
    out = Terminal()
    start_logs("info", out)
    structlog.get_logger().info("landed", feed="market")
    assert "landed" in out.getvalue()
    assert "{" not in out.getvalue()


def test_a_stream_that_takes_nothing_ends_nobody():
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    start_logs("info", Full())
    structlog.get_logger().warning("commit failed")
