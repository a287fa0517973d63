"""The base of all errors, and mistakes in settings."""

from __future__ import annotations

from typing import ClassVar

from silverfold.conf.text import in_one_line, without_secrets


class SilverfoldError(Exception):
    """Base of the tree. ``error_class`` is stable: scripts may match on it."""

    error_class: ClassVar[str] = "SILVERFOLD_ERROR"
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the message on one line with control characters escaped: parts of it may come from a peer."""
        return in_one_line(super().__str__())


class ConfigError(SilverfoldError):
    """A setting is invalid. Reports its location, the value found, and what is allowed.

    Args:
        found: The value as written; None if there is none.
        others: Further errors found by the same check.
    """

    error_class = "CONFIG_ERROR"

    def __init__(
        self, *, file: str, key: str, found: object, allowed: str, others: tuple[ConfigError, ...] = ()
    ) -> None:
        if key == "address" and isinstance(found, str):
            found = without_secrets(found)
        self.file, self.key, self.found, self.allowed, self.others = file, key, found, allowed, others
        shown = "nothing" if found is None else repr(found)
        super().__init__(f"{file}: {key}: found {shown}, allowed: {allowed}")
