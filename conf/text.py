"""Texts that are somebody else's: what may be shown of them, and what can be the name of a host."""

from __future__ import annotations

import re


def without_secrets(address: str) -> str:
    """Return an address without what may be in it besides the place: a user's name, a password, a key."""
    place = re.sub("^([^/]*//)?.*@", r"\1…@", address, flags=re.DOTALL)
    return re.sub(r"\?.*", "?…", place, flags=re.DOTALL)


def in_one_line(text: str) -> str:
    """Return a text with what a terminal would obey written out: line ends, escapes and the like."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check_host(host: str) -> None:
    """Refuse what no host can be called. Raises ValueError that says what is allowed."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("a host whose name can be looked up") from None
    if not host.isprintable():
        raise ValueError("a host without control characters")
