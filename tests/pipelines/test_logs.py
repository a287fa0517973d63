"""Where the logs of a library go: to whatever the program has configured, and never to its stdout."""

from __future__ import annotations

import logging

import pytest

from silverfold.jobs.common.logs import start_logs
from silverfold.pipelines.logs import get_logger


def test_a_program_that_configures_nothing_has_them_in_the_standard_librarys_loggers(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    with caplog.at_level(logging.INFO, "silverfold"):
        get_logger("build").bind(feed="market").info("cut applied", table="quotes")
        get_logger("build").debug("traceback")

    (entry,) = caplog.records
    assert (entry.name, entry.levelname) == ("silverfold.build", "INFO")
    assert entry.getMessage() == "event='cut applied' feed='market' table='quotes'"
    assert capsys.readouterr().out == ""


def test_the_commands_configure_structlog(capsys: pytest.CaptureFixture[str]):
    start_logs("info")

    get_logger("build").info("cut applied", table="quotes")

    output = capsys.readouterr()
    assert output.out == ""
    assert '"event": "cut applied", "table": "quotes"' in output.err
