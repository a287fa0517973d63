"""What a feed's ``address`` connects to: ``host:port`` for a connection, ``file:PATH`` for a file of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from silverfold.conf.files import check_path
from silverfold.connectors.common.transport import Address, parse_address

FILE: Final = "file:"


def parse_source(text: str) -> Address | Path:
    """Return the address to connect to, or the file to read. Raises ValueError with what is allowed instead."""
    if text.startswith(FILE):
        path = text.removeprefix(FILE)
        if not path:
            raise ValueError("a path behind file:")
        return Path(check_path(path))
    try:
        return parse_address(text)
    except ValueError as error:
        raise ValueError(f"{error}; or file:PATH") from None
