"""Parsing of client requests on the server: a command with its parameters, or bytes."""

from __future__ import annotations

from conf.errors import InvalidValue
from connectors.sqlitecloud.protocol.frames import RawFrame, parse
from connectors.sqlitecloud.protocol.messages import Array, Single, Statement


def read_request(raw: RawFrame) -> Statement | bytes:
    """Parse a request: the bytes of an upload (``$``), or a command as in `read_statement`."""
    message = parse(raw)
    if isinstance(message, Single) and isinstance(message.value, bytes):
        return message.value
    return read_statement(raw)


def read_statement(raw: RawFrame) -> Statement:
    """Return the command of a frame ``+``, ``!`` or ``=``.

    Raises:
        InvalidValue: The frame is malformed, or is not a command (``not_a_command``). The stream remains usable: reply
            with an error.
    """
    message = parse(raw)
    items = message.items if isinstance(message, Array) else (message.value,) if isinstance(message, Single) else ()
    if not items or not isinstance(items[0], str):
        raise InvalidValue("a command is a text, or an array that begins with one", reason="not_a_command")
    if "\0" in items[0]:
        raise InvalidValue("a command has no character of code 0", reason="not_a_command")
    return Statement(items[0], items[1:])
