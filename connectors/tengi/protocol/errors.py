"""Errors that only tengi has, beside those of `conf.errors`."""

from __future__ import annotations

from silverfold.conf.errors import TruncatedMessage, WireError


class UnknownType(WireError):
    """No type is registered under an id. The length of such an object is unknown: what follows cannot be read.

    Args:
        type_id: The id.
    """

    error_class = "UNKNOWN_TYPE"

    def __init__(self, detail: str, *, type_id: int = 0, offset: int | None = None) -> None:
        self.type_id = type_id
        super().__init__(detail, offset=offset, reason="unknown_type")


def cut_off(size: int) -> TruncatedMessage:
    """Return the error of a packet that breaks off after so many bytes, where Java cuts: its rest never comes."""
    detail = (
        f"a packet breaks off behind {size} bytes, where Java cuts over tcp and websocket: of a peer in Java, only "
        'transport = "http" with peer = "java" brings packets whole'
    )
    return TruncatedMessage(detail, offset=size, reason="cut")
