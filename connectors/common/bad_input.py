"""Marks of input that cannot be read."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, mark

MOST_COPIED: Final = 1 << 16
"""Maximum bytes of bad input copied to bronze: a peer chooses how many it sends."""


def bad_input(
    name: str,
    octets: bytes,
    error: SilverfoldError | None = None,
    *,
    most: int = MOST_COPIED,
    stream: str | None = None,
    **details: object,
) -> Frame:
    """Return the mark of bad input: ``body`` is its beginning in base64.

    Args:
        error: Its class and text become ``error_class`` and ``reason``.
        most: Maximum bytes of ``body``, before encoding.
        details: See `connectors.frames.mark`.
    """
    if error is not None:
        details |= {"error_class": error.error_class, "reason": str(error)}
    return mark(name, stream=stream, body=b64encode(octets[:most]).decode("ascii"), **details)
