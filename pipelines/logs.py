"""Loggers of what runs inside another program: that program decides where its logs go.

The commands configure structlog (`jobs.common.logs`). A notebook or an orchestrator usually does not: structlog would
print on its stdout then, so events go to the standard library's loggers below ``silverfold``.
"""

from __future__ import annotations

import logging
from typing import cast

import structlog


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return structlog's logger as it is configured; if it is not, the standard library's ``silverfold.<name>``.

    Call it for each event or run, not at import: the program may configure its logs later.
    """
    if structlog.is_configured():
        return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(name))
    found = structlog.wrap_logger(
        logging.getLogger(f"silverfold.{name}"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast(structlog.typing.FilteringBoundLogger, found)
