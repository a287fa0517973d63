"""The address of a feed: ``tengi://host:port``."""

from __future__ import annotations

from typing import Final

from silverfold.connectors.common import transport
from silverfold.connectors.common.transport import Address

DEFAULT_PORT: Final = 8080
"""Port of an address without one."""
_SCHEME: Final = "tengi://"


def parse_address(text: str) -> Address:
    """Parse an address; without a port it is 8080. Raises ValueError with the expected form."""
    if not text.startswith(_SCHEME):
        raise ValueError("tengi://host:port, such as tengi://127.0.0.1:8080")
    place = text.removeprefix(_SCHEME)
    _, colon, _ = place.rpartition("]")[2].rpartition(":")
    return transport.parse_address(place if colon else f"{place}:{DEFAULT_PORT}")
