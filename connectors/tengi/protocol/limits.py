"""Limits of what is read, and why. Nothing on the wire bounds a packet."""

from __future__ import annotations

from typing import Final

MAX_PACKET: Final = 16 << 20
"""Default for the most bytes of a packet."""
MAX_DEPTH: Final = 32
"""Objects inside one another: a short input must not exhaust the stack."""
MAX_ANSWER: Final = 64 << 20
"""Default for the most bytes of one HTTP answer."""
SMALLEST_ENTRY: Final = 10
"""Bytes of an entry of a packet at least: an empty key, and a type without content."""
