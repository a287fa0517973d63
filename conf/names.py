"""Compares names of columns as Spark does where letter case says nothing."""

from __future__ import annotations


def folded(name: str) -> str:
    """Return a name so that names which Spark takes for one are equal.

    Each letter is compared by its capital's small letter, as Java's ``equalsIgnoreCase`` has it: a long s is an s, and
    a dotted capital I an i. Letters that become several by that stay as they are.
    """
    return name.lower() if name.isascii() else "".join(map(_folded, name))


def _folded(letter: str) -> str:
    capital = letter.upper()
    return (capital if len(capital) == 1 else letter).lower()[0]
