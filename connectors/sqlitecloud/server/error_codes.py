"""The error codes of a server, and the mapping of exceptions to them (SCSP, "Errors")."""

from __future__ import annotations

from typing import Final

import apsw

from silverfold.conf.errors import SourceRefused, WireError
from silverfold.connectors.sqlitecloud.protocol.commands import UnknownCommand
from silverfold.connectors.sqlitecloud.protocol.messages import ServerError

NOT_FOUND: Final = "10001"
COMMAND: Final = "10002"
INTERNAL: Final = "10003"
AUTH: Final = "10004"
GENERIC: Final = "10005"

REFUSALS: Final = (SourceRefused, apsw.Error, UnknownCommand, WireError, UnicodeDecodeError)
"""Exceptions that refuse one request; the session continues."""


def refusal(error: BaseException) -> ServerError:
    """Return the error sent to a client for one of the `REFUSALS`."""
    match error:
        case SourceRefused():
            return ServerError(int(error.code), 0, -1, error.text)
        case apsw.Error():
            return ServerError(
                getattr(error, "result", apsw.SQLITE_MISUSE),  # apsw's own checks have no code
                getattr(error, "extendedresult", 0),
                getattr(error, "error_offset", -1),
                str(error),
            )
        case UnicodeDecodeError():
            return ServerError(int(INTERNAL), 0, -1, "A text in the result is not UTF-8.")
        case _:
            return ServerError(int(COMMAND), 0, -1, str(error))
