"""The error that only tengi has, beside those of `conf.errors`."""

from __future__ import annotations

from silverfold.conf.errors import WireError


class UnknownType(WireError):
    """No type is registered under an id. The length of such an object is unknown: what follows cannot be read.

    Args:
        type_id: The id.
    """

    error_class = "UNKNOWN_TYPE"

    def __init__(self, detail: str, *, type_id: int = 0, offset: int | None = None) -> None:
        self.type_id = type_id
        super().__init__(detail, offset=offset, reason="unknown_type")
