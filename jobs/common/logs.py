"""Structured logging of a process: one event per line, on stderr. Message bodies and secrets are never logged."""

from __future__ import annotations

import sys
from typing import TextIO, cast

import structlog

from silverfold.jobs.common.streams import Unfailing


def start_logs(level: str, stream: TextIO | None = None) -> None:
    """Configure the logging of this process: readable text on a terminal, else JSON lines.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``; events below it are dropped.
        stream: Output stream; by default ``sys.stderr`` at the time of each line.
    """

    def logger(*_name: str) -> structlog.PrintLogger:
        return structlog.PrintLogger(cast(TextIO, Unfailing(stream or sys.stderr)))

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering((stream or sys.stderr).isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=logger,
        cache_logger_on_first_use=False,
    )


def _rendering(watched: bool) -> list[structlog.typing.Processor]:
    if watched:
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, _what_happened_first, structlog.processors.JSONRenderer()]


def _what_happened_first(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Put timestamp, level and event first in a line."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event")}
    return {**first, **event}
