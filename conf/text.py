"""What may be shown of a text that is somebody else's."""

from __future__ import annotations

import re


def without_secrets(address: str) -> str:
    """Return an address without what may be in it besides the place: a user's name, a password, a key."""
    place = re.sub("^([^/]*//)?.*@", r"\1…@", address, flags=re.DOTALL)
    return re.sub(r"\?.*", "?…", place, flags=re.DOTALL)


def in_one_line(text: str) -> str:
    """Return a text with what a terminal would obey written out: line ends, escapes and the like."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
