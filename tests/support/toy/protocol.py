"""The toy's protocol: numbered lines."""

from __future__ import annotations


def line(number: int) -> bytes:
    """Return a line of the source."""
    return f"line {number}".encode()
