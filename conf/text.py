"""Text for display: untrusted text made safe, and counts; checks of host names and of control characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def without_secrets(address: str) -> str:
    """Return an address with user name, password and query string, which may hold keys, masked."""
    place = re.sub("^([^/]*//)?.*@", r"\1…@", address, flags=re.DOTALL)
    return re.sub(r"\?.*", "?…", place, flags=re.DOTALL)


def in_one_line(text: str) -> str:
    """Return a text on one line, with non-printable characters such as line ends and escapes escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check_host(host: str) -> None:
    """Raise ValueError for an invalid host name; the message says what is allowed."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("a host whose name can be looked up") from None
    if not host.isprintable():
        raise ValueError("a host without control characters")


def without_controls(what: str) -> Callable[[str], str]:
    """Return a check that returns a text, or raises ValueError for a control character; ``what`` names the text."""

    def check(text: str) -> str:
        if re.search(r"[\x00-\x1f\x7f-\x9f]", text):
            raise ValueError(f"{what} without control characters")
        return text

    return check


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 row``, ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def joined(reasons: Iterable[str | None]) -> str | None:
    """Return the reasons that there are, in one line; None without any."""
    return "; ".join(filter(None, reasons)) or None
