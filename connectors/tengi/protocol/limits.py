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
MAX_HANDSHAKE: Final = 64 << 10
"""Bytes of a handshake: a peer that is not known yet must not take memory."""
JAVA_CUT: Final = 256
"""Bytes at which Java cuts what it sends on TCP and WebSocket. Packets of up to so many are safe both ways."""
JAVA_MAX_TCP: Final = 400
"""Largest packet that Java reads at once on TCP, about; it closes the connection on a larger one."""
JAVA_MAX_FRAME: Final = 1 << 16
"""Largest WebSocket frame that Java takes."""
